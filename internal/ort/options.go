package ort

// #include "glue.h"
import "C"

import (
	"fmt"
	"maps"
	"slices"
	"unsafe"
)

// Options configure a session's device and threads: the CPU, unless a provider is added.
type Options struct{ c *C.OrtSessionOptions }

// NewOptions returns options with the number of threads inside one operator (intra) and for
// operators in parallel (inter).
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

// NoPlan disables the memory plan that the first run of a shape makes. With a plan, later runs
// allocate one block, in addition to the pieces of the first run, which are kept.
func (o *Options) NoPlan() error { return failure(C.ort_no_plan(o.c)) }

// MapLargeBlocks makes the C library of this process return each block of at least that many bytes
// to the system as soon as it is freed.
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

// The providers that Add accepts.
const (
	CUDA     = "CUDAExecutionProvider"
	TensorRT = "TensorrtExecutionProvider"
)

// Add makes a session use a provider, after those added before and before all others. It computes
// on stream, a cudaStream_t; nil: a stream of its own. Add also loads the provider's library.
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
	n := C.size_t(len(keys))
	k := unsafe.SliceData(keys)
	v := unsafe.SliceData(values)
	switch provider {
	case CUDA:
		return failure(C.ort_append_cuda(o.c, k, v, n, stream))
	case TensorRT:
		return failure(C.ort_append_tensorrt(o.c, k, v, n, stream))
	}
	return fmt.Errorf("provider %q is not known here, want %s or %s", provider, CUDA, TensorRT)
}

// Close frees the options; sessions made with them remain.
func (o *Options) Close() { C.ort_release_options(o.c) }
