package policy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/internal/cuda/cudatest"
	"github.com/edge-rt/edge-rt/internal/ort"
)

func TestParseDevice(t *testing.T) {
	for text, want := range map[string]string{
		"": "cpu", "cpu": "cpu", "auto": "auto", "cuda": "cuda:0", "cuda:3": "cuda:3", "tensorrt": "tensorrt:0",
		"tensorrt:1": "tensorrt:1",
	} {
		if d, err := ParseDevice(text); err != nil || d.String() != want {
			t.Errorf("ParseDevice(%q) = %v, %v, want %s", text, d, err, want)
		}
	}
	for _, text := range []string{"gpu", "cpu:0", "auto:1", "cuda:", "cuda:x", "cuda:-1", "cuda:64", "CUDA", ":0"} {
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
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "libonnxruntime.so.1.24.4")
		if err := os.WriteFile(path, []byte("not a library"), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cpu, gpu := library(".venv"), library(".venv-gpu")
	for device, want := range map[string]string{"": cpu, "cpu": cpu, "auto": gpu, "cuda": gpu, "cuda:1": gpu,
		"tensorrt": gpu} {
		if _, _, err := findRuntime("", device); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("findRuntime for %q = %v, want an error about %s", device, err, want)
		}
	}
}

// fakeGPU runs the test again in a process of its own, whose ONNX Runtime has the fake GPU: a
// process has only one ONNX Runtime. In that process it returns false.
func fakeGPU(t *testing.T) (parent bool) {
	t.Helper()
	const child = "EDGERT_TEST_FAKE_GPU"
	if site := os.Getenv(child); site != "" {
		if err := OpenRuntime(site, "cuda"); err != nil {
			t.Fatal(err)
		}
		return false
	}
	needRuntime(t)
	_, library := RuntimeVersion()
	site := cudatest.Install(t, library)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), child+"="+site.Library())
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return true
}

// Everything between a row and ONNX Runtime works on a GPU that is faked on the CPU: the golden
// sets, which Open replays, and rows of both buffers, staged and not, without an allocation.
func TestGPUServesTheGoldenSets(t *testing.T) {
	if fakeGPU(t) {
		return
	}
	m := openModel(t, demoDir, Options{MaxBatch: 3, Buffers: 2, Device: "cuda:0"})
	if p := m.Placement(); p.Device.String() != "cuda:0" || p.Instead != nil {
		t.Fatalf("Placement() = %+v, want cuda:0", p)
	}
	host := openModel(t, demoDir, Options{MaxBatch: 3, Buffers: 2})
	request := func(m *Model, staged bool) {
		for i := range 6 {
			fillRow(m, i, uint64(i))
			m.SetControls(i, Controls{Beta: 10})
		}
		var err error
		if staged {
			err = m.Stage(1, 2)
		}
		if err = errors.Join(err, m.Run(3), m.RunBuffer(1, 2)); err != nil {
			t.Fatal(err)
		}
	}
	request(host, false)
	for _, staged := range []bool{false, true} {
		request(m, staged)
		for i := range 5 {
			if !slices.Equal(m.ChunkRobot(i), host.ChunkRobot(i)) ||
				!slices.Equal(m.ChunkModel(i), host.ChunkModel(i)) {
				t.Errorf("staged %v: row %d differs from the CPU's", staged, i)
			}
		}
		clear(m.chunkRobot)
	}
	if n := testing.AllocsPerRun(10, func() { request(m, true) }); n != 0 {
		t.Errorf("a request allocates %v times, want 0", n)
	}
}

// Without a given size the largest batch is several rows on a GPU and one on the CPU; the powers of
// two up to it have run when the model is open.
func TestMaxBatchSuitsTheDevice(t *testing.T) {
	for max, want := range map[int][]int{0: {1}, 1: {1}, 2: {1, 2}, 6: {1, 2, 4, 6}, 16: {1, 2, 4, 8, 16}} {
		if got := BatchSizes(max); !slices.Equal(got, want) {
			t.Errorf("BatchSizes(%d) = %v, want %v", max, got, want)
		}
	}
	if fakeGPU(t) {
		return
	}
	for device, want := range map[string]int{"cuda": 8, "cpu": 1, "auto": 8} {
		if got := openModel(t, stillDir, Options{Device: device}).MaxBatch(); got != want {
			t.Errorf("MaxBatch() on %s = %d, want %d", device, got, want)
		}
	}
}

