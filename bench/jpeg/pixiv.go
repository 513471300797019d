//go:build pixiv

package jpeg

// go-libjpeg, which other projects use, binds libjpeg-turbo's libjpeg interface and needs its
// header (apt-get install libjpeg-dev). New compilers print warnings about its cgo sources.

import (
	"bytes"
	"image"

	"github.com/pixiv/go-libjpeg/jpeg"
	"github.com/pixiv/go-libjpeg/rgb"
)

// withPixiv adds the operations that go-libjpeg supports too, with TurboJPEG's choice of
// transforms: the fast one to encode below a quality of 96, the exact one to decode.
func withPixiv(subjects []subject, cfg Config, in inputs) {
	bounds := image.Rect(0, 0, cfg.Size.W, cfg.Size.H)
	options := &jpeg.EncoderOptions{Quality: cfg.Quality, DCTMethod: jpeg.DCTIFast}
	if cfg.Quality >= 96 {
		options.DCTMethod = jpeg.DCTISlow
	}
	var file bytes.Buffer
	encode := func(m image.Image) error {
		file.Reset()
		return jpeg.Encode(&file, m, options)
	}
	planes := jpeg.NewYCbCrAligned(bounds, image.YCbCrSubsampleRatio422)
	decode := func(src []byte) func() error {
		return func() error {
			_, err := jpeg.DecodeIntoRGB(bytes.NewReader(src), &jpeg.DecoderOptions{DCTMethod: jpeg.DCTISlow})
			return err
		}
	}
	run := map[string]func() error{
		"encode YUYV to 4:2:2": func() error {
			splitYUYV(planes, in.yuyv)
			return encode(planes)
		},
		"encode RGB to 4:2:0": func() error {
			return encode(&rgb.Image{Pix: in.rgb, Stride: 3 * cfg.Size.W, Rect: bounds})
		},
		"decode 4:2:2 to RGB": decode(in.j422),
		"decode 4:2:0 to RGB": decode(in.j420),
	}
	for i := range subjects {
		subjects[i].pixiv = run[subjects[i].name]
	}
}

// splitYUYV converts a camera's levels, 16 to 235, to planes of JPEG's levels, 0 to 255.
func splitYUYV(dst *image.YCbCr, src []byte) {
	w := dst.Rect.Dx()
	for row := range dst.Rect.Dy() {
		in := src[2*w*row : 2*w*(row+1)]
		y := dst.Y[row*dst.YStride:][:w]
		cb := dst.Cb[row*dst.CStride:][:w/2]
		cr := dst.Cr[row*dst.CStride:][:w/2]
		for i := range cb {
			y[2*i], y[2*i+1] = fullLuma[in[4*i]], fullLuma[in[4*i+2]]
			cb[i], cr[i] = fullChroma[in[4*i+1]], fullChroma[in[4*i+3]]
		}
	}
}

// fullLuma and fullChroma are package jpeg's own tables of levels.
var fullLuma, fullChroma = func() (luma, chroma [256]byte) {
	for v := range 256 {
		luma[v] = byte(((min(max(v, 16), 235)-16)*149 + 63) >> 7)
		chroma[v] = byte(((min(max(v, 16), 240)-16)*146 + 63) >> 7)
	}
	return luma, chroma
}()
