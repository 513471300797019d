//go:build pixiv

package jpeg

import (
	"bytes"
	"image"
	"testing"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/pattern"
	pixiv "github.com/pixiv/go-libjpeg/jpeg"
	"github.com/pixiv/go-libjpeg/rgb"
)

// The compared subjects do the same work: both write the same file from the same pixels, and read
// the same pixels from the same file.
func TestPixivDoesTheSameWork(t *testing.T) {
	const w, h = 160, 120
	bounds := image.Rect(0, 0, w, h)
	for _, quality := range []int{90, 97} {
		dct := map[bool]pixiv.DCTMethod{true: pixiv.DCTIFast, false: pixiv.DCTISlow}[quality < 96]
		options := &pixiv.EncoderOptions{Quality: quality, DCTMethod: dct}
		pix := pattern.Scenery(w, h)
		yuyv := packed(pix, w, h)
		planes := pixiv.NewYCbCrAligned(bounds, image.YCbCrSubsampleRatio422)
		splitYUYV(planes, yuyv)
		e := rttest.Must(jpeg.NewEncoder(quality, jpeg.ChromaOfPicture))(t)
		defer e.Close()
		d := rttest.Must(jpeg.NewDecoder())(t)
		defer d.Close()
		for _, tt := range []struct {
			name   string
			ours   jpeg.Image
			theirs image.Image
		}{
			{"RGB", jpeg.Image{
				W:      w,
				H:      h,
				Layout: jpeg.RGB,
				Pix:    pix,
			}, &rgb.Image{Pix: pix, Stride: 3 * w, Rect: bounds}},
			{"YUYV", jpeg.Image{W: w, H: h, Layout: jpeg.YUYV, Pix: yuyv}, planes},
		} {
			dst := make([]byte, jpeg.MaxSize(w, h, jpeg.Chroma422))
			n := rttest.Must(e.Encode(dst, &tt.ours))(t)
			var theirs bytes.Buffer
			rttest.Do(t, pixiv.Encode(&theirs, tt.theirs, options))
			if !bytes.Equal(dst[:n], theirs.Bytes()) {
				t.Errorf("%s at %d: ours has %d bytes, theirs %d, want the same file", tt.name, quality, n,
					theirs.Len())
			}
			tensor := make([]byte, 3*w*h)
			rttest.Do(t, d.DecodeRGB(tensor, dst[:n], w, h))
			if m, err := pixiv.DecodeIntoRGB(bytes.NewReader(dst[:n]),
				&pixiv.DecoderOptions{DCTMethod: pixiv.DCTISlow}); err != nil || !bytes.Equal(m.Pix, tensor) {
				t.Errorf("%s at %d: decoded otherwise than ours: %v", tt.name, quality, err)
			}
		}
	}
}
