package policy

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	ort "github.com/yalue/onnxruntime_go"
)

// Bounds of Options. A larger value must be a typing error.
const (
	maxBatchLimit   = 256
	maxBuffersLimit = 8

	// MaxThreads bounds the threads inside one inference.
	MaxThreads = 256
)

// Options of a Model.
type Options struct {
	MaxBatch     int // largest batch in rows; 0: 1 on the CPU, 8 on a GPU
	Buffers      int // number of sets of MaxBatch rows; with 2, the caller fills one set while the other runs; 0: 1
	IntraThreads int // threads inside one inference, including the caller's; 0: 1

	Device      string // a device in the form that ParseDevice reads
	FallbackCPU bool   // use the CPU when the named device does not work
	DType       string // dtype that the bundle must have; "": any
	CacheDir    string // folder of TensorRT's engines, which take minutes to build

	Progress func(Test) // called after each run of the self-test; may be nil

	device  Device // parsed from the field Device
	perSize bool   // for tests: a session for each batch size, on any device
}

// withDefaults sets the fields that are zero and checks the others.
func (o Options) withDefaults() (Options, error) {
	o.MaxBatch = max(o.MaxBatch, 0)
	o.Buffers = max(o.Buffers, 1)
	o.IntraThreads = max(o.IntraThreads, 1)
	if o.MaxBatch > maxBatchLimit || o.Buffers > maxBuffersLimit {
		return o, fmt.Errorf("policy: max batch is %d with %d buffers, want at most %d with %d", o.MaxBatch, o.Buffers,
			maxBatchLimit, maxBuffersLimit)
	}
	if o.IntraThreads > MaxThreads {
		return o, fmt.Errorf("policy: %d threads in one inference, want at most %d", o.IntraThreads, MaxThreads)
	}
	var err error
	if o.device, err = ParseDevice(o.Device); err != nil {
		return o, fmt.Errorf("policy: %w", err)
	}
	return o, nil
}

// on returns the options with the chosen device's default for MaxBatch. A CPU gains nothing from batches
// (docs/server.md, Batches); a GPU that computes a single row is half idle.
func (o Options) on(d Device) Options {
	const onGPU = 8
	switch {
	case o.MaxBatch > 0:
	case d.nvidia():
		o.MaxBatch = onGPU
	default:
		o.MaxBatch = 1
	}
	return o
}

// Model is an opened bundle: a session and its tensors for Buffers x MaxBatch rows. Rows are filled through Image,
// State, Noise, Prefix and SetControls, run with Run or RunBuffer, and read through ChunkModel and ChunkRobot. The
// slices that these methods lend are the tensors' memory outside the Go heap, valid until Close. A row keeps its
// inputs until the row is filled again, and a chunk until the next run of its buffer.
//
// Buffer k is rows k*MaxBatch to k*MaxBatch+MaxBatch-1. Each buffer has its own inputs and outputs. While one buffer
// runs, the server decodes requests into another buffer and sends that buffer's chunks. A row lies in the session's
// own tensor in the host's memory, so a run on the CPU copies nothing. For a GPU ONNX Runtime copies the tensors in
// each run.
//
// Owner: one goroutine, locked to its thread, calls Run and RunBuffer. Other goroutines may fill and read the rows of a
// buffer that is not running, one goroutine at a time for each row.
type Model struct {
	// Constant after Open.
	bundle         *Bundle
	opt            Options
	batchInvariant bool // every golden row gave the same bytes alone and in its batch, on this machine
	tests          []Test
	device         Device
	instead        error // reason why the model does not run on the requested device
	session        *session
	// sessions by batch size, if each of the BatchSizes has its own (see perSize)
	sized map[int]*session
	// the steps of a policy in two graphs, whose prefix is in session; otherwise nil
	loop        *loop
	runs        []run       // [buffer * MaxBatch + batch - 1]
	tensors     []ort.Value // tensors of all runs
	headOptions *ort.RunOptions
	stepOptions *ort.RunOptions   // options of the loop's steps
	host        [][]byte          // the memory of all tensors
	rows        map[string][]byte // the tensors of all rows
	tensorBytes int64

	// Tensor memory, row after row, listed by memories.
	images                      [][]byte // pictures, by camera
	state, noise, prefix        []float32
	tokens                      []int64
	tokenMask                   []bool
	prefixLen, delay, prefixEnd []int64
	mode, schedule              []int64
	beta, sigmaD                []float32
	chunkModel, chunkRobot      []float32
}

