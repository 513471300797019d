package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/edge-rt/edge-rt/internal/cuda"
	"github.com/edge-rt/edge-rt/internal/ort"
)

// The kinds of device that a session may compute on.
const (
	deviceAuto     = "auto"
	deviceCPU      = "cpu"
	deviceCUDA     = "cuda"
	deviceTensorRT = "tensorrt"
)

// maxDevice bounds the number of a GPU; a larger number is a mistake.
const maxDevice = 63

// Device is the processor that a policy runs on.
type Device struct {
	Kind string // auto, cpu, cuda or tensorrt
	ID   int    // number of the GPU
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

// GPU reports whether the device is a GPU.
func (d Device) GPU() bool { return d.Kind == deviceCUDA || d.Kind == deviceTensorRT }

func (d Device) String() string {
	if d.GPU() {
		return fmt.Sprintf("%s:%d", d.Kind, d.ID)
	}
	return d.Kind
}

// Placement is the device that a model runs on.
type Placement struct {
	Device Device
	// Instead is the reason why the device is the CPU although a GPU was asked for or would be
	// chosen; nil when the device is the one asked for.
	Instead error
}

// Why returns Instead in one line, "" when it is nil.
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
	case o.device.GPU() && o.FallbackCPU:
		return []Device{o.device, {Kind: deviceCPU}}
	}
	return []Device{o.device}
}

const (
	// gpuWheels and gpuSetup are the remedy for an absent provider.
	gpuWheels     = "onnxruntime-gpu==1.24.4"
	tensorRTSetup = `install TensorRT 10 with ".venv-gpu/bin/pip install --extra-index-url https://pypi.nvidia.com tensorrt-cu12-libs==10.9.0.34" after "make setup-gpu"`
	gpuSetup      = `run "make setup-gpu" in a checkout (` + gpuWheels +
		` and NVIDIA's wheels, 3 GB in .venv-gpu), or point --ort or ` + runtimeEnv + ` at a GPU build`
)

// openGPU checks that the device is present and usable, in the order of installation, so that the
// error names the first missing part.
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
		return fmt.Errorf("%w: no NVIDIA driver for CUDA 12 (%w): install driver 525 or newer (nvidia-smi shows it)",
			ErrNoProvider, err)
	case err != nil:
		return fmt.Errorf("%w: %s: %w: see the output of nvidia-smi", ErrNoDevice, d, err)
	case d.ID >= n:
		return fmt.Errorf("%w: %s: this machine has %d (numbered from 0; CUDA_VISIBLE_DEVICES counts too)", ErrNoDevice,
			d, n)
	}
	return nil
}

// checkProvider checks that the library was built with the device's provider.
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
		return fmt.Errorf("%w: %s has %s and not %s: %s", ErrNoProvider, library, strings.Join(built, ", "), provider,
			gpuSetup)
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
	if err == nil { // CUDA runs the nodes that TensorRT does not
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

// mapWeights keeps weights in a file beside the graph mapped. Otherwise ONNX Runtime would copy
// them into its kernels' preferred layout: 1,300 MiB for SmolVLA and 1.6 s of CPU time at the
// start, without a faster run.
func (m *Model) mapWeights(options *ort.Options, graph string) error {
	if _, listed := m.bundle.Files[graph+weightsExt]; !listed {
		return nil // the weights are in the graph
	}
	return options.Set("session.disable_prepacking", "1")
}

// keepStored keeps weights that are stored in two bytes a value as they are, with a separate Cast
// for each use. Constant folding would turn all of them to float32 while the session loads (the
// first and the last of these optimisers; ONNX Runtime 1.24.3 crashes in the last); one Cast for
// all uses of a weight would keep the float32 copy from the first use to the last. On a GPU they
// are folded: it computes from float32 in its own memory.
func (m *Model) keepStored(options *ort.Options) error {
	if m.bundle.Weights == "" {
		return nil
	}
	return options.Set("optimization.disable_specified_optimizers",
		"ConstantFolding;CommonSubexpressionElimination;FuseFp16InitializerToFp32NodeTransformer")
}

// largeBlock is 1 MiB: ONNX Runtime allocates blocks as large as its largest tensors.
const largeBlock = 1 << 20

// returnMemory makes a run on the CPU free its working memory at its end when the weights are
// stored in two bytes a value to save memory: 145 MiB for SmolVLA, whose run takes seconds and gets
// no longer by that. An ACT's run would take 8 % more time. The steps of a loop keep theirs: the
// next step needs it.
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

// cudaOptions prefer exact and steady results to the fastest benchmark: float32 is computed as
// float32, convolutions are chosen without a search that differs from start to start, and memory
// grows by the requested amount.
func (m *Model) cudaOptions() map[string]string {
	return map[string]string{
		"device_id":              strconv.Itoa(m.device.ID),
		"use_tf32":               "0",
		"cudnn_conv_algo_search": "HEURISTIC",
		"arena_extend_strategy":  "kSameAsRequested",
		"enable_cuda_graph":      zeroOrOne(m.opt.CUDAGraph),
	}
}

// tensorRT keeps built engines on disk, because building takes minutes. Engines fit one bundle,
// library, driver and architecture, so each such combination has a folder, with a subfolder for
// each of two graphs.
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

func zeroOrOne(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
