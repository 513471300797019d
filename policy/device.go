package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	ort "github.com/yalue/onnxruntime_go"
)

// The kinds of device that a session may compute on.
const (
	deviceAuto     = "auto"
	deviceCPU      = "cpu"
	deviceCUDA     = "cuda"
	deviceTensorRT = "tensorrt"
	deviceOpenVINO = "openvino"
)

// maxDevice bounds the number that identifies a GPU; a larger number must be a typing error.
const maxDevice = 63

// Device is the processor that a policy runs on.
type Device struct {
	Kind string // auto, cpu, cuda, tensorrt or openvino
	ID   int    // number of the GPU
}

// ParseDevice reads "auto", "cpu" (also ""), "cuda", "tensorrt", "openvino", or CUDA and TensorRT
// with the number of a GPU, such as "cuda:1".
func ParseDevice(text string) (Device, error) {
	kind, number, numbered := strings.Cut(text, ":")
	d := Device{Kind: kind}
	if text == "" {
		d.Kind = deviceCPU
	}
	known := []string{deviceAuto, deviceCPU, deviceCUDA, deviceTensorRT, deviceOpenVINO}
	if !slices.Contains(known, d.Kind) || numbered && !d.nvidia() {
		return d, fmt.Errorf("device is %q, want auto, cpu, cuda, cuda:N, tensorrt, tensorrt:N or openvino", text)
	}
	if numbered {
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n > maxDevice {
			return d, fmt.Errorf("device is %q, want a number of 0 to %d after the colon", text, maxDevice)
		}
		d.ID = n
	}
	return d, nil
}

// nvidia reports whether the device is an NVIDIA GPU.
func (d Device) nvidia() bool { return d.Kind == deviceCUDA || d.Kind == deviceTensorRT }

// Accelerator reports whether the device is a GPU or OpenVINO: neither the CPU nor "auto".
func (d Device) Accelerator() bool { return d.nvidia() || d.Kind == deviceOpenVINO }

func (d Device) String() string {
	if d.nvidia() {
		return fmt.Sprintf("%s:%d", d.Kind, d.ID)
	}
	return d.Kind
}

// Placement is the device that a model runs on.
type Placement struct {
	Device Device
	// Instead is the reason why the device is the CPU although the user named another device or "auto" prefers a GPU.
	// It is nil when Device is the requested or preferred device.
	Instead error
}

// Why returns Instead as one line, or "" if it is nil.
func (p Placement) Why() string {
	if p.Instead == nil {
		return ""
	}
	return strings.Join(strings.Fields(p.Instead.Error()), " ")
}

// candidates returns the devices to try, in order.
func (o *Options) candidates() []Device {
	switch {
	case o.device.Kind == deviceAuto:
		return []Device{{Kind: deviceCUDA}, {Kind: deviceCPU}}
	case o.device.Accelerator() && o.FallbackCPU:
		return []Device{o.device, {Kind: deviceCPU}}
	}
	return []Device{o.device}
}

const (
	// Parts of errors about an absent provider: how to install it.
	gpuWheels     = "onnxruntime-gpu==1.24.4"
	tensorRTSetup = `install TensorRT 10 with ".venv-gpu/bin/pip install --extra-index-url https://pypi.nvidia.com tensorrt-cu12-libs==10.9.0.34" after "make setup-gpu"`
	gpuSetup      = `run "make setup-gpu" in a checkout (` + gpuWheels +
		` and NVIDIA's wheels, 3 GB in .venv-gpu), or point --ort or ` + runtimeEnv + ` at a GPU build`
	openVINOSetup = `install it with "python3 -m pip install --target DIR onnxruntime-openvino==1.24.1" and point --ort or ` +
		runtimeEnv + ` at DIR/onnxruntime/capi`
)

// loadLibraries loads the libraries that an NVIDIA GPU's provider needs. The provider is beside ONNX Runtime.
func (d Device) loadLibraries() error {
	if !d.nvidia() {
		return nil
	}
	_, library := RuntimeVersion()
	provider := filepath.Join(filepath.Dir(library), "libonnxruntime_providers_cuda.so")
	if _, err := os.Stat(provider); err != nil {
		return nil // ONNX Runtime's own error about the provider is clearer
	}
	// the library is site-packages/onnxruntime/capi/libonnxruntime.so
	site := filepath.Dir(filepath.Dir(filepath.Dir(library)))
	if err := loadCUDA(provider, site); err != nil {
		return fmt.Errorf("%w: %w: %s", ErrNoProvider, err, gpuSetup)
	}
	if d.Kind == deviceTensorRT {
		if err := loadTensorRT(site); err != nil {
			return fmt.Errorf("%w: %w: %s", ErrNoProvider, err, tensorRTSetup)
		}
	}
	return nil
}