// Open builds the session, checks the graph against bundle.json, replays the golden sets and runs the model's
// BatchSizes. OpenRuntime must have succeeded. It returns ErrBundle if a graph does not load or fit, and ErrGolden,
// with the difference, if a golden set is not reproduced.
func (b *Bundle) Open(opt Options) (*Model, error) {
	if !ort.IsInitialized() {
		return nil, fmt.Errorf("%w: call OpenRuntime before Open", ErrNoRuntime)
	}
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	if opt.DType != "" && opt.DType != b.dtype() {
		return nil, fmt.Errorf("%w: %s computes in %s, want %s: export it with that --dtype", ErrBundle, b.Dir,
			b.dtype(), opt.DType)
	}
	var instead error
	for _, device := range opt.candidates() {
		m := &Model{
			bundle:  b,
			opt:     opt.on(device),
			device:  device,
			instead: instead,
		}
		if err = m.open(); err == nil {
			return m, nil
		}
		err = errors.Join(err, m.Close())
		if !errors.Is(err, ErrNoProvider) && !errors.Is(err, ErrNoDevice) {
			return nil, err
		}
		instead = err
	}
	return nil, err
}

func (m *Model) open() (err error) {
	if err := m.device.loadLibraries(); err != nil {
		return err
	}
	if err := m.load(); err != nil {
		return err
	}
	if err := m.allocate(); err != nil {
		return err
	}
	if err := m.bind(); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	if err := m.replayGolden(); err != nil {
		return err
	}
	return m.warm()
}

// load compares the graphs with bundle.json and makes the sessions.
func (m *Model) load() error {
	inputs := m.bundle.inputs()
	if m.bundle.Form == formSplit {
		given, err := m.checkGraph(prefixName, inputs, nil)
		if err != nil {
			return err
		}
		m.loop, err = m.loadLoop(given)
		return err
	}
	outputs := m.bundle.outputs()
	_, err := m.checkGraph(graphName, inputs, outputs)
	if err != nil {
		return err
	}
	if m.session, err = m.openGraph(graphName, inputs, outputs); err != nil || !m.perSize() {
		return err
	}
	m.sized = map[int]*session{m.opt.MaxBatch: m.session}
	for _, rows := range BatchSizes(m.opt.MaxBatch) {
		if m.sized[rows] != nil {
			continue
		}
		further, err := m.openGraph(graphName, inputs, outputs)
		if err != nil { // if memory is short, one session runs every batch size, more slowly
			return m.oneSession()
		}
		m.sized[rows] = further
	}
	return nil
}

// oneSession closes the sessions of all batch sizes except m.session.
func (m *Model) oneSession() (err error) {
	for _, s := range m.sized {
		if s != m.session {
			err = errors.Join(err, s.close())
		}
	}
	m.sized = nil
	return err
}

// maxSizedWeights bounds the weights of the sessions of all batch sizes together.
const maxSizedWeights = 4 << 30

// perSize reports whether each of the BatchSizes gets its own session. The CUDA provider plans a convolution again
// whenever the batch size differs from the session's last batch size. For example, an ACT's run took 75 ms instead of
// 6 ms (docs/lab/gpu.md). A batch of another size runs in the session of the next larger size.
func (m *Model) perSize() bool {
	if m.opt.perSize {
		return true
	}
	if m.device.Kind != deviceCUDA || m.opt.MaxBatch == 1 {
		return false
	}
	path, weights := filepath.Join(m.bundle.Dir, graphName), int64(0)
	for _, file := range []string{path, path + weightsExt} {
		if info, err := os.Stat(file); err == nil {
			weights += info.Size()
		}
	}
	if m.bundle.Weights != "" { // on a GPU, weights of two bytes become float32
		weights *= 2
	}
	if weights*int64(len(BatchSizes(m.opt.MaxBatch))) > maxSizedWeights {
		return false
	}
	graph, err := os.ReadFile(path)
	return err == nil && bytes.Contains(graph, []byte(convolution))
}

// convolution is the field op_type of a Conv node in an ONNX file: tag, length and text.
const convolution = "\x22\x04Conv"

// sessionOf returns the session that runs a batch, and the number of rows that this session computes.
func (m *Model) sessionOf(batch int) (*session, int) {
	if m.sized == nil {
		return m.session, batch
	}
	sizes := BatchSizes(m.opt.MaxBatch)
	rows := sizes[slices.IndexFunc(sizes, func(n int) bool { return n >= batch })]
	return m.sized[rows], rows
}

// checkGraph checks that a graph has exactly the inputs in want and scalars, and exactly the outputs in give. If give
// is nil, the caller checks the outputs. The module can describe a graph only by loading it into a session. That
// session is loaded without optimisations, so that it is ready sooner.
func (m *Model) checkGraph(name string, want, give []port, scalars ...string) (outputs []ort.InputOutputInfo,
	err error) {
	path := filepath.Join(m.bundle.Dir, name)
	options, err := m.plainOptions()
	if err != nil {
		return nil, err
	}
	defer options.Destroy()
	inputs, outputs, err := ort.GetInputOutputInfoWithOptions(path, options)
	if err != nil {
		return nil, m.graphError(path, err)
	}
	if err = m.bundle.checkWeights(name); err == nil {
		inputs, err = takeScalars(inputs, scalars)
	}
	if err == nil {
		err = comparePorts("input", want, inputs)
		if give != nil {
			err = errors.Join(err, comparePorts("output", give, outputs))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBundle, path, err)
	}
	return outputs, nil
}

