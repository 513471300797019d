package ort

// #include "glue.h"
import "C"

import (
	"fmt"
	"maps"
	"slices"
	"unsafe"
)

// Options say how and where a session computes: on the CPU, unless a provider is
// added.
type Options struct{ c *C.OrtSessionOptions }

// NewOptions returns options with so many threads inside one operator and for
// operators side by side.
func NewOptions(intra, inter int) (*Options, error) {
	o := &Options{}
	if err := failure(C.ort_new_options(&o.c)); err != nil {
		return nil, err
	}
	if err := failure(C.ort_threads(o.c, C.int(intra), C.int(inter))); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// NoPlan leaves out the plan that the first run of a shape makes of its memory. Later
// runs take one block by it, beside what the first had taken piece by piece and keeps.
func (o *Options) NoPlan() error { return failure(C.ort_no_plan(o.c)) }

// MapLargeBlocks has the C library of this process give back to the system each block of
// at least so many bytes as soon as it is freed.
func MapLargeBlocks(bytes int) error {
	if C.ort_map_large_blocks(C.int(bytes)) == 0 {
		return fmt.Errorf("ort: the C library does not map blocks of %d bytes by themselves", bytes)
	}
	return nil
}

// Set sets a session configuration entry, such as session.intra_op.allow_spinning.
func (o *Options) Set(key, value string) error {
	k, v := C.CString(key), C.CString(value)
	defer C.free(unsafe.Pointer(k))
	defer C.free(unsafe.Pointer(v))
	return failure(C.ort_set_option(o.c, k, v))
}

// The providers that Add takes.
const (
	CUDA     = "CUDAExecutionProvider"
	TensorRT = "TensorrtExecutionProvider"
)

// Add has a session use a provider before those that were not added and after
// those that were. It computes on stream, a cudaStream_t; nil: one of its own.
// Loading the provider's library is a part of this.
func (o *Options) Add(provider string, options map[string]string, stream unsafe.Pointer) error {
	var keys, values []*C.char
	for _, key := range slices.Sorted(maps.Keys(options)) {
		keys, values = append(keys, C.CString(key)), append(values, C.CString(options[key]))
	}
	defer func() {
		for i := range keys {
			C.free(unsafe.Pointer(keys[i]))
			C.free(unsafe.Pointer(values[i]))
		}
	}()
	n, k, v := C.size_t(len(keys)), unsafe.SliceData(keys), unsafe.SliceData(values)
	switch provider {
	case CUDA:
		return failure(C.ort_append_cuda(o.c, k, v, n, stream))
	case TensorRT:
		return failure(C.ort_append_tensorrt(o.c, k, v, n, stream))
	}
	return fmt.Errorf("provider %q is not known here, want %s or %s", provider, CUDA, TensorRT)
}

// Close releases the options; sessions made with them stay.
func (o *Options) Close() { C.ort_release_options(o.c) }
