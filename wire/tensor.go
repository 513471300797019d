package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// DType is the element type of a tensor, written as numpy writes it.
type DType uint8

// The element types that may travel. Numbers a policy uses are Float32;
// Float64 is accepted in their place. Objects, text, dates, complex numbers and
// big-endian data are refused.
const (
	Float32 DType = iota + 1
	Float64
	Float16
	Int8
	Uint8
	Int16
	Uint16
	Int32
	Uint32
	Int64
	Uint64
	Bool
)

// dtypes is indexed by DType.
var dtypes = [...]struct {
	name string
	size int // bytes
}{
	{"", 0}, {"<f4", 4}, {"<f8", 8}, {"<f2", 2}, {"|i1", 1}, {"|u1", 1}, {"<i2", 2}, {"<u2", 2},
	{"<i4", 4}, {"<u4", 4}, {"<i8", 8}, {"<u8", 8}, {"|b1", 1},
}

// String returns numpy's dtype.str, such as `<f4`.
func (d DType) String() string { return dtypes[d].name }

// Size is the length of one element in bytes.
func (d DType) Size() int { return dtypes[d].size }

// ParseDType returns the DType that numpy calls name.
func ParseDType(name string) (DType, error) {
	if d := dtypeOf([]byte(name)); d != 0 {
		return d, nil
	}
	return 0, fmt.Errorf("wire: dtype: got %q, want %s: %w", name, dtypeNames, ErrMalformed)
}

const dtypeNames = "<f4, <f8, <f2, |i1, |u1, <i2, <u2, <i4, <u4, <i8, <u8 or |b1"

//rt:noalloc
func dtypeOf(name []byte) DType {
	for d := Float32; d <= Bool; d++ {
		if string(name) == dtypes[d].name {
			return d
		}
	}
	return 0
}

// Tensor is any array that may travel: C order, little-endian.
type Tensor struct {
	DType DType
	Shape []int
	Data  []byte
}

// AppendTensor appends t as {dtype, shape, data}. A t whose Data does not fill
// its Shape is a programmer's error.
//
//rt:noalloc
func AppendTensor(dst []byte, t Tensor) []byte {
	size := t.DType.Size()
	for _, n := range t.Shape {
		size *= n
	}
	if t.DType == 0 || size != len(t.Data) {
		panic("wire: tensor data does not fill its shape")
	}
	dst = appendTensorHead(dst, t.DType)
	dst = msgp.AppendArrayHeader(dst, uint32(len(t.Shape)))
	for _, n := range t.Shape {
		dst = appendInt(dst, int64(n))
	}
	dst = msgp.AppendString(dst, "data")
	return msgp.AppendBytes(dst, t.Data)
}

//rt:noalloc
func appendTensorHead(dst []byte, d DType) []byte {
	dst = msgp.AppendMapHeader(dst, 3)
	dst = msgp.AppendString(dst, "dtype")
	dst = msgp.AppendString(dst, d.String())
	return msgp.AppendString(dst, "shape")
}

// ParseTensor reads one tensor object into t; Data is borrowed from src, Shape
// is reused. present is false for nil.
//
//rt:noalloc
func ParseTensor(t *Tensor, src []byte) (present bool, err error) {
	r := reader{b: src}
	v, present := r.tensor("tensor")
	if err := r.close(); err != nil {
		return false, err
	}
	t.DType, t.Data, t.Shape = v.dtype, v.data, t.Shape[:0]
	for _, n := range v.shape[:v.rank] {
		t.Shape = append(t.Shape, n)
	}
	return present, nil
}

// tensorView is a tensor object as it lies in the source.
type tensorView struct {
	dtype DType
	rank  int
	shape [MaxDims]int
	data  []byte
}

// tensor reads a tensor object or nil.
//
//rt:noalloc
func (r *reader) tensor(field string) (v tensorView, present bool) {
	if r.null() {
		return v, false
	}
	const dtype, shape, data, all = 1, 2, 4, 7
	seen := 0
	for range r.mapHeader(field, MaxMapKeys) {
		switch key := r.key(); string(key) {
		case "dtype":
			seen |= dtype
			r.dtype(field, &v)
		case "shape":
			seen |= shape
			r.dims(field, &v)
		case "data":
			seen |= data
			v.data = r.data(field, MaxMessageBytes)
		default:
			r.skip(0)
		}
	}
	if r.err != nil {
		return tensorView{}, false
	}
	if seen != all {
		r.shape(field, "a tensor without all of its keys", "dtype, shape and data")
		return tensorView{}, false
	}
	if n := v.bytes(); n != int64(len(v.data)) {
		r.sizeMismatch(field, n, len(v.data))
		return tensorView{}, false
	}
	return v, true
}