// openGraph makes the session of one graph.
func (m *Model) openGraph(name string, inputs, outputs []port, scalars ...string) (*session, error) {
	options, err := m.sessionOptions(name, inputs)
	if err != nil {
		return nil, err
	}
	defer options.Destroy()
	path := filepath.Join(m.bundle.Dir, name)
	s, err := newSession(path, append(portNames(inputs), scalars...), portNames(outputs), options)
	if err != nil {
		return nil, m.graphError(path, err)
	}
	return s, nil
}

// graphError returns the error for a graph that does not open, because of the graph or of the device. ONNX Runtime
// reads the graph before it uses the device, and an error from reading contains "Load model from ".
func (m *Model) graphError(path string, err error) error {
	if m.device.Kind == deviceCPU || strings.Contains(err.Error(), "Load model from ") {
		return fmt.Errorf("%w: %s: %w", ErrBundle, path, err)
	}
	return m.device.failure(fmt.Errorf("%s does not open on %s: %w", path, m.device, err))
}

// BatchSizes returns the batch sizes that a model has run by the time it is open: 1, 2, 4 and so
// on, and the largest. The first run of another size plans its memory.
func BatchSizes(maxBatch int) (sizes []int) {
	for n := 1; n < maxBatch; n *= 2 {
		sizes = append(sizes, n)
	}
	return append(sizes, max(1, maxBatch))
}

// warm runs each of the BatchSizes once. The first run of a shape plans its memory, and no robot should wait for that.
func (m *Model) warm() error {
	for _, batch := range BatchSizes(m.opt.MaxBatch) {
		if err := m.timed(0, batch); err != nil {
			return m.device.failure(err)
		}
	}
	return nil
}

// session returns the library's session options, for the CPU.
func (o Options) session() (*ort.SessionOptions, error) {
	options, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		options.SetIntraOpNumThreads(o.IntraThreads),
		options.SetInterOpNumThreads(1), // the graphs are chains of nodes
		// Without memory patterns, a policy of real size takes a tenth less memory and as much time.
		options.SetMemPattern(false),
		options.AddSessionConfigEntry("session.intra_op.allow_spinning", "0"),
		options.AddSessionConfigEntry("session.inter_op.allow_spinning", "0"),
	)
	if err != nil {
		return nil, errors.Join(err, options.Destroy())
	}
	return options, nil
}

// Placement returns the device that the model runs on.
func (m *Model) Placement() Placement { return Placement{m.device, m.instead} }

// Bundle returns the bundle that the model was opened from.
func (m *Model) Bundle() *Bundle { return m.bundle }

// MaxBatch returns the largest batch.
func (m *Model) MaxBatch() int { return m.opt.MaxBatch }

// Buffers returns the number of sets of MaxBatch rows.
func (m *Model) Buffers() int { return m.opt.Buffers }

// TensorBytes returns the memory of the tensors of all buffers. ONNX Runtime's own memory is not
// included.
func (m *Model) TensorBytes() int64 { return m.tensorBytes }

// Image lends row i's pictures from camera cam, RGB bytes [H, W, 3], the oldest of
// the bundle's Steps first.
//
//rt:noalloc
func (m *Model) Image(i, cam int) []byte {
	return row(m.images[cam], i, m.bundle.Steps()*m.bundle.Cameras[cam].Bytes())
}

// State lends row i's joint state, in robot units and the order of StateNames, the
// oldest of the bundle's Steps first.
//
//rt:noalloc
func (m *Model) State(i int) []float32 {
	return row(m.state, i, m.bundle.Steps()*len(m.bundle.StateNames))
}

// Noise lends row i's noise, [NoiseRows, NoiseDim]. It is empty for a policy without a noise input.
//
//rt:noalloc
func (m *Model) Noise(i int) []float32 {
	return row(m.noise, i, m.bundle.noiseRows()*m.bundle.NoiseDim)
}

// Tokens lends row i's task, Tokenizer.MaxLen tokens; empty for a policy that does
// not read its task.
//
//rt:noalloc
func (m *Model) Tokens(i int) []int64 { return row(m.tokens, i, m.bundle.promptLen()) }

// TokenMask lends the mask of row i's valid tokens.
//
//rt:noalloc
func (m *Model) TokenMask(i int) []bool { return row(m.tokenMask, i, m.bundle.promptLen()) }

