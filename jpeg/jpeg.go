// Package jpeg turns camera pictures into JPEG and back with libjpeg-turbo, in memory that the
// caller owns, and reads a JPEG's markers without decoding it.
//
// An Image is a camera's picture: YUV, gray or RGB. The Encoder does not convert YUV to RGB first. An Encoder or
// Decoder allocates nothing per picture and belongs to one goroutine at a time; its destination may be C memory, such
// as a tensor of the inference runtime.
//
// A Decoder is safe with hostile bytes: it writes a picture of exactly the requested size or
// returns an error. Errors are bare sentinels, because it runs once per picture; Decoder.Explain
// adds the found and the expected value. Inspect is pure Go; without cgo the constructors return
// ErrNoLibrary.
package jpeg

import (
	"errors"
	"fmt"
)

// Errors of this package, for errors.Is.
var (
	ErrNoLibrary = errors.New("jpeg: built without libjpeg-turbo: install libturbojpeg0-dev and a C compiler, " +
		"build with CGO_ENABLED=1")
	errQuality     = errors.New("jpeg: quality out of range, want 1 to 100")
	errChroma      = errors.New("jpeg: chroma that cannot be encoded, want 4:2:0, 4:2:2 or 4:4:4")
	ErrCorrupt     = errors.New("jpeg: corrupt or truncated picture")
	errFormat      = errors.New("jpeg: not an RGB, YCbCr or gray picture of 8 bits in Huffman coding")
	ErrProgressive = errors.New("jpeg: progressive picture, want baseline")
	ErrSize        = errors.New("jpeg: wrong size")
	ErrTooLarge    = errors.New("jpeg: picture too large")
	errClosed      = errors.New("jpeg: used after Close")
)

const (
	// MaxPixels is the number of pixels in the largest picture, such as 4096 x 4096: 48 MiB of RGB.
	MaxPixels = 1 << 24

	// MaxFitPixels and MaxFitSide are the bounds of a picture that is to be scaled; 2560 x 1600 is possible. Such a
	// picture takes 12 MiB in each decoder, and a few times the work of an ordinary picture.
	MaxFitPixels = 1 << 22
	MaxFitSide   = 8192

	// maxSide is the longest side that a JPEG header can announce.
	maxSide = 65535

	// maxScans is the largest number of scans, one for each component. A decoder passes over the whole picture for each
	// scan.
	maxScans = 3

	// maxStray is the largest number of stray bytes before a marker. Logitech's webcams send 1 to
	// 9.
	maxStray = 64
)

// Layout is the layout of Image.Pix.
type Layout uint8

// The layouts that can be encoded and converted.
const (
	RGB  Layout = iota + 1 // 3 bytes per pixel
	Gray                   // 1 byte per pixel, 0 black to 255 white
	YUYV                   // Y0 Cb Y1 Cr for two pixels: 4:2:2, an even width
	NV12                   // all Y, then Cb and Cr in turn for blocks of 2 x 2: 4:2:0
)

// Image is an uncompressed picture, rows top to bottom.
type Image struct {
	W, H   int
	Layout Layout
	Stride int // bytes from one row to the next; 0: no padding
	// Full reports that YUV levels span 0 to 255, as in JPEG itself. Most cameras deliver levels from 16 to 235 (ITU-R
	// 601), which the encoder expands to 0 to 255.
	Full bool
	Pix  []byte
}

// bytes returns the length that Pix must have at least; 0: the image is invalid.
//
//rt:noalloc
func (m *Image) bytes() int {
	row := m.row()
	rows := m.H
	stride := m.stride()
	if m.Layout == NV12 {
		rows += (m.H + 1) / 2
	}
	if row == 0 || !pictureOK(m.W, m.H) || stride < row || stride > 4*maxSide || m.Layout == YUYV && m.W%2 != 0 {
		return 0
	}
	return stride*(rows-1) + row
}

//rt:noalloc
func (m *Image) stride() int {
	if m.Stride != 0 {
		return m.Stride
	}
	return m.row()
}