// failure classifies an error of the device by its text, in which ONNX Runtime quotes CUDA's error.
func (d Device) failure(err error) error {
	text := err.Error()
	switch {
	case d.Kind == deviceCPU:
		return err
	case strings.Contains(text, "CUDA failure 35:"), strings.Contains(text, "libcuda.so.1: cannot open"):
		return fmt.Errorf("%w: no NVIDIA driver for this ONNX Runtime's CUDA (%w): install driver 525 or newer for "+
			"CUDA 12, 580 or newer for CUDA 13 (nvidia-smi shows it)", ErrNoProvider, err)
	case strings.Contains(text, "Invalid device ID"), strings.Contains(text, "CUDA failure 101:"):
		return fmt.Errorf("%w: %s: this machine has fewer (numbered from 0; CUDA_VISIBLE_DEVICES counts too): %w",
			ErrNoDevice, d, err)
	case strings.Contains(text, "CUDA failure 100:"):
		return fmt.Errorf("%w: %s: %w: see the output of nvidia-smi", ErrNoDevice, d, err)
	}
	return fmt.Errorf("%w: %w", ErrNoDevice, err)
}

// sessionOptions returns the library's session options for the model's device and a
// graph with these inputs.
func (m *Model) sessionOptions(graph string, inputs []port) (*ort.SessionOptions, error) {
	options, err := m.opt.session()
	if err != nil {
		return nil, err
	}
	switch m.device.Kind {
	case deviceTensorRT: // CUDA runs the nodes that TensorRT cannot run
		if err = m.addTensorRT(options, graph, inputs); err == nil {
			err = m.addCUDA(options)
		}
	case deviceCUDA:
		err = m.addCUDA(options)
	case deviceOpenVINO:
		err = m.noProvider(options.AppendExecutionProviderOpenVINO(nil), openVINOSetup)
	default:
		err = errors.Join(m.mapWeights(options, graph), m.keepStored(options))
	}
	if err != nil {
		return nil, errors.Join(err, options.Destroy())
	}
	return options, nil
}

// plainOptions returns session options for a session that only describes its graph and never runs. On an NVIDIA GPU the
// session uses CUDA, which supports more types than the CPU; TensorRT would first build its engines, which takes
// minutes.
func (m *Model) plainOptions() (*ort.SessionOptions, error) {
	options, err := m.opt.session()
	if err != nil {
		return nil, err
	}
	err = errors.Join(options.SetGraphOptimizationLevel(ort.GraphOptimizationLevelDisableAll),
		options.AddSessionConfigEntry(noPrepacking, "1"))
	if err == nil && m.device.nvidia() {
		err = m.addCUDA(options)
	}
	if err != nil {
		return nil, errors.Join(err, options.Destroy())
	}
	return options, nil
}

// noProvider returns the error for a provider that could not be added to the session options. If the error's text
// quotes CUDA, the device failed, and Device.failure classifies the error. Otherwise a library is not installed,
// and the error names ONNX Runtime's library and the cure.
func (m *Model) noProvider(err error, setup string) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); strings.Contains(text, "CUDA failure ") || strings.Contains(text, "Invalid device ID") ||
		strings.Contains(text, "libcuda.so.1: cannot open") {
		return m.device.failure(err)
	}
	_, library := RuntimeVersion()
	return fmt.Errorf("%w: %s: %w: %s", ErrNoProvider, library, err, setup)
}

func (m *Model) addCUDA(options *ort.SessionOptions) error {
	cuda, err := ort.NewCUDAProviderOptions()
	if err != nil {
		return m.noProvider(err, gpuSetup)
	}
	defer cuda.Destroy()
	if err = cuda.Update(m.cudaOptions()); err == nil {
		err = options.AppendExecutionProviderCUDA(cuda)
	}
	return m.noProvider(err, gpuSetup)
}

func (m *Model) addTensorRT(options *ort.SessionOptions, graph string, inputs []port) error {
	keys, err := m.tensorRT(graph, inputs)
	if err != nil {
		return err
	}
	trt, err := ort.NewTensorRTProviderOptions()
	if err != nil {
		return m.noProvider(err, tensorRTSetup)
	}
	defer trt.Destroy()
	if err = trt.Update(keys); err == nil {
		err = options.AppendExecutionProviderTensorRT(trt)
	}
	return m.noProvider(err, tensorRTSetup)
}

// noPrepacking is the session option that keeps weights in the layout of the graph.
const noPrepacking = "session.disable_prepacking"

