package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// dtype is the element type of a tensor, an index of dtypes. A policy's numbers are float32, but a message may have
// them as float64. Objects, text, dates, complex numbers and big-endian data are refused.
type dtype uint8

const (
	float32Type dtype = iota + 1
	float64Type
)

// dtypes holds the element types that a message may have, by numpy's dtype.str.
var dtypes = [...]struct {
	name string
	size int // bytes
}{
	{"", 0}, {"<f4", 4}, {"<f8", 8}, {"<f2", 2}, {"|i1", 1}, {"|u1", 1}, {"<i2", 2}, {"<u2", 2},
	{"<i4", 4}, {"<u4", 4}, {"<i8", 8}, {"<u8", 8}, {"|b1", 1},
}

const dtypeNames = "<f4, <f8, <f2, |i1, |u1, <i2, <u2, <i4, <u4, <i8, <u8 or |b1"

//rt:noalloc
func dtypeOf(name []byte) dtype {
	for d := range dtypes[1:] {
		if string(name) == dtypes[d+1].name {
			return dtype(d + 1)
		}
	}
	return 0
}

//rt:noalloc
func appendTensorHead(dst []byte, d dtype, shape ...int) []byte {
	dst = msgp.AppendMapHeader(dst, 3)
	dst = appendTextKey(dst, "dtype", dtypes[d].name)
	dst = appendShape(dst, shape...)
	return msgp.AppendString(dst, "data")
}

//rt:noalloc
func appendShape(dst []byte, shape ...int) []byte {
	dst = msgp.AppendString(dst, "shape")
	dst = msgp.AppendArrayHeader(dst, uint32(len(shape)))
	for _, n := range shape {
		dst = appendInt(dst, int64(n))
	}
	return dst
}

// tensorView is a tensor object in the source.
type tensorView struct {
	dtype dtype
	rank  int
	shape [MaxDims]int
	data  []byte
}

//rt:noalloc
func (r *reader) tensor() (v tensorView, present bool) {
	if r.null() {
		return v, false
	}
	const dtype, shape, data, all = 1, 2, 4, 7
	seen := 0
	for range r.mapHeader(MaxMapKeys) {
		switch key := r.key(); string(key) {
		case "dtype":
			seen |= dtype
			r.dtype(&v)
		case "shape":
			seen |= shape
			r.dims(&v)
		case "data":
			seen |= data
			v.data = r.data(MaxMessageBytes)
		default:
			r.skip(0)
		}
	}
	if r.err != nil {
		return tensorView{}, false
	}
	if seen != all {
		r.shape("a tensor without all of its keys", "dtype, shape and data")
		return tensorView{}, false
	}
	if n := v.bytes(); n != int64(len(v.data)) {
		r.sizeMismatch(n, len(v.data))
		return tensorView{}, false
	}
	return v, true
}

//rt:noalloc
func (r *reader) dtype(v *tensorView) {
	name := r.text(MaxNameBytes)
	if v.dtype = dtypeOf(name); v.dtype == 0 {
		r.badDType(name)
	}
}

//rt:noalloc
func (r *reader) dims(v *tensorView) {
	v.rank = r.arrayHeader(MaxDims)
	for i := range v.rank {
		v.shape[i] = int(r.int(0, MaxMessageBytes))
	}
}

// bytes returns the size in bytes that the shape requires. The result is at most MaxMessageBytes+1, so that the product
// of four large axes does not overflow.
//
//rt:noalloc
func (v *tensorView) bytes() int64 {
	n := int64(dtypes[v.dtype].size)
	for _, d := range v.shape[:v.rank] {
		if d == 0 {
			return 0
		}
		n = min(n*int64(d), MaxMessageBytes+1)
	}
	return n
}

