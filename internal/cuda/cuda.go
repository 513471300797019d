// Package cuda copies between the host and an NVIDIA GPU: pinned memory, device memory, streams and
// events of CUDA's runtime. The runtime is loaded on demand (library.go finds it in the wheels
// beside ONNX Runtime) and not needed to build.
//
// ONNX Runtime computes on the device; it gets the same stream.
package cuda

/*
#cgo LDFLAGS: -ldl
#include "glue.h"
#cgo noescape cuda_copy
#cgo nocallback cuda_copy
#cgo noescape cuda_synchronize
#cgo nocallback cuda_synchronize
#cgo noescape cuda_wait
#cgo nocallback cuda_wait
#cgo noescape cuda_record
#cgo nocallback cuda_record
#cgo noescape cuda_set_device
#cgo nocallback cuda_set_device
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Error is a code of CUDA's runtime with the failed operation.
type Error struct {
	Doing string
	Code  int
	Text  string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: CUDA error %d: %s", e.Doing, e.Code, e.Text) }

// Codes that callers distinguish.
const (
	OutOfMemory        = 2
	InsufficientDriver = 35  // no driver, or one older than this CUDA
	NoDevice           = 100 // a driver, but no device
)

//go:noinline
func failure(doing string, code C.int) error {
	return &Error{doing, int(code), C.GoString(C.cuda_error(code))}
}

// Devices returns the number of devices.
func Devices() (int, error) {
	var n C.int
	if code := C.cuda_devices(&n); code != 0 {
		return 0, failure("count the devices", code)
	}
	return int(n), nil
}

// Describe names the properties that engines and caches depend on: the CUDA version of the driver
// and the device's compute capability, such as "cuda12.8-sm90".
func Describe(device int) (string, error) {
	var version, major, minor C.int
	if code := C.cuda_driver(&version); code != 0 {
		return "", failure("ask for the driver", code)
	}
	const computeMajor, computeMinor = 75, 76 // cudaDevAttrComputeCapabilityMajor and -Minor
	code := C.cuda_attribute(&major, computeMajor, C.int(device))
	if code == 0 {
		code = C.cuda_attribute(&minor, computeMinor, C.int(device))
	}
	if code != 0 {
		return "", failure("ask for the device's architecture", code)
	}
	return fmt.Sprintf("cuda%d.%d-sm%d%d", version/1000, version%1000/10, major, minor), nil
}

// SetDevice selects the device for the calling thread.
//
//rt:noalloc
func SetDevice(device int) error {
	if code := C.cuda_set_device(C.int(device)); code != 0 {
		return failure("select the device", code)
	}
	return nil
}

// Pinned returns page-locked host memory, which a device can copy from and to by itself.
func Pinned(bytes int) (unsafe.Pointer, error) {
	var p unsafe.Pointer
	if code := C.cuda_host_alloc(&p, C.size_t(bytes)); code != 0 {
		return nil, failure(fmt.Sprintf("reserve %d bytes of pinned memory", bytes), code)
	}
	clear(unsafe.Slice((*byte)(p), bytes))
	return p, nil
}

// FreePinned frees memory of Pinned.
func FreePinned(p unsafe.Pointer) { C.cuda_free_host(p) }

// Malloc returns memory of the thread's device.
func Malloc(bytes int) (unsafe.Pointer, error) {
	var p unsafe.Pointer
	if code := C.cuda_malloc(&p, C.size_t(bytes)); code != 0 {
		return nil, failure(fmt.Sprintf("reserve %d bytes of the device", bytes), code)
	}
	return p, nil
}

// Free frees memory of Malloc.
func Free(p unsafe.Pointer) { C.cuda_free(p) }

// Stream runs its operations in order, beside other streams.
type Stream struct{ c unsafe.Pointer }

// NewStream makes a stream on the thread's device.
func NewStream() (Stream, error) {
	var s Stream
	if code := C.cuda_new_stream(&s.c); code != 0 {
		return s, failure("make a stream", code)
	}
	return s, nil
}

// Pointer returns the cudaStream_t, for ONNX Runtime.
func (s Stream) Pointer() unsafe.Pointer { return s.c }

// Close destroys the stream.
func (s Stream) Close() { C.cuda_free_stream(s.c) }

// Upload begins a copy to the device.
//
//rt:noalloc
func (s Stream) Upload(device, host unsafe.Pointer, bytes int) error {
	if code := C.cuda_copy(device, host, C.size_t(bytes), C.cuda_to_device, s.c); code != 0 {
		return failure("copy to the device", code)
	}
	return nil
}

// Download begins a copy to the host.
//
//rt:noalloc
func (s Stream) Download(host, device unsafe.Pointer, bytes int) error {
	if code := C.cuda_copy(host, device, C.size_t(bytes), C.cuda_to_host, s.c); code != 0 {
		return failure("copy to the host", code)
	}
	return nil
}

// Synchronize waits until all operations have ended, and returns the device's error, which may
// belong to any caller's operation.
//
//rt:noalloc
func (s Stream) Synchronize() error {
	if code := C.cuda_synchronize(s.c); code != 0 {
		return failure("wait for the device", code)
	}
	return nil
}

// Event marks a place in a stream.
type Event struct{ c unsafe.Pointer }

// NewEvent makes an event on the thread's device.
func NewEvent() (Event, error) {
	var e Event
	if code := C.cuda_new_event(&e.c); code != 0 {
		return e, failure("make an event", code)
	}
	return e, nil
}

// Close destroys the event.
func (e Event) Close() { C.cuda_free_event(e.c) }

// Record marks the stream's operations so far.
//
//rt:noalloc
func (s Stream) Record(e Event) error {
	if code := C.cuda_record(e.c, s.c); code != 0 {
		return failure("record an event", code)
	}
	return nil
}

// Wait makes the stream, not the caller, wait for an event of another stream.
//
//rt:noalloc
func (s Stream) Wait(e Event) error {
	if code := C.cuda_wait(s.c, e.c); code != 0 {
		return failure("wait for an event", code)
	}
	return nil
}
