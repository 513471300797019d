// Package cudatest installs a fake GPU: ONNX Runtime and CUDA's libraries as `make setup-gpu`
// installs them, with the CUDA provider faked on the CPU. All code that drives a GPU runs on it; it
// cannot show the results, speed and order of a real GPU. testdata describes how to make it fail.
package cudatest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Site is an installed tree.
type Site struct{ Folder string }

// needed are the libraries; all but the first are empty.
var needed = map[string]string{
	"libcudart.so.12": "cuda_runtime", "libnvrtc.so.12": "cuda_nvrtc", "libcublasLt.so.12": "cublas", "libcublas.so.12": "cublas",
	"libcurand.so.10": "curand", "libcufft.so.11": "cufft", "libcudnn.so.9": "cudnn",
}

// Install builds the libraries with the C compiler, CUDA's runtime with these flags, and uses
// library, the CPU's ONNX Runtime, for the computations. It skips the test where there is no
// compiler.
func Install(t testing.TB, library string, flags ...string) Site {
	t.Helper()
	s := Site{t.TempDir()}
	sources := here()
	compile(t, filepath.Join(sources, "testdata", "onnxruntime.c"), s.Library(),
		"-I"+filepath.Join(sources, "..", "..", "ort"), "-ldl")
	compile(t, filepath.Join(sources, "testdata", "cudart.c"), s.CUDA("libcudart.so.12"), flags...)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty+".c", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	compile(t, empty+".c", empty)
	for name := range needed {
		if name == "libcudart.so.12" {
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(s.CUDA(name)), 0o755), os.Link(empty, s.CUDA(name))); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("FAKE_GPU_LIBRARY", library)
	return s
}

// Library returns the path of ONNX Runtime.
func (s Site) Library() string {
	return filepath.Join(s.Folder, "onnxruntime", "capi", "libonnxruntime.so.1.24.4")
}

// CUDA returns the path of one of CUDA's libraries.
func (s Site) CUDA(name string) string {
	return filepath.Join(s.Folder, "nvidia", needed[name], "lib", name)
}

func here() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}

func compile(t testing.TB, source, out string, flags ...string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("needs a C compiler: %v", err)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		t.Fatal(err)
	}
	args := append([]string{source, "-shared", "-fPIC", "-O1", "-o", out}, flags...)
	if text, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", source, err, text)
	}
}
