//go:build cgo

package jpeg

/*
#cgo CFLAGS: -O3
#cgo LDFLAGS: -lturbojpeg
#cgo noescape edgert_encode
#cgo nocallback edgert_encode
#cgo noescape edgert_encode_planes
#cgo nocallback edgert_encode_planes
#cgo noescape edgert_split_yuyv
#cgo nocallback edgert_split_yuyv
#cgo noescape edgert_split_nv12
#cgo nocallback edgert_split_nv12
#cgo noescape edgert_split_gray
#cgo nocallback edgert_split_gray

#if defined(__has_include)
#if !__has_include(<turbojpeg.h>)
#error "turbojpeg.h is missing: apt-get install libturbojpeg0-dev, or build with CGO_ENABLED=0"
#endif
#endif
#include "turbo.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Encoder compresses pictures.
//
// Owner: one goroutine at a time.
type Encoder struct {
	handle  C.tjhandle
	quality int
	chroma  Chroma
	planes  planes
}

// NewEncoder returns an encoder of the given quality, 1 to 100. Close frees it.
func NewEncoder(quality int, chroma Chroma) (*Encoder, error) {
	switch {
	case quality < 1 || quality > 100:
		return nil, fmt.Errorf("%w, got %d", errQuality, quality)
	case chroma > Chroma444:
		return nil, fmt.Errorf("%w, got %v", errChroma, chroma)
	}
	handle := C.tjInitCompress()
	if handle == nil {
		return nil, fmt.Errorf("jpeg: no compressor: %s", C.GoString(C.tjGetErrorStr2(nil)))
	}
	return &Encoder{handle: handle, quality: quality, chroma: chroma}, nil
}

// EncodeRGB compresses the w x h picture pix of packed RGB; see Encode.
//
//rt:noalloc
func (e *Encoder) EncodeRGB(dst, pix []byte, w, h int) (n int, err error) {
	if pictureOK(w, h) && len(pix) != w*h*3 {
		return 0, ErrSize
	}
	return e.Encode(dst, &Image{
		W:      w,
		H:      h,
		Layout: RGB,
		Pix:    pix,
	})
}

// Reserve allocates the memory that Encode needs for pictures like m. It does not read m.Pix.
func (e *Encoder) Reserve(m *Image) {
	if pictureOK(m.W, m.H) && m.Layout != RGB {
		e.planes.reserve(m, e.chromaOf(m.Layout))
	}
}

// Encode compresses m into dst of MaxSize(m.W, m.H, chroma) bytes and returns the number of bytes
// used. It allocates only for pictures larger than any before. Errors: ErrSize when m.Pix or dst is
// too short; ErrTooLarge.
//
//rt:noalloc
func (e *Encoder) Encode(dst []byte, m *Image) (n int, err error) {
	if e.handle == nil {
		return 0, errClosed
	}
	if !pictureOK(m.W, m.H) {
		return 0, ErrTooLarge
	}
	chroma := e.chromaOf(m.Layout)
	if want := m.bytes(); want == 0 || len(m.Pix) < want || len(dst) < MaxSize(m.W, m.H, chroma) {
		return 0, ErrSize
	}
	out, room := (*C.uchar)(unsafe.SliceData(dst)), C.ulong(len(dst))
	w := C.int(m.W)
	h := C.int(m.H)
	quality := C.int(e.quality)
	var r C.long
	switch m.Layout {
	case RGB:
		r = C.edgert_encode(e.handle, (*C.uchar)(unsafe.SliceData(m.Pix)), w, h, C.int(m.stride()), C.TJPF_RGB,
			subsamp(chroma), quality, out, room)
	default:
		y, cw, ch := e.planes.of(m, chroma)
		r = C.edgert_encode_planes(e.handle, y, w, h, cw, ch, subsamp(chroma), quality, out, room)
	}
	if r < 0 {
		return 0, sentinel(int(r))
	}
	return int(r), nil
}

//rt:noalloc
func (e *Encoder) chromaOf(l Layout) Chroma {
	switch {
	case l == YUYV && e.chroma != Chroma420: // the picture has no finer chroma than 4:2:2
		return Chroma422
	case l == RGB && e.chroma != ChromaOfPicture:
		return e.chroma
	}
	return Chroma420
}

// Close frees the encoder.
func (e *Encoder) Close() error {
	if e.handle == nil {
		return errClosed
	}
	C.tjDestroy(e.handle)
	e.handle = nil
	return nil
}

// planes is memory for one picture's Y, Cb and Cr.
type planes struct{ room []byte }

// sizes returns the number of pixels of m's luma, and the sides of its chroma.
//
//rt:noalloc
func sizes(m *Image, chroma Chroma) (luma, cw, ch int) {
	cw, ch = (m.W+1)/2, (m.H+1)/2
	if chroma == Chroma422 {
		ch = m.H
	}
	return m.W * m.H, cw, ch
}

//rt:noalloc
func (p *planes) reserve(m *Image, chroma Chroma) {
	luma, cw, ch := sizes(m, chroma)
	if n := luma + 2*cw*ch; len(p.room) < n {
		p.grow(n)
	}
}

// of(m, chroma) converts the picture m to planes. It returns the address of Y, which Cb and Cr follow, and the width
// and height of Cb and Cr.
//
//rt:noalloc
func (p *planes) of(m *Image, chroma Chroma) (y *C.uchar, cw, ch C.int) {
	_, wide, high := sizes(m, chroma)
	cw, ch = C.int(wide), C.int(high)
	src := unsafe.SliceData(m.Pix)
	p.reserve(m, chroma)
	room := (*C.uint8_t)(unsafe.SliceData(p.room))
	full := C.int(0)
	if m.Full {
		full = 1
	}
	w := C.int(m.W)
	h := C.int(m.H)
	stride := C.int(m.stride())
	switch m.Layout {
	case YUYV:
		half := C.int(1)
		if chroma == Chroma422 {
			half = 0
		}
		C.edgert_split_yuyv(room, (*C.uint8_t)(src), w, h, stride, half, full)
	case Gray:
		C.edgert_split_gray(room, (*C.uint8_t)(src), w, h, stride)
	default:
		C.edgert_split_nv12(room, (*C.uint8_t)(src), w, h, stride, full)
	}
	return (*C.uchar)(unsafe.SliceData(p.room)), cw, ch
}

//go:noinline
func (p *planes) grow(n int) { p.room = make([]byte, n) }

//rt:noalloc
func subsamp(c Chroma) C.int {
	switch c {
	case Chroma422:
		return C.TJSAMP_422
	case Chroma444:
		return C.TJSAMP_444
	}
	return C.TJSAMP_420
}

//rt:noalloc
func sentinel(code int) error {
	switch code {
	case C.edgert_badsize:
		return ErrSize
	case C.edgert_toolarge:
		return ErrTooLarge
	case C.edgert_badformat:
		return errFormat
	}
	return ErrCorrupt
}
