//go:build cgo

package jpeg

/*
#cgo noescape edgert_decode
#cgo nocallback edgert_decode
#cgo noescape edgert_renew
#cgo nocallback edgert_renew
#cgo noescape edgert_rgb_planes
#cgo nocallback edgert_rgb_planes
#include "turbo.h"
*/
import "C"

import (
	"bytes"
	"fmt"
	"unsafe"
)

// Decoder decompresses pictures.
//
// Owner: one goroutine at a time.
type Decoder struct {
	handle  C.tjhandle
	failed  bool // the last picture failed; ready makes a new handle
	warned  bool // the last picture had stray bytes
	planes  planes
	fit     *Scaler          // scales pictures of any size; nil before ReserveFit
	room    []byte           // the picture before scaling
	checked []byte           // Check's picture
	message [maxMessage]byte // the library's message for the last failure, ended by a zero
}

const maxMessage = 200 // JMSG_LENGTH_MAX of libjpeg

// NewDecoder returns a decoder. Close frees it.
func NewDecoder() (*Decoder, error) {
	handle := C.tjInitDecompress()
	if handle == nil {
		return nil, fmt.Errorf("jpeg: no decompressor: %s", C.GoString(C.tjGetErrorStr2(nil)))
	}
	return &Decoder{handle: handle}, nil
}

// DecodeRGB decompresses src, which must be a baseline w x h picture, into the first w*h*3 bytes of dst. After an error
// the content of dst is undefined. A gray picture gets three equal channels. For a picture without Huffman tables the
// decoder uses the standard tables. It skips a few stray bytes before a marker; Warned then returns true.
//
// Errors: ErrSize when the picture has another size or dst is too short; ErrTooLarge; ErrProgressive; errFormat for
// CMYK; ErrCorrupt for all other damage, even where the library only warns: half a picture is worse for a policy than
// no picture.
//
//rt:noalloc
func (d *Decoder) DecodeRGB(dst, src []byte, w, h int) error {
	return d.DecodeScaled(dst, src, w, h, 1)
}

// DecodeScaled does the same as DecodeRGB, but src may be larger: by the factor that Shrink returns for the size of
// src, for w and h, and for the limit most. The library leaves out the highest frequencies. This is faster than
// scaling, but gives a slightly different picture, so a caller may use it only where the policy allows it.
//
//rt:noalloc
func (d *Decoder) DecodeScaled(dst, src []byte, w, h, most int) error {
	p, err := d.inspect(dst, src, w, h)
	if err != nil {
		return err
	}
	shrink := Shrink(p.W, p.H, w, h, most)
	if shrink == 0 {
		return ErrSize
	}
	return d.decode(dst, src[:p.End], w, h, shrink)
}

// ReserveFit allocates the memory of DecodeFit and Fit, for results with sides of at most maxTo.
func (d *Decoder) ReserveFit(maxTo int) {
	d.fit, d.room = NewScaler(MaxFitSide, maxTo), make([]byte, 3*MaxFitPixels)
}

// DecodeFit does the same as DecodeRGB for a picture of any size, and scales it to w x h by a Scaler. It returns the
// picture's original size. The library first shrinks a picture that is at least four times as large as needed (see
// reduction), which hardly changes the result. Call ReserveFit before.
//
// Errors: the errors of DecodeRGB; ErrTooLarge also for a picture beyond MaxFitPixels or MaxFitSide.
//
//rt:noalloc
func (d *Decoder) DecodeFit(dst, src []byte, w, h int) (fromW, fromH int, err error) {
	p, err := d.inspect(dst, src, w, h)
	if err != nil {
		return p.W, p.H, err
	}
	if p.W == w && p.H == h {
		return w, h, d.decode(dst, src[:p.End], w, h, 1)
	}
	if !CanFit(p.W, p.H) {
		return p.W, p.H, ErrTooLarge
	}
	k := reduction(p.W, p.H, w, h)
	kw, kh := (p.W+k-1)/k, (p.H+k-1)/k
	if err := d.decode(d.room, src[:p.End], kw, kh, k); err != nil {
		return p.W, p.H, err
	}
	return p.W, p.H, d.fit.Scale(dst, w, h, d.room, kw, kh)
}

// Fit does the same as Scaler.Scale. Call ReserveFit before.
//
//rt:noalloc
func (d *Decoder) Fit(dst []byte, w, h int, src []byte, fromW, fromH int) error {
	return d.fit.Scale(dst, w, h, src, fromW, fromH)
}

// inspect refuses a picture that cannot be decoded, and a dst that is too short for w x h pixels.
//
//rt:noalloc
func (d *Decoder) inspect(dst, src []byte, w, h int) (p Picture, err error) {
	d.warned = false
	if err := d.ready(); err != nil {
		return p, err
	}
	if !pictureOK(w, h) {
		return p, ErrTooLarge
	}
	p, err = Inspect(src)
	switch {
	case err != nil:
		return p, err
	case p.Progressive:
		return p, ErrProgressive
	case len(dst) < w*h*3:
		return p, ErrSize
	}
	return p, nil
}

