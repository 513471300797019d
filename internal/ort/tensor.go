package ort

// #include "glue.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Type is the type of a tensor's elements.
type Type int

// The types of this module's graphs.
const (
	Float32 Type = C.ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT
	Uint8   Type = C.ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8
	Int64   Type = C.ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64
	Bool    Type = C.ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL

	// Tensors between two graphs may have these types, too.
	Float16  Type = C.ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16
	BFloat16 Type = C.ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16
)

var typeNames = map[Type]string{
	Float32:  "float32",
	Uint8:    "uint8",
	Int64:    "int64",
	Bool:     "bool",
	Float16:  "float16",
	BFloat16: "bfloat16",
}

var typeSizes = map[Type]int{
	Float32:  4,
	Uint8:    1,
	Int64:    8,
	Bool:     1,
	Float16:  2,
	BFloat16: 2,
}

// Size returns the bytes of an element, 0 for an unknown type.
func (t Type) Size() int { return typeSizes[t] }

func (t Type) String() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return fmt.Sprintf("element type %d", int(t))
}

// Memory identifies a kind of memory.
type Memory struct{ c *C.OrtMemoryInfo }

// The names for NewMemory.
const (
	HostMemory = "Cpu"
	CUDAMemory = "Cuda"
)

// NewMemory returns the kind of memory by its name, on the device id for CUDA.
func NewMemory(name string, id int) (*Memory, error) {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	m := &Memory{}
	if err := failure(C.ort_new_memory(n, C.int(id), &m.c)); err != nil {
		return nil, err
	}
	return m, nil
}

// Close frees the identifier, not memory.
func (m *Memory) Close() { C.ort_release_memory(m.c) }

// Tensor is a view of memory that the caller owns, keeps and frees.
type Tensor struct{ c *C.OrtValue }

// NewTensor makes a tensor of the bytes at p, which must not be Go memory: the library keeps the
// address, which cgo forbids for it.
func NewTensor(m *Memory, p unsafe.Pointer, bytes int, t Type, shape ...int64) (*Tensor, error) {
	out := &Tensor{}
	dims := (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(shape)))
	if err := failure(C.ort_new_tensor(m.c, p, C.size_t(bytes), dims, C.size_t(len(shape)), C.int(t), &out.c)); err != nil {
		return nil, err
	}
	return out, nil
}

// Close releases the view.
func (t *Tensor) Close() { C.ort_release_tensor(t.c) }

// Alloc returns zeroed bytes outside the Go heap, aligned to a cache line, with every page present;
// Free frees them.
func Alloc(bytes int) unsafe.Pointer {
	p := C.ort_zeros(C.size_t(max(bytes, 1)))
	if p == nil {
		panic(fmt.Sprintf("ort: no memory for %d bytes", bytes)) // like the Go heap
	}
	return p
}

// Free frees memory of Alloc; nil is allowed.
func Free(p unsafe.Pointer) { C.free(p) }
