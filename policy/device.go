package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"edgert/internal/cuda"
	"edgert/internal/ort"
)

// The kinds of device that a session may compute on.
const (
	deviceAuto     = "auto"
	deviceCPU      = "cpu"
	deviceCUDA     = "cuda"
	deviceTensorRT = "tensorrt"
)

// maxDevice bounds the number of a GPU; more is a mistake.
const maxDevice = 63

// Device is where a policy computes.
type Device struct {
	Kind string // auto, cpu, cuda or tensorrt
	ID   int    // which GPU
}

// ParseDevice reads "auto", "cpu" (also ""), "cuda", "tensorrt", or the last two
// with the number of a GPU, such as "cuda:1".
func ParseDevice(text string) (Device, error) {
	kind, number, numbered := strings.Cut(text, ":")
	d := Device{Kind: kind}
	if text == "" {
		d.Kind = deviceCPU
	}
	if !slices.Contains([]string{deviceAuto, deviceCPU, deviceCUDA, deviceTensorRT}, d.Kind) || numbered && !d.GPU() {
		return d, fmt.Errorf("device is %q, want auto, cpu, cuda, cuda:N, tensorrt or tensorrt:N", text)
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

// GPU reports whether the device is one.
func (d Device) GPU() bool { return d.Kind == deviceCUDA || d.Kind == deviceTensorRT }

func (d Device) String() string {
	if d.GPU() {
		return fmt.Sprintf("%s:%d", d.Kind, d.ID)
	}
	return d.Kind
}

// Placement says where a model computes.
type Placement struct {
	Device Device
	// Instead is why it is the CPU though a GPU was asked for or would be taken;
	// nil when the device is the one that was asked for.
	Instead error
}

// Why says Instead in one line, "" when there is nothing to say.
func (p Placement) Why() string {
	if p.Instead == nil {
		return ""
	}
	return strings.Join(strings.Fields(p.Instead.Error()), " ")
}

// candidates are the devices to try, in order.
func (o *Options) candidates() []Device {
	switch {
	case o.device.Kind == deviceAuto:
		return []Device{{Kind: deviceCUDA}, {Kind: deviceCPU}}
	case o.device.GPU() && o.FallbackCPU:
		return []Device{o.device, {Kind: deviceCPU}}
	}
	return []Device{o.device}
}

const (
	// gpuWheels and gpuSetup are the cure for an absent provider.
	gpuWheels     = "onnxruntime-gpu==1.24.4"
	tensorRTSetup = `install TensorRT 10 with ".venv-gpu/bin/pip install --extra-index-url https://pypi.nvidia.com tensorrt-cu12-libs==10.9.0.34" after "make setup-gpu"`
	gpuSetup      = `run "make setup-gpu" in a checkout (` + gpuWheels + ` and NVIDIA's wheels, 3 GB in .venv-gpu), or point --ort or ` + runtimeEnv + ` at a GPU build`
)

// openGPU checks that the device is there and can be used, in the order in which
// things are installed, so that the error names the first that is missing.
func openGPU(d Device) error {
	if err := checkProvider(d); err != nil {
		return err
	}
	_, library := RuntimeVersion()
	site := filepath.Dir(filepath.Dir(filepath.Dir(library))) // of site-packages/onnxruntime/capi/libonnxruntime.so
	if err := cuda.Open(site); err != nil {
		return fmt.Errorf("%w: %w: %s", ErrNoProvider, err, gpuSetup)
	}
	if d.Kind == deviceTensorRT {
		if err := cuda.OpenTensorRT(site); err != nil {
			return fmt.Errorf("%w: %w: %s", ErrNoProvider, err, tensorRTSetup)
		}
	}
	n, err := cuda.Devices()
	var code *cuda.Error
	switch {
	case errors.As(err, &code) && code.Code == cuda.InsufficientDriver:
		return fmt.Errorf("%w: no NVIDIA driver for CUDA 12 (%w): install driver 525 or newer (nvidia-smi shows it)", ErrNoProvider, err)
	case err != nil:
		return fmt.Errorf("%w: %s: %w: see what nvidia-smi says", ErrNoDevice, d, err)
	case d.ID >= n:
		return fmt.Errorf("%w: %s: this machine has %d (numbered from 0; CUDA_VISIBLE_DEVICES counts too)", ErrNoDevice, d, n)
	}
	return nil
}

// checkProvider asks the library what it was built with.
func checkProvider(d Device) error {
	provider := ort.CUDA
	if d.Kind == deviceTensorRT {
		provider = ort.TensorRT
	}
	built, err := ort.Providers()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoProvider, err)
	}
	if !slices.Contains(built, provider) {
		_, library := RuntimeVersion()
		return fmt.Errorf("%w: %s has %s and not %s: %s", ErrNoProvider, library, strings.Join(built, ", "), provider, gpuSetup)
	}
	return nil
}

