// Package jpeg turns camera pictures into JPEG and back with libjpeg-turbo, in
// memory that the caller owns.
//
// A picture is 8-bit RGB, height x width x 3, rows top to bottom, no padding; it
// is compressed with 4:2:0 chroma, like OpenCV does. An Encoder or Decoder
// allocates nothing per picture and belongs to one goroutine at a time; its
// destination may be C memory, such as a tensor of the inference runtime.
//
// A Decoder takes hostile bytes: it writes only a picture of exactly the size it
// was told, and refuses everything else. Its errors are bare sentinels, because
// it runs once per picture; Decoder.Explain says got and wanted.
//
// Without cgo the constructors return ErrNoLibrary, and everything else that
// needs no pictures still builds.
package jpeg

import (
	"bytes"
	"errors"
	"fmt"
)

// Errors of this package, for errors.Is.
var (
	ErrNoLibrary = errors.New("jpeg: built without libjpeg-turbo: install libturbojpeg0-dev and a C compiler, build with CGO_ENABLED=1")
	ErrQuality   = errors.New("jpeg: quality out of range, want 1 to 100")
	ErrCorrupt   = errors.New("jpeg: corrupt or truncated picture")
	ErrFormat    = errors.New("jpeg: not an RGB, YCbCr or gray picture")
	ErrSize      = errors.New("jpeg: wrong size")
	ErrTooLarge  = errors.New("jpeg: picture too large")
	ErrClosed    = errors.New("jpeg: used after Close")
)

const (
	// MaxPixels is the largest picture that is encoded or decoded, 4096 x 4096:
	// 48 MiB of RGB, and for a progressive picture twice that inside the library.
	MaxPixels = 1 << 24

	// maxSide is the longest side that a JPEG header can announce.
	maxSide = 65535

	// maxScans is the most scans a picture may have. Baseline has 1, progressive
	// encoders write about 10; each costs a pass over the whole picture, so a
	// small file with hundreds would hold the decoder for seconds.
	maxScans = 32
)

// MaxSize returns the bytes that EncodeRGB may need for a w x h picture: what the
// library asks for in 4:2:0.
//
// Source: turbojpeg.c, tjBufSize.
func MaxSize(w, h int) int {
	return (w+15)&^15*((h+15)&^15)*3 + 2048
}

// pictureOK reports whether w x h is a picture this package handles.
//
//rt:noalloc
func pictureOK(w, h int) bool {
	return w > 0 && h > 0 && w <= maxSide && h <= maxSide && int64(w)*int64(h) <= MaxPixels
}

// scansOK reports whether src has at most maxScans scan headers. Entropy-coded
// data cannot hold FF DA, so nothing is counted there by accident.
//
//rt:noalloc
func scansOK(src []byte) bool {
	scans := 0
	for {
		i := bytes.IndexByte(src, 0xff)
		if i < 0 || i+1 >= len(src) {
			return true
		}
		if src[i+1] == 0xda {
			if scans++; scans > maxScans {
				return false
			}
		}
		src = src[i+1:]
	}
}

// explain wraps a decoder's sentinel with what the picture is and should be.
func explain(err error, gotW, gotH, w, h, size int, detail string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrSize):
		return fmt.Errorf("%w: got %dx%d, want %dx%d", err, gotW, gotH, w, h)
	case errors.Is(err, ErrTooLarge):
		return fmt.Errorf("%w: got %dx%d in %d bytes, want at most %d pixels and %d scans", err, gotW, gotH, size, MaxPixels, maxScans)
	case detail != "":
		return fmt.Errorf("%w: %d bytes: %s", err, size, detail)
	}
	return fmt.Errorf("%w: %d bytes", err, size)
}