// row returns the bytes of a row of the first plane, 0 for an unknown layout.
//
//rt:noalloc
func (m *Image) row() int {
	switch m.Layout {
	case RGB:
		return 3 * m.W
	case Gray:
		return m.W
	case YUYV:
		return 2 * m.W
	case NV12:
		return (m.W + 1) &^ 1
	}
	return 0
}

// Chroma is the chroma sampling of a JPEG.
type Chroma uint8

// The chroma samplings. The zero value keeps the picture's sampling: 4:2:2 for YUYV, and 4:2:0 for the other layouts,
// including RGB, as OpenCV does.
const (
	ChromaOfPicture Chroma = iota
	Chroma420
	Chroma422
	Chroma444
	ChromaGray  // result of Inspect only
	ChromaOther // result of Inspect only
)

func (c Chroma) String() string {
	return [...]string{"as the picture", "4:2:0", "4:2:2", "4:4:4", "gray", "other"}[min(c, ChromaOther)]
}

// MaxSize returns the largest number of bytes that a w x h picture needs as JPEG with the given chroma, by the
// library's formula. ChromaOfPicture counts as 4:2:2.
//
// Source: turbojpeg.c, tjBufSize.
//
//rt:noalloc
func MaxSize(w, h int, c Chroma) int {
	switch c {
	case Chroma420:
		return (w+15)&^15*((h+15)&^15)*3 + 2048
	case Chroma444:
		return (w+7)&^7*((h+7)&^7)*6 + 2048
	}
	return (w+15)&^15*((h+7)&^7)*4 + 2048
}

// MaxShrink is the largest factor by which the decoder can shrink a picture.
const MaxShrink = 8

// Shrink returns the factor 1, 2, 4 or 8 by which the decoder can shrink a picture of fromW x fromH to w x h (rounded
// up); 0: there is no such factor. The parameter most is the largest permitted factor.
//
//rt:noalloc
func Shrink(fromW, fromH, w, h, most int) int {
	for k := 1; k <= min(most, MaxShrink); k *= 2 {
		if (fromW+k-1)/k == w && (fromH+k-1)/k == h {
			return k
		}
	}
	return 0
}

// reduction returns the factor by which the decoder shrinks a picture before it is scaled to w x h. The shrunk picture
// is still at least twice as wide and high as w x h. So neither the missing frequencies nor the colours of 4:2:2, which
// lose half of their columns, are visible in the result.
//
//rt:noalloc
func reduction(fromW, fromH, w, h int) (k int) {
	for k = 1; k < MaxShrink && (fromW+2*k-1)/(2*k) >= 2*w && (fromH+2*k-1)/(2*k) >= 2*h; {
		k *= 2
	}
	return k
}

// CanFit reports whether DecodeFit can scale a JPEG of w x h pixels.
//
//rt:noalloc
func CanFit(w, h int) bool {
	return w > 0 && h > 0 && max(w, h) <= MaxFitSide && w*h <= MaxFitPixels
}

//rt:noalloc
func pictureOK(w, h int) bool {
	return w > 0 && h > 0 && w <= maxSide && h <= maxSide && int64(w)*int64(h) <= MaxPixels
}

// explain wraps err, a decoder's sentinel, and adds the found and the expected value.
func explain(err error, src []byte, w, h int, detail string) error {
	switch p, seen := Inspect(src); {
	case err == nil:
		return nil
	case errors.Is(err, ErrSize):
		return fmt.Errorf("%w: got %dx%d, want %dx%d", err, p.W, p.H, w, h)
	case errors.Is(err, ErrTooLarge):
		return fmt.Errorf("%w: got %dx%d in %d bytes, want at most %d pixels and %d scans", err, p.W, p.H, len(src),
			MaxPixels, maxScans)
	case errors.Is(err, ErrCorrupt) && seen != nil:
		return fmt.Errorf("%w: %d bytes, of which %d make sense, and which begin with %q", err, len(src), p.End,
			src[:min(4, len(src))])
	case detail != "":
		return fmt.Errorf("%w: %d bytes: %s", err, len(src), detail)
	}
	return fmt.Errorf("%w: %d bytes", err, len(src))
}