//rt:noalloc
func (r *reader) dtype(field string, v *tensorView) {
	name := r.text(field, MaxNameBytes)
	if v.dtype = dtypeOf(name); v.dtype == 0 {
		r.badDType(field, name)
	}
}

//rt:noalloc
func (r *reader) dims(field string, v *tensorView) {
	v.rank = r.arrayHeader(field, MaxDims)
	for i := range v.rank {
		v.shape[i] = int(r.int(field, 0, MaxMessageBytes))
	}
}

// bytes is the size that the shape asks for, in bytes. It is held at one more
// than a message can have, so that four large axes do not overflow.
//
//rt:noalloc
func (v *tensorView) bytes() int64 {
	n := int64(v.dtype.Size())
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
func (r *reader) floats(dst []float32, field string, v *tensorView) []float32 {
	switch v.dtype {
	case Float32:
		for d := v.data; len(d) >= 4; d = d[4:] {
			bits := binary.LittleEndian.Uint32(d)
			if bits&0x7f800000 == 0x7f800000 {
				r.notFinite(field)
				return dst[:0]
			}
			dst = append(dst, math.Float32frombits(bits))
		}
	case Float64:
		for d := v.data; len(d) >= 8; d = d[8:] {
			f := float32(math.Float64frombits(binary.LittleEndian.Uint64(d)))
			if math.Float32bits(f)&0x7f800000 == 0x7f800000 {
				r.notFinite(field)
				return dst[:0]
			}
			dst = append(dst, f)
		}
	default:
		r.shape(field, dtypes[v.dtype].name, "<f4 or <f8")
	}
	return dst
}

// vector reads a 1-D tensor of floats into dst[:0]; nil is none.
//
//rt:noalloc
func (r *reader) vector(dst []float32, field string) []float32 {
	dst = dst[:0]
	v, present := r.tensor(field)
	if !present {
		return dst
	}
	if v.rank != 1 {
		r.rank(field, v.rank, 1)
		return dst
	}
	if v.shape[0] > MaxDOF {
		r.tooLarge(field, v.shape[0], MaxDOF)
		return dst
	}
	return r.floats(dst, field, &v)
}

// Matrix is a run of actions: Rows x Cols float32, row-major. The zero Matrix
// travels as nil; one with Cols and no Rows as an empty tensor.
type Matrix struct {
	Rows, Cols int
	Data       []float32
}

// Row lends action i.
//
//rt:noalloc
func (m *Matrix) Row(i int) []float32 { return m.Data[i*m.Cols : (i+1)*m.Cols] }

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
	dst = appendTensorHead(dst, Float32)
	dst = msgp.AppendArrayHeader(dst, 2)
	dst = appendInt(dst, int64(m.Rows))
	dst = appendInt(dst, int64(m.Cols))
	return appendFloats(dst, m.Data)
}

//rt:noalloc
func appendVector(dst []byte, v []float32) []byte {
	if len(v) == 0 {
		return msgp.AppendNil(dst)
	}
	dst = appendTensorHead(dst, Float32)
	dst = msgp.AppendArrayHeader(dst, 1)
	dst = appendInt(dst, int64(len(v)))
	return appendFloats(dst, v)
}

//rt:noalloc
func appendFloats(dst []byte, v []float32) []byte {
	dst = msgp.AppendString(dst, "data")
	dst = msgp.AppendBytesHeader(dst, uint32(4*len(v)))
	for _, f := range v {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(f))
	}
	return dst
}

// matrix reads a 2-D tensor of floats into m, reusing its memory.
//
//rt:noalloc
func (r *reader) matrix(m *Matrix, field string) {
	m.clear()
	v, present := r.tensor(field)
	if !present {
		return
	}
	if v.rank != 2 {
		r.rank(field, v.rank, 2)
		return
	}
	if v.shape[0] > MaxRows {
		r.tooLarge(field, v.shape[0], MaxRows)
		return
	}
	if v.shape[1] > MaxDOF {
		r.tooLarge(field, v.shape[1], MaxDOF)
		return
	}
	m.Data = r.floats(m.Data, field, &v)
	if r.err != nil {
		m.Data = m.Data[:0]
		return
	}
	m.Rows, m.Cols = v.shape[0], v.shape[1]
}

//go:noinline
func (r *reader) badDType(field string, name []byte) {
	r.fail(fmt.Errorf("wire: %s: got dtype %q, want %s: %w", field, name, dtypeNames, ErrMalformed))
}

//go:noinline
func (r *reader) rank(field string, got, want int) {
	r.shape(field, fmt.Sprintf("%d axes", got), fmt.Sprintf("%d", want))
}

//go:noinline
func (r *reader) sizeMismatch(field string, shape int64, data int) {
	r.shape(field, fmt.Sprintf("%d bytes", data), fmt.Sprintf("%d, which its shape asks for", shape))
}