// sessionOptions returns the library's session options for the model's device and a
// graph with these inputs.
func (m *Model) sessionOptions(graph string, inputs []port) (*ort.Options, error) {
	options, err := m.opt.session()
	if err != nil {
		return nil, err
	}
	if m.gpu == nil {
		if err := errors.Join(m.mapWeights(options, graph), m.keepStored(options)); err != nil {
			options.Close()
			return nil, err
		}
		return options, nil
	}
	if m.device.Kind == deviceTensorRT {
		err = m.addTensorRT(options, graph, inputs)
	}
	if err == nil { // what TensorRT does not take, CUDA does
		if err = options.Add(ort.CUDA, m.cudaOptions(), m.gpu.compute.Pointer()); err != nil {
			err = fmt.Errorf("%w: %w: %s", ErrNoProvider, err, gpuSetup)
		}
	}
	if err != nil {
		options.Close()
		return nil, err
	}
	return options, nil
}

// mapWeights leaves weights that lie beside the graph where they are mapped. ONNX
// Runtime would copy them into the order that its kernels like best: 1,300 MiB of
// SmolVLA's, 1.6 s of CPU time at the start, for no time in a run.
func (m *Model) mapWeights(options *ort.Options, graph string) error {
	if _, listed := m.bundle.Files[graph+weightsExt]; !listed {
		return nil // they are in the graph
	}
	return options.Set("session.disable_prepacking", "1")
}

// keepStored leaves weights that are stored in two bytes a value as they are, and
// each use its own Cast. Folded, all would be float32 again while the session loads
// (the first and the last of these optimisers; ONNX Runtime 1.24.3 dies in the last);
// with one Cast for all uses of a weight, from the first use to the last. On a GPU
// they are folded: it computes from float32 in its own memory.
func (m *Model) keepStored(options *ort.Options) error {
	if m.bundle.Weights == "" {
		return nil
	}
	return options.Set("optimization.disable_specified_optimizers", "ConstantFolding;CommonSubexpressionElimination;FuseFp16InitializerToFp32NodeTransformer")
}

// largeBlock is a MiB: ONNX Runtime asks for blocks as large as its largest tensors.
const largeBlock = 1 << 20

// returnMemory has a run on the CPU give back, when it ends, what it took beside the
// weights, where these are stored in two bytes a value for the sake of memory: 145 MiB of
// SmolVLA's, which takes seconds and no longer for that. An ACT's run would take 8 % more.
// A loop's steps keep theirs: the next step needs it.
func (m *Model) returnMemory(run *ort.RunOptions) error {
	if m.bundle.Weights == "" || m.gpu != nil {
		return nil
	}
	return errors.Join(ort.MapLargeBlocks(largeBlock), run.Set("memory.enable_memory_arena_shrinkage", "cpu:0"))
}

func (m *Model) addTensorRT(options *ort.Options, graph string, inputs []port) error {
	keys, err := m.tensorRT(graph, inputs)
	if err != nil {
		return err
	}
	if err := options.Add(ort.TensorRT, keys, m.gpu.compute.Pointer()); err != nil {
		return fmt.Errorf("%w: %w: %s", ErrNoProvider, err, tensorRTSetup)
	}
	return nil
}

// cudaOptions choose what is exact and steady over what is fastest in a benchmark:
// float32 is computed as float32, convolutions are chosen without a search that
// differs from start to start, and memory grows by what is asked for.
func (m *Model) cudaOptions() map[string]string {
	return map[string]string{
		"device_id":              strconv.Itoa(m.device.ID),
		"use_tf32":               "0",
		"cudnn_conv_algo_search": "HEURISTIC",
		"arena_extend_strategy":  "kSameAsRequested",
		"enable_cuda_graph":      zeroOrOne(m.opt.CUDAGraph),
	}
}

// tensorRT keeps built engines on disk: building takes minutes. Engines fit one
// bundle, library, driver and architecture, so each such set has a folder, and in it
// each of two graphs its own.
func (m *Model) tensorRT(graph string, inputs []port) (map[string]string, error) {
	hardware, err := cuda.Describe(m.device.ID)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	version, _ := RuntimeVersion()
	dir := filepath.Join(m.opt.CacheDir, fmt.Sprintf("tensorrt-%s-ort%s-%s", m.bundle.SHA256[:16], version, hardware))
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
		"trt_cuda_graph_enable":             zeroOrOne(m.opt.CUDAGraph),
		"trt_context_memory_sharing_enable": "1",
	}, nil
}

// profile writes the inputs' shapes for a batch as TensorRT's provider reads them.
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

func zeroOrOne(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