// mapWeights keeps weights in a file beside the graph mapped. Otherwise ONNX Runtime would copy
// them into its kernels' preferred layout: 1,300 MiB for SmolVLA and 1.6 s of CPU time at the
// start, without a faster run.
func (m *Model) mapWeights(options *ort.SessionOptions, graph string) error {
	if _, listed := m.bundle.Files[graph+weightsExt]; !listed {
		return nil // the weights are in the graph
	}
	return options.AddSessionConfigEntry(noPrepacking, "1")
}

// keepStored disables the optimisers that would enlarge weights stored in two bytes a value. Each use of a weight must
// keep its own Cast. Constant folding (the first and the last of these optimisers; ONNX Runtime 1.24.3 crashes in the
// last) would turn all weights into float32 while the session loads. A single Cast for all uses of a weight would keep
// the float32 copy from the first use to the last. On a GPU these weights are folded, because the GPU keeps float32
// weights in its own memory.
func (m *Model) keepStored(options *ort.SessionOptions) error {
	if m.bundle.Weights == "" {
		return nil
	}
	return options.AddSessionConfigEntry("optimization.disable_specified_optimizers",
		"ConstantFolding;CommonSubexpressionElimination;FuseFp16InitializerToFp32NodeTransformer")
}

// largeBlock is 1 MiB. ONNX Runtime allocates blocks as large as its largest tensors.
const largeBlock = 1 << 20

// returnMemory makes a run on the CPU free its working memory at its end when the policy stores weights in two bytes
// a value to save memory. For SmolVLA, whose run takes seconds in any case, that frees 145 MiB. Other policies keep
// their working memory, because an ACT's run would take 8 % longer. The steps of a loop keep their working memory,
// because the next step needs it.
func (m *Model) returnMemory(run *ort.RunOptions) error {
	if m.bundle.Weights == "" || m.device.Kind != deviceCPU {
		return nil
	}
	return errors.Join(mapLargeBlocks(largeBlock), setRun(run, "memory.enable_memory_arena_shrinkage", "cpu:0"))
}

// cudaOptions prefer exact and steady results to the fastest benchmark: float32 is computed as
// float32, convolutions are chosen without a search that differs from start to start, and the memory pool grows only by
// the requested amount.
func (m *Model) cudaOptions() map[string]string {
	return map[string]string{
		"device_id":              strconv.Itoa(m.device.ID),
		"use_tf32":               "0",
		"cudnn_conv_algo_search": "HEURISTIC",
		"arena_extend_strategy":  "kSameAsRequested",
	}
}

// tensorRT keeps built engines on disk, because building takes minutes. An engine works only with the bundle, ONNX
// Runtime, driver and GPU architecture for which it was built. Each combination of bundle, ONNX Runtime and driver has
// a folder, and each graph of a policy in two graphs a subfolder; TensorRT puts the architecture into the names of the
// engines.
func (m *Model) tensorRT(graph string, inputs []port) (map[string]string, error) {
	version, _ := RuntimeVersion()
	dir := filepath.Join(m.opt.CacheDir,
		fmt.Sprintf("tensorrt-%s-ort%s-driver%s", m.bundle.SHA256[:16], version, nvidiaDriver("/proc")))
	if graph != graphName {
		dir = filepath.Join(dir, strings.TrimSuffix(graph, filepath.Ext(graph)))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("policy: folder of TensorRT's engines: %w", err)
	}
	return map[string]string{
		"device_id":                         strconv.Itoa(m.device.ID),
		"trt_engine_cache_enable":           "1",
		"trt_engine_cache_path":             dir,
		"trt_timing_cache_enable":           "1",
		"trt_timing_cache_path":             dir,
		"trt_profile_min_shapes":            profile(inputs, 1),
		"trt_profile_opt_shapes":            profile(inputs, m.opt.MaxBatch),
		"trt_profile_max_shapes":            profile(inputs, m.opt.MaxBatch),
		"trt_context_memory_sharing_enable": "1",
	}, nil
}

// profile encodes the inputs' shapes for a batch in the form that TensorRT's provider reads.
func profile(inputs []port, batch int) string {
	var shapes []string
	for _, p := range inputs {
		dims := []string{strconv.Itoa(batch)}
		for _, d := range p.shape {
			dims = append(dims, strconv.FormatInt(d, 10))
		}
		shapes = append(shapes, p.name+":"+strings.Join(dims, "x"))
	}
	return strings.Join(shapes, ",")
}

// nvidiaDriver returns the version of NVIDIA's kernel driver, or "unknown".
func nvidiaDriver(proc string) string {
	text, _ := os.ReadFile(filepath.Join(proc, "driver/nvidia/version")) // the file is absent without a driver
	for _, word := range strings.Fields(string(text)) {
		if strings.Count(word, ".") > 0 && strings.Trim(word, "0123456789.") == "" {
			return word
		}
	}
	return "unknown"
}
