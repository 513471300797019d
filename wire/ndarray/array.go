// Package ndarray reads and writes NumPy arrays in MessagePack, in the two forms of openpi (a map of bytes, dtype and
// shape) and GR00T (a map with an .npy file). array.go has the array, npy.go the .npy file, and value.go MessagePack
// values with arrays in both forms.
//
// All bytes that it reads come from another machine. It reads arrays of numbers only, never of objects. It bounds the
// depth, the items and the dimensions of a message; the caller bounds its size.
package ndarray

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ErrFormat marks bytes that are not an array, or an array of a type that this package does not read.
var ErrFormat = errors.New("ndarray")

// Bounds of an array. A policy's arrays have at most five dimensions.
const (
	maxDims     = 8
	maxElements = 1 << 28
)

// Array is a NumPy array in C order: the last index varies fastest.
type Array struct {
	DType string // element type as NumPy writes it, such as <f4 or |u1
	Shape []int
	Data  []byte // little-endian
}

// DTypes that are read.
const (
	Uint8   = "|u1"
	Float32 = "<f4"
)

// itemSizes has the bytes of one element.
var itemSizes = map[string]int{
	"|b1": 1, "|i1": 1, Uint8: 1,
	"<i2": 2, "<u2": 2, "<f2": 2,
	"<i4": 4, "<u4": 4, Float32: 4,
	"<i8": 8, "<u8": 8, "<f8": 8,
}

// check refuses an array whose bytes do not fit its dtype and shape.
func (a *Array) check() error {
	size, ok := itemSizes[a.DType]
	if !ok {
		return fmt.Errorf("%w: dtype is %.20q, want one of |u1 |i1 |b1 <u2 <i2 <f2 <u4 <i4 <f4 <u8 <i8 <f8",
			ErrFormat, a.DType)
	}
	n, err := elements(a.Shape)
	if err != nil {
		return err
	}
	if n*size != len(a.Data) {
		return fmt.Errorf("%w: an array of %s and shape %v has %d bytes, want %d", ErrFormat, a.DType, a.Shape,
			len(a.Data), n*size)
	}
	return nil
}

// elements returns the number of elements of a shape.
func elements(shape []int) (int, error) {
	if len(shape) > maxDims {
		return 0, fmt.Errorf("%w: an array has %d dimensions, want at most %d", ErrFormat, len(shape), maxDims)
	}
	n := 1
	for _, side := range shape {
		if side < 0 || side > maxElements || n*side > maxElements {
			return 0, fmt.Errorf("%w: an array has the shape %v, want at most %d elements", ErrFormat, shape,
				maxElements)
		}
		n *= side
	}
	return n, nil
}

// Len returns the number of elements.
func (a *Array) Len() int { return len(a.Data) / itemSizes[a.DType] }

// Is reports whether the array has the shape. A negative side in shape matches any length.
func (a *Array) Is(shape ...int) bool {
	return slices.EqualFunc(a.Shape, shape, func(got, want int) bool { return want < 0 || got == want })
}

// Floats writes all elements to dst, which has Len elements.
func (a *Array) Floats(dst []float32) {
	size := itemSizes[a.DType]
	for i := range dst {
		dst[i] = float32(a.at(a.Data[i*size:]))
	}
}

// at returns the element of the array's dtype at the start of b.
func (a *Array) at(b []byte) float64 {
	switch a.DType {
	case Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case "<f8":
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case "<f2":
		return Half(binary.LittleEndian.Uint16(b))
	case "|i1":
		return float64(int8(b[0]))
	case "<i2":
		return float64(int16(binary.LittleEndian.Uint16(b)))
	case "<u2":
		return float64(binary.LittleEndian.Uint16(b))
	case "<i4":
		return float64(int32(binary.LittleEndian.Uint32(b)))
	case "<u4":
		return float64(binary.LittleEndian.Uint32(b))
	case "<i8":
		return float64(int64(binary.LittleEndian.Uint64(b)))
	case "<u8":
		return float64(binary.LittleEndian.Uint64(b))
	default:
		return float64(b[0]) // |u1, |b1
	}
}

// Half converts IEEE 754's binary16.
func Half(h uint16) float64 {
	sign := 1 - 2*float64(h>>15)
	exponent, fraction := int(h>>10&31), float64(h&1023)
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		if fraction == 0 {
			return math.Inf(int(sign))
		}
		return math.NaN()
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

// String returns dtype and shape, such as "<f4 [16 6]".
func (a *Array) String() string {
	sides := make([]string, len(a.Shape))
	for i, side := range a.Shape {
		sides[i] = strconv.Itoa(side)
	}
	return a.DType + " [" + strings.Join(sides, " ") + "]"
}

// toC brings the elements of an array in Fortran order, where the first index varies fastest, into
// C order.
func (a *Array) toC() {
	size := itemSizes[a.DType]
	from, index := a.Data, make([]int, len(a.Shape))
	a.Data = make([]byte, 0, len(from))
	for range len(from) / size {
		at, stride := 0, 1
		for axis, i := range index {
			at += i * stride
			stride *= a.Shape[axis]
		}
		a.Data = append(a.Data, from[at*size:(at+1)*size]...)
		for axis := len(index) - 1; axis >= 0; axis-- {
			if index[axis]++; index[axis] < a.Shape[axis] {
				break
			}
			index[axis] = 0
		}
	}
}