// The staged rows are used, even if the rows change afterwards; a run of another batch size copies
// the rows anew.
func TestStagedRowsRun(t *testing.T) {
	if fakeGPU(t) {
		return
	}
	m := openModel(t, stillDir, Options{MaxBatch: 2, Device: "cuda"})
	set := func(v float32) {
		for i := range 2 {
			m.State(i)[0] = v
			m.SetControls(i, Controls{})
		}
	}
	set(1)
	if err := m.Stage(0, 1); err != nil {
		t.Fatal(err)
	}
	set(2)
	for i, want := range []float32{1, 2} { // for the second run no rows are staged
		if err := m.Run(1); err != nil || m.ChunkRobot(0)[0] != want {
			t.Errorf("run %d gives %v, %v, want %v", i, m.ChunkRobot(0)[0], err, want)
		}
	}
	if err := m.Stage(0, 1); err != nil {
		t.Fatal(err)
	}
	set(3)
	if err := m.Run(2); err != nil || m.ChunkRobot(0)[0] != 3 {
		t.Errorf("a batch of 2 after staging 1 gives %v, %v, want 3", m.ChunkRobot(0)[0], err)
	}
}

func TestGPUOneBufferIsFilledWhileTheOtherRuns(t *testing.T) {
	if fakeGPU(t) {
		return
	}
	const requests, batch = 12, 2
	m := openModel(t, demoDir, Options{MaxBatch: batch, Buffers: 2, Device: "cuda"})
	checkAlone(t, pipelined(t, m, requests), requests*batch)
	if host, device := m.TensorBytes(); host != device || host == 0 {
		t.Errorf("TensorBytes() = %d, %d, want the same on both sides", host, device)
	}
}

