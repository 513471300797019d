// Package ort calls ONNX Runtime: a session over a graph, tensors over memory that the caller owns,
// bindings that connect them once, and runs that allocate nothing in Go.
//
// It covers the part of the C API that this module uses, for any execution provider, and makes no
// decisions of its own. library.go loads the library, options.go configures a session's device and
// threads, session.go makes and runs it, tensor.go is memory. Everything with a Close must be
// closed, a session after its bindings.
//
// # Why not a module
//
// github.com/yalue/onnxruntime_go v1.27.0 has no tensors on a device, no binding of an output to
// one, no RunOptions beside a binding (to end a run that hangs) and no stream in a provider's
// options. A second binding beside it could not share its sessions and values, so this replaces it.
package ort

/*
#cgo LDFLAGS: -ldl
#include "glue.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"
)

// Error is a failure that ONNX Runtime reports.
type Error struct {
	Code int // an OrtErrorCode
	Text string
}

func (e *Error) Error() string { return e.Text }

// OfGraph reports whether the graph's file is the cause, on any device.
func (e *Error) OfGraph() bool {
	return slices.Contains([]int{C.ORT_NO_SUCHFILE, C.ORT_NO_MODEL, C.ORT_INVALID_PROTOBUF, C.ORT_INVALID_GRAPH},
		e.Code)
}

// failure turns a status into an error and frees it; nil is success.
//
//go:noinline
func failure(status *C.OrtStatus) error {
	if status == nil {
		return nil
	}
	defer C.ort_release_status(status)
	return &Error{int(C.ort_code(status)), C.GoString(C.ort_message(status))}
}

// Version loads the shared library at path, without using it, and returns the
// version that it reports.
func Version(path string) (string, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why *C.char
	version := C.ort_version(name, &why)
	if version == nil {
		return "", errors.New(C.GoString(why))
	}
	return C.GoString(version), nil
}

var (
	openMu sync.Mutex // guards the next
	opened bool
)

// Open loads the shared library at path for everything else in this package, once
// per process: later calls do nothing.
func Open(path string) error {
	openMu.Lock()
	defer openMu.Unlock()
	if opened {
		return nil
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why *C.char
	if err := failure(C.ort_open(name, &why)); err != nil {
		return err
	}
	if why != nil {
		return errors.New(C.GoString(why))
	}
	opened = true
	return nil
}

// IsOpen reports whether Open has succeeded.
func IsOpen() bool {
	openMu.Lock()
	defer openMu.Unlock()
	return opened
}

// Providers returns the execution providers that the library was built with. A provider may still
// fail to load.
func Providers() ([]string, error) {
	var (
		names **C.char
		n     C.int
	)
	if err := failure(C.ort_providers(&names, &n)); err != nil {
		return nil, fmt.Errorf("list the providers: %w", err)
	}
	var list []string
	for _, name := range unsafe.Slice(names, int(n)) {
		list = append(list, C.GoString(name))
	}
	return list, failure(C.ort_release_providers(names, n))
}
