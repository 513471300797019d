package pickle

import (
	"encoding/binary"
	"math"

	"github.com/edge-rt/edge-rt/wire/ndarray"
)

// Array is a NumPy array or a torch tensor: dense, in C order, little-endian.
type Array struct {
	Type  string // f2, f4, f8, bf16, i1, i2, i4, i8, u1, u2, u4, u8 or b1
	Shape []int
	Data  []byte // exactly the bytes that Type and Shape require
}

// sizes holds the numeric types and their sizes in bytes.
var sizes = map[string]int{
	"f2": 2, "f4": 4, "f8": 8, "bf16": 2, "i1": 1, "i2": 2, "i4": 4, "i8": 8, "u1": 1, "u2": 2, "u4": 4, "u8": 8,
	"b1": 1,
}

// maxAxes is the most axes of an array.
const maxAxes = 4

// Len is the number of elements.
func (a *Array) Len() int {
	if len(a.Type) == 0 {
		return 0
	}
	return len(a.Data) / sizes[a.Type]
}

// Floats appends the elements to dst as float32. ok is false when the type of the elements is not f2, bf16, f4 or f8.
func (a *Array) Floats(dst []float32) (_ []float32, ok bool) {
	for i := range a.Len() {
		switch a.Type {
		case "f2", "bf16", "f4", "f8":
			dst = append(dst, float32(element(a.Type, a.Data[i*sizes[a.Type]:])))
		default:
			return dst, false
		}
	}
	return dst, true
}