func TestOpenSaysWhatIsWrongWithAGPU(t *testing.T) {
	if fakeGPU(t) {
		return
	}
	b, err := LoadBundle(stillDir)
	if err != nil {
		t.Fatal(err)
	}
	broken := "Failed to load library libonnxruntime_providers_cuda.so with error: undefined symbol: cublasLtMatmul"
	for _, tt := range []struct {
		name, setting, value, device string
		kind                         error
		want                         string
	}{
		{"not built in", "FAKE_GPU_PROVIDERS", "cpu", "cuda", ErrNoProvider,
			"CPUExecutionProvider and not CUDAExecutionProvider: run \"make setup-gpu\""},
		{"no driver", "FAKE_GPU_COUNT_ERROR", "35", "cuda", ErrNoProvider, "no NVIDIA driver"},
		{"no device", "FAKE_GPU_COUNT_ERROR", "100", "cuda", ErrNoDevice, "no CUDA-capable device is detected"},
		{"another device", "FAKE_GPU_COUNT", "2", "cuda:2", ErrNoDevice, "this machine has 2"},
		{"full device", "FAKE_GPU_MALLOC_ERROR", "2", "cuda", ErrNoDevice, "out of memory"},
		{"broken provider", "FAKE_GPU_PROVIDER_ERROR", broken, "cuda", ErrNoProvider,
			"cublasLtMatmul: run \"make setup-gpu\""},
		{"TensorRT absent", "FAKE_GPU_PROVIDER_ERROR", "libnvinfer.so.10: cannot open shared object file",
			"tensorrt", ErrNoProvider, "pypi.nvidia.com"},
		{"first run fails", "FAKE_GPU_RUN_ERROR", "CUDA failure 719: unspecified launch failure", "cuda", ErrNoDevice,
			"CUDA failure 719"},
		{"session refused", "FAKE_GPU_SESSION_ERROR", "CUDA failure 999: unknown error", "cuda", ErrNoDevice,
			"CUDA failure 999"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(tt.setting, tt.value)
			opt := Options{Device: tt.device, CacheDir: t.TempDir()}
			if _, err := b.Open(opt); !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open = %v, want %v with %q", err, tt.kind, tt.want)
			}
			for _, opt := range []Options{{Device: tt.device, FallbackCPU: true, CacheDir: opt.CacheDir},
				{Device: "auto"}} {
				if opt.Device == "auto" && tt.device != "cuda" {
					continue
				}
				m, err := b.Open(opt)
				if err != nil {
					t.Errorf("Open(%+v) = %v, want the CPU", opt, err)
					continue
				}
				if p := m.Placement(); p.Device.String() != "cpu" || !errors.Is(p.Instead, tt.kind) {
					t.Errorf("Placement() = %+v, want cpu instead, and why", p)
				}
				if err := errors.Join(m.Run(1), m.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Setenv("FAKE_GPU_SESSION_ERROR", "This session cannot use the graph capture feature as requested by the user "+
		"as the model has control flow nodes")
	if _, err := b.Open(Options{Device: "auto", CUDAGraph: true}); !errors.Is(err, ErrBundle) ||
		!strings.Contains(err.Error(), "cannot be recorded") {
		t.Errorf("Open with a loop as a CUDA graph = %v, want ErrBundle", err)
	}
	t.Setenv("FAKE_GPU_SESSION_ERROR", "")
	// A faulty bundle does not cause a fallback to another device.
	torn := copyBundle(t, stillDir, nil)
	replaceFile(t, torn, graphName, []byte("this is not a graph"))
	b, err = LoadBundle(torn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Open(Options{Device: "auto"}); !errors.Is(err, ErrBundle) {
		t.Errorf("Open of a torn graph = %v, want ErrBundle", err)
	}
}

func TestRunErrorsOfAGPU(t *testing.T) {
	if fakeGPU(t) {
		return
	}
	m := openModel(t, stillDir, Options{Device: "cuda"})
	for _, tt := range []struct {
		setting, value string
		short          bool
	}{
		{"FAKE_GPU_RUN_ERROR", "CUDA failure 700: an illegal memory access was encountered", false},
		{"FAKE_GPU_RUN_ERROR", "Failed to allocate memory for requested buffer of size 9437184", true},
		{"FAKE_GPU_RUN_ERROR", "CUDA failure 2: out of memory", true},
		{"FAKE_GPU_COPY_ERROR", "2", true},
		{"FAKE_GPU_COPY_ERROR", "700", false},
	} {
		t.Run(tt.value, func(t *testing.T) {
			t.Setenv(tt.setting, tt.value)
			if err := m.Run(1); !errors.Is(err, ErrRun) || errors.Is(err, ErrMemory) != tt.short {
				t.Errorf("Run = %v, want ErrRun, and ErrMemory: %v", err, tt.short)
			}
		})
	}
	if err := m.Run(1); err != nil {
		t.Errorf("Run after the errors = %v, want nil", err)
	}
}

// A hanging run ends when another goroutine terminates it, and so do all later runs.
func TestTerminateEndsARun(t *testing.T) {
	if fakeGPU(t) {
		return
	}
	m := openModel(t, stillDir, Options{Device: "cuda"})
	t.Setenv("FAKE_GPU_RUN_ERROR", "hang")
	ended := make(chan error)
	go func() { ended <- m.Run(1) }()
	if err := m.Terminate(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, ErrRun) || !strings.Contains(err.Error(), "terminate") {
		t.Errorf("the run that hung = %v, want ErrRun", err)
	}
	t.Setenv("FAKE_GPU_RUN_ERROR", "")
	if err := m.Run(1); !errors.Is(err, ErrRun) {
		t.Errorf("Run after Terminate = %v, want ErrRun from the library itself", err)
	}
}

// The provider's options prefer exact and steady results; TensorRT's engines are in a folder for
// each bundle, library, driver and architecture.
func TestProviderOptions(t *testing.T) {
	if fakeGPU(t) {
		return
	}
	b, err := LoadBundle(stillDir)
	if err != nil {
		t.Fatal(err)
	}
	opt, err := Options{MaxBatch: 4, Device: "tensorrt:0", CacheDir: t.TempDir()}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	m := &Model{bundle: b, opt: opt, device: opt.device}
	cuda := m.cudaOptions()
	for key, want := range map[string]string{"device_id": "0", "use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC",
		"enable_cuda_graph": "0"} {
		if cuda[key] != want {
			t.Errorf("cuda %s = %q, want %q", key, cuda[key], want)
		}
	}
	if err := openGPU(m.device); err != nil {
		t.Fatal(err)
	}
	trt, err := m.tensorRT(graphName, b.inputs())
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(opt.CacheDir, "tensorrt-"+b.SHA256[:16]+"-ort1.24.4-cuda12.8-sm90")
	if _, err := os.Stat(folder); err != nil || trt["trt_engine_cache_path"] != folder {
		t.Errorf("engines lie in %q (%v), want %s", trt["trt_engine_cache_path"], err, folder)
	}
	if least, most := trt["trt_profile_min_shapes"], trt["trt_profile_max_shapes"]; !strings.HasPrefix(least, "image.top:1x120x160x3,state:1x6,") ||
		!strings.HasPrefix(most, "image.top:4x120x160x3,state:4x6,") {
		t.Errorf("profiles are %q to %q", least, most)
	}
}

func TestCPULibraryHasNoGPU(t *testing.T) {
	needRuntime(t)
	if built, err := ort.Providers(); err != nil || slices.Contains(built, ort.CUDA) {
		t.Skipf("this library has %v, %v", built, err)
	}
	b, err := LoadBundle(stillDir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Open(Options{Device: "cuda"}); !errors.Is(err, ErrNoProvider) ||
		!strings.Contains(err.Error(), "make setup-gpu") {
		t.Errorf("Open on cuda = %v, want ErrNoProvider with the cure", err)
	}
}

func TestOpenComparesTheType(t *testing.T) {
	needRuntime(t)
	b, err := LoadBundle(stillDir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Open(Options{DType: "float16"}); !errors.Is(err, ErrBundle) ||
		!strings.Contains(err.Error(), "want float16") {
		t.Errorf("Open with another dtype = %v, want ErrBundle", err)
	}
	if m, err := b.Open(Options{DType: "float32"}); err != nil {
		t.Errorf("Open with the bundle's dtype = %v", err)
	} else if err := m.Close(); err != nil {
		t.Error(err)
	}
}