// decode decompresses an inspected picture, reduced by shrink to w x h, into dst.
//
//rt:noalloc
func (d *Decoder) decode(dst, src []byte, w, h, shrink int) error {
	r := C.edgert_decode(d.handle, (*C.uchar)(unsafe.SliceData(src)), C.ulong(len(src)),
		(*C.uchar)(unsafe.SliceData(dst)), C.int(w), C.int(h), C.int(shrink), MaxPixels,
		maxStray, (*C.char)(unsafe.Pointer(&d.message)), maxMessage)
	if r < 0 {
		d.failed = true
		return sentinel(int(r))
	}
	d.warned = r == C.edgert_warned
	return nil
}

// Check returns the error that DecodeRGB would return for a picture of the expected size, or nil if DecodeRGB would
// decode it. Check reads every coded bit, but computes only an eighth of the width and height. It allocates only for
// pictures larger than any before.
//
//rt:noalloc
func (d *Decoder) Check(src []byte) error {
	d.warned = false
	if err := d.ready(); err != nil {
		return err
	}
	p, err := Inspect(src)
	switch {
	case err != nil:
		return err
	case p.Progressive:
		return ErrProgressive
	}
	const shrink = 8
	w, h := (p.W+shrink-1)/shrink, (p.H+shrink-1)/shrink
	if len(d.checked) < 3*w*h {
		d.growChecked(3 * w * h)
	}
	return d.decode(d.checked, src[:p.End], w, h, shrink)
}

//go:noinline
func (d *Decoder) growChecked(n int) { d.checked = make([]byte, n) }

// Warned reports whether the last picture was decoded, but had stray bytes in it.
//
//rt:noalloc
func (d *Decoder) Warned() bool { return d.warned }

// Reserve allocates the memory that ConvertRGB needs for pictures like m. It does not read m.Pix.
func (d *Decoder) Reserve(m *Image) {
	if pictureOK(m.W, m.H) && m.Layout != RGB && m.Layout != Gray {
		d.planes.reserve(m, chromaIn(m.Layout))
	}
}

//rt:noalloc
func chromaIn(l Layout) Chroma {
	if l == YUYV {
		return Chroma422
	}
	return Chroma420
}

// ConvertRGB turns an uncompressed picture into RGB in the first m.W*m.H*3 bytes of dst. It allocates only for a
// picture that is larger than all previous ones and all given to Reserve. Errors: ErrSize when m.Pix or dst is too
// short; ErrTooLarge.
//
//rt:noalloc
func (d *Decoder) ConvertRGB(dst []byte, m *Image) error {
	if err := d.ready(); err != nil {
		return err
	}
	if !pictureOK(m.W, m.H) {
		return ErrTooLarge
	}
	if want := m.bytes(); want == 0 || len(m.Pix) < want || len(dst) < 3*m.W*m.H {
		return ErrSize
	}
	switch m.Layout {
	case RGB:
		for y := range m.H {
			copy(dst[3*m.W*y:3*m.W*(y+1)], m.Pix[m.stride()*y:])
		}
		return nil
	case Gray:
		for y := range m.H {
			row := dst[3*m.W*y : 3*m.W*(y+1)]
			for x, v := range m.Pix[m.stride()*y : m.stride()*y+m.W] {
				row[3*x] = v
				row[3*x+1] = v
				row[3*x+2] = v
			}
		}
		return nil
	}
	chroma := chromaIn(m.Layout)
	y, cw, ch := d.planes.of(m, chroma)
	if r := C.edgert_rgb_planes(d.handle, y, C.int(m.W), C.int(m.H), cw, ch, subsamp(chroma),
		(*C.uchar)(unsafe.SliceData(dst))); r < 0 {
		d.failed = true
		return sentinel(int(r))
	}
	return nil
}

// ready prepares for the next picture.
//
//rt:noalloc
func (d *Decoder) ready() error {
	if d.handle == nil {
		return errClosed
	}
	if d.failed {
		if r := C.edgert_renew(&d.handle); r < 0 {
			return sentinel(int(r))
		}
		d.failed = false
	}
	return nil
}

// Explain adds the found and the expected size and the library's message to the last picture's
// error. Call it before the next picture.
func (d *Decoder) Explain(err error, src []byte, w, h int) error {
	var detail []byte
	if d.handle != nil && d.failed {
		detail, _, _ = bytes.Cut(d.message[:], []byte{0})
	}
	return explain(err, src, w, h, string(detail))
}

// Close frees the decoder.
func (d *Decoder) Close() error {
	if d.handle == nil {
		return errClosed
	}
	C.tjDestroy(d.handle)
	d.handle = nil
	return nil
}
