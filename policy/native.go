package policy

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// The first two entries of ONNX Runtime's OrtApiBase, which never change.
struct ort_api_base {
	const void *(*get_api)(uint32_t version);
	const char *(*get_version_string)(void);
};

// ort_version loads the library and returns its version, or NULL. The library
// stays loaded: it is about to be used.
static const char *ort_version(const char *path) {
	void *lib = dlopen(path, RTLD_LAZY);
	if (lib == NULL) return NULL;
	const struct ort_api_base *(*base)(void) = (const struct ort_api_base *(*)(void))dlsym(lib, "OrtGetApiBase");
	if (base == NULL || base() == NULL) {
		dlclose(lib);
		return NULL;
	}
	return base()->get_version_string();
}

// aligned_zeros returns zeroed memory on a cache line, or NULL.
static void *aligned_zeros(size_t bytes) {
	void *p = NULL;
	if (posix_memalign(&p, 64, bytes) != 0) return NULL;
	return memset(p, 0, bytes); // touches every page now
}
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// libraryVersion loads the shared library at path and returns the ONNX Runtime
// version that it reports.
func libraryVersion(path string) (string, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	version := C.ort_version(name)
	if version == nil {
		if msg := C.dlerror(); msg != nil {
			return "", fmt.Errorf("%s", C.GoString(msg))
		}
		return "", fmt.Errorf("%s has no OrtGetApiBase: it is not ONNX Runtime", path)
	}
	return C.GoString(version), nil
}

// newArray returns n zeroed elements outside the Go heap, on a cache line, with
// every page present. ONNX Runtime keeps the address beyond the call, which cgo
// forbids for Go memory. Release with freeArray. T must hold no pointers.
func newArray[T any](n int) []T {
	var zero T
	p := C.aligned_zeros(C.size_t(uintptr(max(n, 1)) * unsafe.Sizeof(zero)))
	if p == nil {
		panic(fmt.Sprintf("policy: no memory for a tensor of %d elements", n)) // as the Go heap would
	}
	return unsafe.Slice((*T)(p), n)
}

func freeArray[T any](a []T) { C.free(unsafe.Pointer(unsafe.SliceData(a))) }
