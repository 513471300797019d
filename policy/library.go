package policy

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>

// The beginning of ONNX Runtime's OrtApiBase, which is the same in every version.
struct api_base {
	void **(*api)(uint32_t version);
	const char *(*version)(void);
};

static const struct api_base *base_of(void *library) {
	const struct api_base *(*base)(void) = (const struct api_base *(*)(void))dlsym(library, "OrtGetApiBase");
	return base == NULL ? NULL : base();
}

static const char *version_of(void *library) {
	const struct api_base *base = base_of(library);
	return base == NULL ? NULL : base->version();
}

// set_run calls AddRunConfigEntry. New versions of ONNX Runtime only append to the table of functions, so the places
// of AddRunConfigEntry and GetErrorMessage in the table do not change.
static char *set_run(void *library, void *options, const char *key, const char *value) {
	enum { version = 24, get_error_message = 2, add_run_config_entry = 165 };
	void **api = base_of(library)->api(version);
	void *status = ((void *(*)(void *, const char *, const char *))api[add_run_config_entry])(options, key, value);
	return status == NULL ? NULL : (char *)((const char *(*)(void *))api[get_error_message])(status);
}
*/
import "C"

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"
)

// library is a loaded shared library, which stays loaded. The module github.com/yalue/onnxruntime_go loads ONNX Runtime
// itself; this file adds the few calls that the module lacks.
type library struct{ handle unsafe.Pointer }

// loadLibrary loads a library by its path, or by its name through the system's loader. If global is true, libraries
// that are loaded later find its symbols.
func loadLibrary(path string, global bool) (library, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	flags := C.int(C.RTLD_LAZY)
	if global {
		flags = C.RTLD_NOW | C.RTLD_GLOBAL
	}
	handle := C.dlopen(name, flags)
	if handle == nil {
		return library{}, errors.New(C.GoString(C.dlerror()))
	}
	return library{handle}, nil
}

// runtimeVersionOf loads the ONNX Runtime at path, without using it, and returns its version.
func runtimeVersionOf(path string) (string, error) {
	l, err := loadLibrary(path, false)
	if err != nil {
		return "", err
	}
	version := C.version_of(l.handle)
	if version == nil {
		C.dlclose(l.handle)
		return "", errors.New("it has no OrtGetApiBase, so it is not ONNX Runtime")
	}
	return C.GoString(version), nil
}

// setRun sets a configuration entry of a run, for which the module has no function.
func setRun(options *ort.RunOptions, key, value string) error {
	_, path := RuntimeVersion()
	l, err := loadLibrary(path, false)
	if err != nil {
		return err
	}
	k := C.CString(key)
	v := C.CString(value)
	defer C.free(unsafe.Pointer(k))
	defer C.free(unsafe.Pointer(v))
	if text := C.set_run(l.handle, *(*unsafe.Pointer)(private(options, "o")), k, v); text != nil {
		return fmt.Errorf("run option %s: %s", key, C.GoString(text))
	}
	return nil
}

// mapLargeBlocks makes the C library of this process return each block of at least the given number of bytes to the
// system as soon as it is freed. By default glibc raises this threshold to the size of the largest freed block, up to
// 32 MiB. Smaller blocks are in heaps, which return only the free memory at their end.
func mapLargeBlocks(bytes int) error {
	if C.mallopt(C.M_MMAP_THRESHOLD, C.int(bytes)) == 0 {
		return fmt.Errorf("the C library does not map blocks of %d bytes by themselves", bytes)
	}
	return nil
}

// cudaParts are the libraries of CUDA that ONNX Runtime's CUDA provider needs. Each comes after the libraries that it
// depends on. cuDNN loads NVRTC and finds its own parts in its folder.
var cudaParts = []string{"cudart", "nvrtc", "cublasLt", "cublas", "curand", "cufft", "cudnn"}

// cudaLibraries returns the file names of cudaParts in the versions with which a provider was linked: libcudart.so.13
// for CUDA 13, libcudart.so.12 for CUDA 12.
func cudaLibraries(provider string) ([]string, error) {
	file, err := elf.Open(provider)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	linked, err := file.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	version := map[string]string{}
	for _, name := range linked {
		part, number, _ := strings.Cut(strings.TrimPrefix(name, "lib"), ".so.")
		version[part] = number
	}
	if version["nvrtc"] == "" && version["cudnn"] != "" { // cuDNN needs NVRTC, too
		version["nvrtc"] = version["cudart"]
	}
	var names []string
	for _, part := range cudaParts {
		if version[part] != "" {
			names = append(names, "lib"+part+".so."+version[part])
		}
	}
	return names, nil
}

var tensorRTLibraries = []string{"libnvinfer.so.10", "libnvinfer_plugin.so.10", "libnvonnxparser.so.10"}

// loadCUDA loads the provider's CUDA libraries from the folders of NVIDIA's wheels (nvidia/*/lib) below site. For
// libraries that are not there, it uses the system's loader. The provider then finds them without LD_LIBRARY_PATH.
func loadCUDA(provider, site string) error {
	names, err := cudaLibraries(provider)
	if err != nil {
		return fmt.Errorf("the CUDA provider cannot be read: %w", err)
	}
	for _, name := range names {
		// Glob fails only for a malformed pattern.
		if found, _ := filepath.Glob(filepath.Join(site, "nvidia", "*", "lib", name)); len(found) > 0 {
			name = found[0]
		}
		if _, err := loadLibrary(name, true); err != nil {
			return fmt.Errorf("the CUDA libraries are not complete: %s: %w", name, err)
		}
	}
	return nil
}

// loadTensorRT loads TensorRT's libraries from its wheel below site. Without the wheel, ONNX
// Runtime finds the system's libraries or reports the missing one.
func loadTensorRT(site string) error {
	for _, name := range tensorRTLibraries {
		path := filepath.Join(site, "tensorrt_libs", name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if _, err := loadLibrary(path, true); err != nil {
			return fmt.Errorf("the TensorRT libraries are not complete: %s: %w", path, err)
		}
	}
	return nil
}