// floats appends the tensor's elements to dst; each must be finite.
//
//rt:noalloc
func (r *reader) floats(dst []float32, v *tensorView) []float32 {
	switch v.dtype {
	case float32Type:
		for d := v.data; len(d) >= 4; d = d[4:] {
			bits := binary.LittleEndian.Uint32(d)
			if bits&0x7f800000 == 0x7f800000 {
				r.notFinite()
				return dst[:0]
			}
			dst = append(dst, math.Float32frombits(bits))
		}
	case float64Type:
		for d := v.data; len(d) >= 8; d = d[8:] {
			f := float32(math.Float64frombits(binary.LittleEndian.Uint64(d)))
			if math.Float32bits(f)&0x7f800000 == 0x7f800000 {
				r.notFinite()
				return dst[:0]
			}
			dst = append(dst, f)
		}
	default:
		r.shape(dtypes[v.dtype].name, "<f4 or <f8")
	}
	return dst
}

// vector reads a 1-D tensor of floats into dst[:0]; nil gives an empty slice.
//
//rt:noalloc
func (r *reader) vector(dst []float32) []float32 {
	dst = dst[:0]
	v, present := r.tensor()
	if !present || !r.fits(&v, MaxDOF) {
		return dst
	}
	return r.floats(dst, &v)
}

// fits reports whether v has as many axes as limits, each within its limit.
//
//rt:noalloc
func (r *reader) fits(v *tensorView, limits ...int) bool {
	if v.rank != len(limits) {
		r.rank(v.rank, len(limits))
		return false
	}
	for i, limit := range limits {
		if v.shape[i] > limit {
			r.tooLarge("elements of an axis", v.shape[i], limit)
			return false
		}
	}
	return true
}

// Matrix holds successive actions, one in each row: Rows x Cols float32, row-major. The zero Matrix is sent as nil, a
// Matrix with Cols and no Rows as an empty tensor.
type Matrix struct {
	Rows, Cols int
	Data       []float32
}

//rt:noalloc
func (m *Matrix) clear() { m.Rows, m.Cols, m.Data = 0, 0, m.Data[:0] }

//rt:noalloc
func appendMatrix(dst []byte, m *Matrix) []byte {
	if m.Rows == 0 && m.Cols == 0 {
		return msgp.AppendNil(dst)
	}
	if m.Rows*m.Cols != len(m.Data) {
		panic("wire: matrix data does not fill its rows and columns")
	}
	return appendFloats(appendTensorHead(dst, float32Type, m.Rows, m.Cols), m.Data)
}

//rt:noalloc
func appendVector(dst []byte, v []float32) []byte {
	if len(v) == 0 {
		return msgp.AppendNil(dst)
	}
	return appendFloats(appendTensorHead(dst, float32Type, len(v)), v)
}

//rt:noalloc
func appendFloats(dst []byte, v []float32) []byte {
	dst = msgp.AppendBytesHeader(dst, uint32(4*len(v)))
	for _, f := range v {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(f))
	}
	return dst
}

// matrix reads a 2-D tensor of floats into m, reusing its memory.
//
//rt:noalloc
func (r *reader) matrix(m *Matrix) {
	m.clear()
	v, present := r.tensor()
	if !present || !r.fits(&v, MaxRows, MaxDOF) {
		return
	}
	m.Data = r.floats(m.Data, &v)
	if r.err != nil {
		m.Data = m.Data[:0]
		return
	}
	m.Rows, m.Cols = v.shape[0], v.shape[1]
}

//go:noinline
func (r *reader) badDType(name []byte) {
	r.refuse(fmt.Sprintf("dtype %q", name), dtypeNames, ErrMalformed)
}

//go:noinline
func (r *reader) rank(got, want int) {
	r.shape(fmt.Sprintf("%d axes", got), fmt.Sprintf("%d", want))
}

//go:noinline
func (r *reader) sizeMismatch(shape int64, data int) {
	r.shape(fmt.Sprintf("%d bytes", data), fmt.Sprintf("%d, which its shape asks for", shape))
}