// Prefix lends row i's prefix, [ChunkSize, ActionDim] in robot units. Rows from
// Controls.PrefixLen on are ignored.
//
//rt:noalloc
func (m *Model) Prefix(i int) []float32 {
	return row(m.prefix, i, m.bundle.ChunkSize*m.bundle.ActionDim)
}

// SetControls sets row i's Real-Time Chunking inputs. Beta is clamped to the range from 0 to NumSteps in which a
// guided step cannot overshoot.
//
//rt:noalloc
func (m *Model) SetControls(i int, c Controls) {
	m.prefixLen[i] = int64(c.PrefixLen)
	m.delay[i] = int64(c.Delay)
	m.prefixEnd[i] = int64(c.PrefixEnd)
	m.mode[i] = int64(c.Mode)
	m.beta[i] = min(max(c.Beta, 0), float32(m.bundle.NumSteps))
	m.schedule[i] = int64(c.Schedule)
	m.sigmaD[i] = c.SigmaD
	if c.SigmaD <= 0 {
		m.sigmaD[i] = 1
	}
}

// Run computes the chunks of rows 0 to batch-1, 1 <= batch <= MaxBatch, and blocks its thread meanwhile. Errors wrap
// ErrRun; the model can be used afterwards.
//
//rt:noalloc
func (m *Model) Run(batch int) error { return m.RunBuffer(0, batch) }

// RunBuffer does the same as Run for the rows of one buffer: k*MaxBatch to k*MaxBatch+batch-1.
//
//rt:noalloc
func (m *Model) RunBuffer(k, batch int) error {
	if batch < 1 || batch > m.opt.MaxBatch {
		panic("policy: batch outside 1..MaxBatch")
	}
	r := &m.runs[k*m.opt.MaxBatch+batch-1]
	if err := r.head.run(); err != nil {
		return runError(err)
	}
	for i := range r.steps { // each step writes a chunk, and the last step's chunk remains
		if err := r.steps[i].run(); err != nil {
			return runError(err)
		}
	}
	return nil
}

// Terminate makes the present run end with an error, as soon as its present operator is done. All later runs fail at
// once, so close the model afterwards. Terminate cannot end a run on a device that does not answer.
//
// Owner: any goroutine, until Close.
func (m *Model) Terminate() error {
	return errors.Join(m.headOptions.Terminate(), m.stepOptions.Terminate())
}

// memoryTexts are the error texts of ONNX Runtime and CUDA when memory is short. Neither library has an error code for
// this in all places.
var memoryTexts = []string{"out of memory", "Failed to allocate memory", "smaller than requested bytes",
	"std::bad_alloc"}

func runError(err error) error {
	text := err.Error()
	if slices.ContainsFunc(memoryTexts, func(t string) bool { return strings.Contains(text, t) }) {
		return fmt.Errorf("%w: %w: %w", ErrRun, ErrMemory, err)
	}
	return fmt.Errorf("%w: %w", ErrRun, err)
}

// ChunkModel lends row i's chunk in the policy's own normalised units, [ChunkSize, ActionDim]. The slice is lent until
// the next run of its buffer.
//
//rt:noalloc
func (m *Model) ChunkModel(i int) []float32 {
	return row(m.chunkModel, i, m.bundle.ChunkSize*m.bundle.ActionDim)
}

// ChunkRobot lends row i's chunk in robot units, [ChunkSize, ActionDim], in the
// order of ActionNames. The slice is lent until the next run of its buffer.
//
//rt:noalloc
func (m *Model) ChunkRobot(i int) []float32 {
	return row(m.chunkRobot, i, m.bundle.ChunkSize*m.bundle.ActionDim)
}

// Finite reports whether row i's chunk has neither NaN nor infinities. A chunk that is not finite must not be sent.
//
//rt:noalloc
func (m *Model) Finite(i int) bool {
	for _, v := range m.ChunkRobot(i) {
		if d := float64(v); math.IsNaN(d) || math.IsInf(d, 0) {
			return false
		}
	}
	return true
}

// Close frees the sessions and the tensors. All lent slices are invalid afterwards.
func (m *Model) Close() error {
	var errs []error
	for _, t := range m.tensors {
		errs = append(errs, t.Destroy())
	}
	for _, o := range []*ort.RunOptions{m.headOptions, m.stepOptions} {
		if o != nil {
			errs = append(errs, o.Destroy())
		}
	}
	if m.loop != nil {
		errs = append(errs, m.loop.session.close())
	}
	if m.session != nil && m.sized == nil {
		errs = append(errs, m.session.close())
	}
	for _, s := range m.sized { // m.session is one of these
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	for _, memory := range m.host {
		errs = append(errs, release(memory))
	}
	*m = Model{bundle: m.bundle, opt: m.opt}
	return errors.Join(errs...)
}
