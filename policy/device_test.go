package policy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestParseDevice(t *testing.T) {
	for text, want := range map[string]string{
		"": "cpu", "cpu": "cpu", "auto": "auto", "cuda": "cuda:0", "cuda:3": "cuda:3", "tensorrt": "tensorrt:0",
		"tensorrt:1": "tensorrt:1", "openvino": "openvino",
	} {
		rttest.Want(t, rttest.Must(ParseDevice(text))(t).String(), want, "ParseDevice(%q)", text)
	}
	for _, text := range []string{"gpu", "cpu:0", "auto:1", "cuda:", "cuda:x", "cuda:-1", "cuda:64", "CUDA", ":0",
		"openvino:0"} {
		if d, err := ParseDevice(text); err == nil {
			t.Errorf("ParseDevice(%q) = %v, want an error", text, d)
		}
	}
}

func TestTheRuntimeIsSoughtWhereTheDeviceNeedsIt(t *testing.T) {
	t.Setenv(runtimeEnv, "")
	root := t.TempDir()
	t.Chdir(root)
	library := func(venv string) string {
		dir := filepath.Join(root, venv, "lib", "python3.11", "site-packages", "onnxruntime", "capi")
		path := rttest.WriteFile(t, dir, "libonnxruntime.so.1.24.4", "not a library")
		return path
	}
	cpu, gpu := library(".venv"), library(".venv-gpu")
	for device, want := range map[string]string{"": cpu, "cpu": cpu, "auto": gpu, "cuda": gpu, "cuda:1": gpu,
		"tensorrt": gpu, "openvino": gpu} {
		if _, _, err := findRuntime("", device); !rttest.Says(err, want) {
			t.Errorf("findRuntime for %q = %v, want an error about %s", device, err, want)
		}
	}
}

// Without a given size the largest batch is several rows on a GPU and one row on the CPU. A model has run each power of
// two up to this size by the time it is open.
func TestMaxBatchSuitsTheDevice(t *testing.T) {
	for max, want := range map[int][]int{0: {1}, 1: {1}, 2: {1, 2}, 6: {1, 2, 4, 6}, 16: {1, 2, 4, 8, 16}} {
		if got := BatchSizes(max); !slices.Equal(got, want) {
			t.Errorf("BatchSizes(%d) = %v, want %v", max, got, want)
		}
	}
	for device, want := range map[string]int{"cuda:0": 8, "tensorrt": 8, "cpu": 1, "openvino": 1} {
		d, err := ParseDevice(device)
		if got := (Options{}).on(d).MaxBatch; err != nil || got != want {
			t.Errorf("the largest batch on %s = %d, %v, want %d", device, got, err, want)
		}
	}
}

// The provider's options prefer exact and steady results. Each bundle, library and driver has its own folder of
// TensorRT engines.
func TestProviderOptions(t *testing.T) {
	needRuntime(t)
	b := rttest.Must(LoadBundle(stillDir))(t)
	opt := rttest.Must(Options{MaxBatch: 4, Device: "tensorrt:0", CacheDir: t.TempDir()}.withDefaults())(t)
	m := &Model{bundle: b, opt: opt, device: opt.device}
	cuda := m.cudaOptions()
	for key, want := range map[string]string{"device_id": "0", "use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"} {
		rttest.Want(t, cuda[key], want, "cuda %s", key)
	}
	trt := rttest.Must(m.tensorRT(graphName, b.inputs()))(t)
	version, _ := RuntimeVersion()
	folder := filepath.Join(opt.CacheDir, "tensorrt-"+b.SHA256[:16]+"-ort"+version+"-driver"+nvidiaDriver("/proc"))
	if _, err := os.Stat(folder); err != nil || trt["trt_engine_cache_path"] != folder {
		t.Errorf("engines lie in %q (%v), want %s", trt["trt_engine_cache_path"], err, folder)
	}
	least, most := trt["trt_profile_min_shapes"], trt["trt_profile_max_shapes"]
	if !strings.HasPrefix(least, "image.top:1x120x160x3,state:1x6,") ||
		!strings.HasPrefix(most, "image.top:4x120x160x3,state:4x6,") {
		t.Errorf("profiles are %q to %q", least, most)
	}
}

func TestNVIDIADriver(t *testing.T) {
	proc := t.TempDir()
	rttest.Want(t, nvidiaDriver(proc), "unknown", "version without a driver")
	text := "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue May 12 2026\nGCC version:  gcc 13.2.0\n"
	rttest.WriteFile(t, proc, "driver/nvidia/version", text)
	rttest.Want(t, nvidiaDriver(proc), "580.159.03", "driver")
}