// element reads one element of a floating-point type.
func element(dtype string, b []byte) float64 {
	switch dtype {
	case "f8":
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case "bf16":
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
	case "f2":
		return ndarray.Half(binary.LittleEndian.Uint16(b))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
}

// dtype is a NumPy type. A later BUILD opcode sets its byte order.
type dtype struct {
	code  string // the type's code without the byte order
	built bool
}

func newDtype(args []Value) (Value, error) {
	if len(args) != 3 {
		return nil, malformed("a dtype of %d arguments, want 3", len(args))
	}
	code, _ := args[0].(string)
	if sizes[code] == 0 || code == "bf16" {
		return nil, malformed("dtype %.20q, want a numeric one", code)
	}
	return &dtype{code: code}, nil
}

// build sets the byte order from a state (3, order, None, None, None, -1, -1, flags). It refuses any order but
// little-endian.
func (d *dtype) build(state Value) error {
	t, ok := state.(*Tuple)
	if !ok || len(t.Items) < 2 {
		return malformed("the state of a dtype is a %T", state)
	}
	order, _ := t.Items[1].(string)
	if order != "<" && order != "|" && order != "=" {
		return malformed("dtype %s has byte order %.8q, want little-endian", d.code, order)
	}
	d.built = true
	return nil
}

// ready returns the element type of a dtype. It refuses a dtype whose byte order was never set, except for elements of
// one byte.
func ready(v Value) (string, error) {
	d, ok := v.(*dtype)
	if !ok || !d.built && sizes[d.code] > 1 {
		return "", malformed("a %T, want a dtype with its byte order", v)
	}
	return d.code, nil
}

// newArray computes _reconstruct(ndarray, (0,), b"b"): an empty array, whose content a later BUILD opcode sets.
func newArray(args []Value) (Value, error) {
	if len(args) != 3 {
		return nil, malformed("_reconstruct of %d arguments, want 3", len(args))
	}
	if g, ok := args[0].(global); !ok || g.kind != arrayType {
		return nil, malformed("_reconstruct of a %T, want numpy.ndarray", args[0])
	}
	return &Array{}, nil
}

// content sets an array from a state (1, shape, dtype, is_fortran, data).
func (d *decoder) content(a *Array, state Value) error {
	t, ok := state.(*Tuple)
	if !ok || len(t.Items) != 5 || a.Type != "" {
		return malformed("the state of an array is a %T, want one tuple of 5", state)
	}
	dtype, err := ready(t.Items[2])
	if err != nil {
		return err
	}
	fortran, _ := t.Items[3].(bool)
	return d.set(a, dtype, t.Items[1], t.Items[4], fortran)
}

// set checks that the data fits the shape, and stores both in a.
func (d *decoder) set(a *Array, dtype string, shape, data Value, fortran bool) error {
	axes, err := dims(shape)
	if err != nil {
		return err
	}
	b, ok := data.([]byte)
	n := sizes[dtype]
	for _, side := range axes {
		if n > 0 && side > maxBytes/n {
			return tooLarge("elements along an axis", side, maxBytes/n)
		}
		n *= side
	}
	if !ok || len(b) != n {
		return malformed("an array of shape %v, type %s has %d bytes, want %d", axes, dtype, len(b), n)
	}
	a.Type = dtype
	a.Shape = axes
	a.Data = b
	if fortran && len(axes) > 1 {
		strides := make([]int, len(axes))
		stride := 1
		for axis := range axes {
			strides[axis] = stride
			stride *= axes[axis]
		}
		a.Data, err = d.gather(b, sizes[dtype], 0, axes, strides)
	}
	return err
}

// gather copies the elements of a strided view into C order.
func (d *decoder) gather(src []byte, size, offset int, shape, stride []int) ([]byte, error) {
	count := size
	for _, n := range shape {
		count *= n
	}
	if err := d.spend(count); err != nil || count == 0 {
		return nil, err
	}
	dst := make([]byte, 0, count)
	at := make([]int, len(shape))
	for len(dst) < count {
		from := offset
		for axis, i := range at {
			from += i * stride[axis]
		}
		dst = append(dst, src[from*size:][:size]...)
		for axis := len(at) - 1; axis >= 0; axis-- {
			if at[axis]++; at[axis] < shape[axis] {
				break
			}
			at[axis] = 0
		}
	}
	return dst, nil
}

// dims reads a shape.
func dims(v Value) ([]int, error) {
	t, ok := v.(*Tuple)
	if !ok || len(t.Items) > maxAxes {
		return nil, malformed("a shape is a %T, want a tuple of at most %d", v, maxAxes)
	}
	axes := make([]int, len(t.Items))
	for i, item := range t.Items {
		n, ok := item.(int64)
		if !ok || n < 0 || n > maxBytes {
			return nil, malformed("axis %d of a shape is %s, want 0 to %d", i, Brief(item), maxBytes)
		}
		axes[i] = int(n)
	}
	return axes, nil
}

// bufferedArray computes _frombuffer(data, dtype, shape, order). Since NumPy 2.3 the order may be K. A further argument
// then has the order of the axes, and shape is the shape before the axes are transposed.
func (d *decoder) bufferedArray(args []Value) (Value, error) {
	if len(args) != 4 && len(args) != 5 {
		return nil, malformed("_frombuffer of %d arguments, want 4 or 5", len(args))
	}
	dtype, err := ready(args[1])
	if err != nil {
		return nil, err
	}
	a := &Array{}
	order, _ := args[3].(string)
	if order != "C" && order != "F" && (order != "K" || len(args) < 5 || args[4] == nil) {
		return nil, malformed("_frombuffer in the order %s, want C, F or K with axes", Brief(args[3]))
	}
	if err := d.set(a, dtype, args[2], args[0], order == "F"); err != nil || order != "K" {
		return a, err
	}
	return a, d.transpose(a, args[4])
}

// transpose puts the axes of a into another order, as ndarray.transpose(axes) does.
func (d *decoder) transpose(a *Array, order Value) error {
	axes, err := dims(order)
	if err != nil {
		return err
	}
	stride := make([]int, len(a.Shape))
	for axis, n := len(stride)-1, 1; axis >= 0; axis-- {
		stride[axis] = n
		n *= a.Shape[axis]
	}
	var seen [maxAxes]bool
	shape, strides := make([]int, len(axes)), make([]int, len(axes))
	for i, from := range axes {
		if len(axes) != len(stride) || from >= len(stride) || seen[from] {
			return malformed("the axes %v of an array with %d", axes, len(stride))
		}
		seen[from] = true
		shape[i], strides[i] = a.Shape[from], stride[from]
	}
	a.Shape = shape
	a.Data, err = d.gather(a.Data, sizes[a.Type], 0, shape, strides)
	return err
}

// scalar computes scalar(dtype, data), a number.
func scalar(args []Value) (Value, error) {
	if len(args) != 2 {
		return nil, malformed("a scalar of %d arguments, want 2", len(args))
	}
	dtype, err := ready(args[0])
	if err != nil {
		return nil, err
	}
	b, ok := args[1].([]byte)
	if !ok || len(b) != sizes[dtype] {
		return nil, malformed("a scalar of type %s has %d bytes, want %d", dtype, len(b), sizes[dtype])
	}
	switch dtype[0] {
	case 'f':
		return element(dtype, b), nil
	case 'b':
		return b[0] != 0, nil
	case 'u':
		if len(b) == 8 && b[7] > 127 {
			return nil, tooLarge("bits of an integer", 64, 63)
		}
		return int64(unsigned(b)), nil
	}
	return signed(b), nil
}
