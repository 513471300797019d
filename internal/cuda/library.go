package cuda

// #include "glue.h"
// #include <stdlib.h>
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"unsafe"
)

// runtimeLibrary is the library that this package itself calls.
const runtimeLibrary = "libcudart.so.12"

// needed are the libraries of ONNX Runtime's CUDA provider, each after those that it needs itself.
// Once loaded here they are found without LD_LIBRARY_PATH; cuDNN finds its own parts in its folder.
var needed = []string{
	runtimeLibrary, "libnvrtc.so.12", "libcublasLt.so.12", "libcublas.so.12", "libcurand.so.10", "libcufft.so.11",
	"libcudnn.so.9",
}

// ErrNotInstalled marks a library that is absent or does not load.
var ErrNotInstalled = errors.New("the CUDA libraries are not complete")

var (
	openMu sync.Mutex // guards the next
	opened bool
)

// Open loads CUDA's libraries, once per process: from the folders of NVIDIA's wheels (nvidia/*/lib)
// below site, where they exist, otherwise by the system's loader.
func Open(site string) error {
	openMu.Lock()
	defer openMu.Unlock()
	if opened {
		return nil
	}
	for _, name := range needed {
		path := find(site, name)
		if err := load(path, name == runtimeLibrary); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrNotInstalled, path, err)
		}
	}
	opened = true
	return nil
}

// OpenTensorRT loads TensorRT's libraries from its wheel below site. Without the wheel, ONNX
// Runtime finds the system's libraries or reports the missing one.
func OpenTensorRT(site string) error {
	for _, name := range []string{"libnvinfer.so.10", "libnvinfer_plugin.so.10", "libnvonnxparser.so.10"} {
		path := filepath.Join(site, "tensorrt_libs", name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if err := load(path, false); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrNotInstalled, path, err)
		}
	}
	return nil
}

// find returns the library's path below site, or its bare name, for the system's loader, when it is
// not below site.
func find(site, name string) string {
	// the pattern is well formed
	if found, _ := filepath.Glob(filepath.Join(site, "nvidia", "*", "lib", name)); len(found) > 0 {
		return found[0]
	}
	return name
}

func load(path string, runtime bool) error {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	why := (*C.char)(nil)
	if runtime {
		why = C.cuda_open(name)
	} else {
		why = C.cuda_load(name)
	}
	if why != nil {
		return errors.New(C.GoString(why))
	}
	return nil
}