// Opening on a device without its provider fails with an error that names the cure. With FallbackCPU, or on auto, the
// model runs on the CPU instead.
func TestOpenWithoutTheProvider(t *testing.T) {
	needRuntime(t)
	b := rttest.Must(LoadBundle(stillDir))(t)
	if m, err := b.Open(Options{Device: "cuda"}); err == nil {
		m.Close()
		t.Skip("this machine has a GPU")
	}
	for device, want := range map[string]string{
		"cuda":     "make setup-gpu",
		"tensorrt": "make setup-gpu",
		"openvino": "onnxruntime-openvino",
	} {
		opt := Options{Device: device, CacheDir: t.TempDir()}
		rttest.FailsAs(t, rttest.Err(b.Open(opt)), ErrNoProvider, want)
		opt.FallbackCPU = true
		m := openModel(t, stillDir, opt)
		if p := m.Placement(); p.Device.String() != "cpu" || !errors.Is(p.Instead, ErrNoProvider) {
			t.Errorf("Placement() = %+v, want the CPU instead of %s, and why", p, device)
		}
		rttest.Do(t, m.Run(1))
	}
	if p := openModel(t, stillDir, Options{Device: "auto"}).Placement(); p.Device.String() != "cpu" ||
		p.Instead == nil {
		t.Errorf("Placement() of auto = %+v, want the CPU, and why", p)
	}
}

// The text of an error decides whether a part is missing (exit code 3) or the device fails, which a restart may cure.
func TestFailuresOfAGPU(t *testing.T) {
	d := Device{Kind: deviceCUDA, ID: 1}
	for _, tt := range []struct {
		text string
		kind error
		want string
	}{
		{"CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version", ErrNoProvider,
			"no NVIDIA driver"},
		{"providers_cuda.so with error: libcuda.so.1: cannot open shared object file", ErrNoProvider,
			"no NVIDIA driver"},
		{"CUDA failure 100: no CUDA-capable device is detected", ErrNoDevice, "nvidia-smi"},
		{"CUDA failure 101: invalid device ordinal", ErrNoDevice, "cuda:1: this machine has fewer"},
		{"Invalid device ID: 1, must be between 0 (inclusive) and 1 (exclusive).", ErrNoDevice,
			"cuda:1: this machine has fewer"},
		{"libonnxruntime_providers_cuda.so with error: undefined symbol: x", ErrNoProvider, "make setup-gpu"},
		{"CUDA failure 719: unspecified launch failure", ErrNoDevice, "CUDA failure 719"},
		{"CUDA failure 2: out of memory", ErrNoDevice, "out of memory"},
	} {
		err := (&Model{device: d}).noProvider(errors.New(tt.text), gpuSetup)
		rttest.FailsAs(t, err, tt.kind, tt.want)
	}
	for text, kind := range map[string]error{
		"Load model from policy.onnx failed:Protobuf parsing failed.": ErrBundle,
		"CUDA failure 999: unknown error":                             ErrNoDevice,
	} {
		rttest.FailsAs(t, (&Model{device: d}).graphError("policy.onnx", errors.New(text)), kind)
	}
}

// cudaLibraries returns the versions with which the provider was linked.
func TestCUDALibraries(t *testing.T) {
	for _, tt := range []struct{ linked, want []string }{
		{[]string{"libcublas.so.12", "libcudnn.so.9", "libcudart.so.12"},
			[]string{"libcudart.so.12", "libnvrtc.so.12", "libcublas.so.12", "libcudnn.so.9"}},
		{[]string{"libnvrtc.so.13", "libcublasLt.so.13", "libcudart.so.13", "libcufft.so.12", "libcuda.so.1"},
			[]string{"libcudart.so.13", "libnvrtc.so.13", "libcublasLt.so.13", "libcufft.so.12"}},
	} {
		provider := sharedLibrary(t, "libprovider.so", tt.linked...)
		rttest.Equal(t, rttest.Must(cudaLibraries(provider))(t), tt.want, "cudaLibraries of one linked with %v",
			tt.linked)
	}
	rttest.Fails(t, loadCUDA(os.DevNull, t.TempDir()))
}

// sharedLibrary links an empty shared library with empty ones of the given names.
func sharedLibrary(t *testing.T, name string, linked ...string) string {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for _, other := range linked {
		paths = append(paths, sharedLibrary(t, other))
	}
	out := filepath.Join(dir, name)
	args := append([]string{"-shared", "-nostdlib", "-x", "c", os.DevNull, "-x", "none", "-Wl,-soname," + name,
		"-Wl,--no-as-needed", "-o", out}, paths...)
	if text, err := exec.CommandContext(t.Context(), "cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, text)
	}
	return out
}

func TestRunErrors(t *testing.T) {
	for text, short := range map[string]bool{
		"CUDA failure 700: an illegal memory access was encountered":          false,
		"Failed to allocate memory for requested buffer of size 9437184":      true,
		"CUDA failure 2: out of memory":                                       true,
		"Available memory of 4096 is smaller than requested bytes of 9437184": true,
	} {
		if err := runError(errors.New(text)); !errors.Is(err, ErrRun) || errors.Is(err, ErrMemory) != short {
			t.Errorf("runError(%q) = %v, want ErrRun, and ErrMemory: %v", text, err, short)
		}
	}
}

func TestOpenComparesTheType(t *testing.T) {
	needRuntime(t)
	b := rttest.Must(LoadBundle(stillDir))(t)
	// Open for another dtype
	rttest.FailsAs(t, rttest.Err(b.Open(Options{DType: "float16"})), ErrBundle, "want float16")
	if m, err := b.Open(Options{DType: "float32"}); err != nil {
		t.Errorf("Open with the bundle's dtype = %v", err)
	} else if err := m.Close(); err != nil {
		t.Error(err)
	}
}
