//go:build cgo

package jpeg

/*
#cgo LDFLAGS: -lturbojpeg
#cgo noescape edgert_encode
#cgo nocallback edgert_encode
#cgo noescape edgert_decode
#cgo nocallback edgert_decode
#cgo noescape edgert_size
#cgo nocallback edgert_size
#cgo noescape edgert_renew
#cgo nocallback edgert_renew

#if defined(__has_include)
#if !__has_include(<turbojpeg.h>)
#error "turbojpeg.h is missing: apt-get install libturbojpeg0-dev, or build with CGO_ENABLED=0"
#endif
#endif
#include <turbojpeg.h>

enum { edgert_corrupt = -1, edgert_badsize = -2, edgert_toolarge = -3, edgert_badformat = -4 };

// Returns the bytes written, or edgert_*. The library believes that a buffer it
// may not grow has tjBufSize bytes, so that is checked here.
static long edgert_encode(tjhandle t, const unsigned char *pix, int w, int h, int quality, unsigned char *dst, unsigned long cap) {
	unsigned long n = cap;
	if (cap < tjBufSize(w, h, TJSAMP_420)) return edgert_badsize;
	if (tjCompress2(t, pix, w, 0, h, TJPF_RGB, &dst, &n, TJSAMP_420, quality, TJFLAG_NOREALLOC) != 0) return edgert_corrupt;
	return (long)n;
}

// Returns width << 32 | height, or edgert_*.
static long long edgert_size(tjhandle t, const unsigned char *src, unsigned long n, long long max_pixels) {
	int w = 0, h = 0, subsamp = 0, space = 0;
	if (tjDecompressHeader3(t, src, n, &w, &h, &subsamp, &space) != 0) return edgert_corrupt;
	if (w <= 0 || h <= 0) return edgert_corrupt;
	if ((long long)w * h > max_pixels) return edgert_toolarge;
	if (space != TJCS_YCbCr && space != TJCS_RGB && space != TJCS_GRAY) return edgert_badformat;
	return (long long)w << 32 | h;
}

// After an error in a header libjpeg-turbo 2.1 stays in the middle of it and
// would read the next picture as its continuation.
static int edgert_renew(tjhandle *t) {
	tjhandle fresh = tjInitDecompress();
	if (fresh == NULL) return edgert_corrupt;
	tjDestroy(*t);
	*t = fresh;
	return 0;
}

// The picture's own size is compared before anything is decoded, so that the
// library never scales and dst is written to w * h * 3 bytes at most.
static int edgert_decode(tjhandle t, const unsigned char *src, unsigned long n, unsigned char *dst, int w, int h, long long max_pixels) {
	long long size = edgert_size(t, src, n, max_pixels);
	if (size < 0) return (int)size;
	if (size != ((long long)w << 32 | h)) return edgert_badsize;
	if (tjDecompress2(t, src, n, dst, w, 0, h, TJPF_RGB, TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS) != 0) return edgert_corrupt;
	return 0;
}
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Encoder compresses pictures at one quality.
//
// Owner: one goroutine at a time.
type Encoder struct {
	handle  C.tjhandle
	quality C.int
}

// NewEncoder returns an encoder of the given quality, 1 to 100. Close frees it.
func NewEncoder(quality int) (*Encoder, error) {
	if quality < 1 || quality > 100 {
		return nil, fmt.Errorf("%w, got %d", ErrQuality, quality)
	}
	handle := C.tjInitCompress()
	if handle == nil {
		return nil, fmt.Errorf("jpeg: no compressor: %s", C.GoString(C.tjGetErrorStr2(nil)))
	}
	return &Encoder{handle: handle, quality: C.int(quality)}, nil
}

// EncodeRGB compresses the w x h picture pix into dst, which must have
// MaxSize(w, h) bytes, and returns how many it used. It fails with ErrSize when
// pix is not w*h*3 bytes or dst is too short, and with ErrTooLarge.
//
//rt:noalloc
func (e *Encoder) EncodeRGB(dst, pix []byte, w, h int) (n int, err error) {
	if e.handle == nil {
		return 0, ErrClosed
	}
	if !pictureOK(w, h) {
		return 0, ErrTooLarge
	}
	if len(pix) != w*h*3 || len(dst) < MaxSize(w, h) {
		return 0, ErrSize
	}
	r := C.edgert_encode(e.handle, (*C.uchar)(unsafe.SliceData(pix)), C.int(w), C.int(h), e.quality,
		(*C.uchar)(unsafe.SliceData(dst)), C.ulong(len(dst)))
	if r < 0 {
		return 0, sentinel(int(r))
	}
	return int(r), nil
}

// Close frees the encoder.
func (e *Encoder) Close() error {
	if e.handle == nil {
		return ErrClosed
	}
	C.tjDestroy(e.handle)
	e.handle = nil
	return nil
}

// Decoder decompresses pictures.
//
// Owner: one goroutine at a time.
type Decoder struct {
	handle C.tjhandle
	failed bool // the last picture did; the handle is renewed before the next
}

// NewDecoder returns a decoder. Close frees it.
func NewDecoder() (*Decoder, error) {
	handle := C.tjInitDecompress()
	if handle == nil {
		return nil, fmt.Errorf("jpeg: no decompressor: %s", C.GoString(C.tjGetErrorStr2(nil)))
	}
	return &Decoder{handle: handle}, nil
}

// Size returns the size that the header of src announces, up to MaxPixels.
// Errors: ErrCorrupt, ErrTooLarge, ErrFormat.
//
//rt:noalloc
func (d *Decoder) Size(src []byte) (w, h int, err error) {
	if err := d.ready(src); err != nil {
		return 0, 0, err
	}
	r := C.edgert_size(d.handle, (*C.uchar)(unsafe.SliceData(src)), C.ulong(len(src)), MaxPixels)
	if r < 0 {
		d.failed = true
		return 0, 0, sentinel(int(r))
	}
	return int(r >> 32), int(r & 0xffffffff), nil
}

// DecodeRGB decompresses src, which must be a w x h picture, into the first
// w*h*3 bytes of dst. After an error dst holds anything. A gray picture becomes
// equal channels.
//
// Errors: ErrSize when the picture has another size or dst is too short;
// ErrTooLarge; ErrFormat for CMYK; ErrCorrupt for anything the library so much as
// warns about, since half a picture is worse for a policy than none.
//
//rt:noalloc
func (d *Decoder) DecodeRGB(dst, src []byte, w, h int) error {
	if err := d.ready(src); err != nil {
		return err
	}
	if !pictureOK(w, h) || !scansOK(src) {
		return ErrTooLarge
	}
	if len(dst) < w*h*3 {
		return ErrSize
	}
	r := C.edgert_decode(d.handle, (*C.uchar)(unsafe.SliceData(src)), C.ulong(len(src)),
		(*C.uchar)(unsafe.SliceData(dst)), C.int(w), C.int(h), MaxPixels)
	if r < 0 {
		d.failed = true
		return sentinel(int(r))
	}
	return nil
}

// ready prepares for the next picture.
//
//rt:noalloc
func (d *Decoder) ready(src []byte) error {
	if d.handle == nil {
		return ErrClosed
	}
	if len(src) == 0 {
		return ErrCorrupt
	}
	if d.failed {
		if r := C.edgert_renew(&d.handle); r < 0 {
			return sentinel(int(r))
		}
		d.failed = false
	}
	return nil
}

// Explain wraps what DecodeRGB(dst, src, w, h) returned with got, wanted and the
// library's own words. Call it before the next picture.
func (d *Decoder) Explain(err error, src []byte, w, h int) error {
	detail := ""
	if d.handle != nil {
		detail = C.GoString(C.tjGetErrorStr2(d.handle))
	}
	gotW, gotH, _ := d.Size(src)
	return explain(err, gotW, gotH, w, h, len(src), detail)
}

// Close frees the decoder.
func (d *Decoder) Close() error {
	if d.handle == nil {
		return ErrClosed
	}
	C.tjDestroy(d.handle)
	d.handle = nil
	return nil
}

// sentinel maps a return value of the C functions.
//
//rt:noalloc
func sentinel(code int) error {
	switch code {
	case C.edgert_badsize:
		return ErrSize
	case C.edgert_toolarge:
		return ErrTooLarge
	case C.edgert_badformat:
		return ErrFormat
	}
	return ErrCorrupt
}
