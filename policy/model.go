package policy

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	ort "github.com/yalue/onnxruntime_go"
)

// MaxBatchLimit bounds Options.MaxBatch: a wish beyond it is a mistake.
const MaxBatchLimit = 256

// Options of a Model.
type Options struct {
	MaxBatch     int  // rows of one inference at most; 0: 1
	IntraThreads int  // threads inside one inference; 0: 1
	Spin         bool // threads spin while they wait for work: faster, at the price of every other program's cores
}

// Model is an opened bundle: a session and its tensors for up to MaxBatch rows.
//
// Rows are filled through Image, State, Noise, Prefix and SetControls, run with
// Run, and read through ChunkModel and ChunkRobot. The slices they lend are the
// tensors' own memory, outside the Go heap: valid until Close, and overwritten by
// the next Run (chunks) or by whoever fills the row (inputs). A row keeps its
// inputs until they are overwritten.
//
// Owner: one goroutine locked to its thread calls Run and reads chunks. Rows that no
// Run is using may be filled by others, each by one at a time.
type Model struct {
	// Constant after Open.
	bundle         *Bundle
	maxBatch       int
	batchInvariant bool
	session        *ort.DynamicAdvancedSession
	bindings       []*ort.IoBinding // [batch-1]
	values         []ort.Value      // tensors of all bindings

	// Tensor memory, row after row.
	images                         [][]byte // per camera
	state, noise, prefix, beta     []float32
	prefixLen, delay, prefixEnd    []int64
	mode                           []int64
	chunkModel, chunkRobot         []float32
	imageBytes                     []int // per camera, of one row
	stateRow, noiseRow, actionsRow int   // elements of one row
}

// Open builds the session, checks the graph against bundle.json, replays the golden
// sets and runs every batch size once. OpenRuntime must have succeeded before.
//
// A graph that cannot be loaded or does not fit bundle.json is ErrBundle; a golden
// set that is not reproduced is ErrGolden and says which value differs by how much.
func (b *Bundle) Open(opt Options) (*Model, error) {
	if !ort.IsInitialized() {
		return nil, fmt.Errorf("%w: call OpenRuntime before Open", ErrNoRuntime)
	}
	opt.MaxBatch, opt.IntraThreads = max(opt.MaxBatch, 1), max(opt.IntraThreads, 1)
	if opt.MaxBatch > MaxBatchLimit {
		return nil, fmt.Errorf("policy: max batch is %d, want at most %d", opt.MaxBatch, MaxBatchLimit)
	}
	m := &Model{bundle: b, maxBatch: opt.MaxBatch}
	if err := m.open(opt); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Model) open(opt Options) error {
	path := filepath.Join(m.bundle.Dir, graphName)
	if err := m.checkGraph(path); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBundle, path, err)
	}
	options, err := sessionOptions(opt)
	if err != nil {
		return err
	}
	defer options.Destroy()
	if m.session, err = ort.NewDynamicAdvancedSession(path, nil, nil, options); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBundle, path, err)
	}
	m.allocate()
	if err := m.bind(); err != nil {
		return fmt.Errorf("policy: bind tensors: %w", err)
	}
	if err := m.replayGolden(); err != nil {
		return err
	}
	// The first run of a shape plans its memory: let no robot wait for that.
	for batch := 1; batch <= m.maxBatch; batch++ {
		if err := m.Run(batch); err != nil {
			return err
		}
	}
	return nil
}

// checkGraph asks for the graph's inputs and outputs. The wrapper only tells them
// for a session of its own, so that one is built without optimisation and dropped.
func (m *Model) checkGraph(path string) error {
	options, err := ort.NewSessionOptions()
	if err != nil {
		return err
	}
	defer options.Destroy()
	if err := options.SetGraphOptimizationLevel(ort.GraphOptimizationLevelDisableAll); err != nil {
		return err
	}
	inputs, outputs, err := ort.GetInputOutputInfoWithOptions(path, options)
	if err != nil {
		return err
	}
	return checkGraph(&m.bundle.Meta, inputs, outputs)
}

func sessionOptions(opt Options) (*ort.SessionOptions, error) {
	o, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	spin := "0"
	if opt.Spin {
		spin = "1"
	}
	err = errors.Join(
		o.SetIntraOpNumThreads(opt.IntraThreads),
		o.SetInterOpNumThreads(1), // the graphs are chains
		o.AddSessionConfigEntry("session.intra_op.allow_spinning", spin),
		o.AddSessionConfigEntry("session.inter_op.allow_spinning", "0"),
	)
	if err != nil {
		return nil, errors.Join(err, o.Destroy())
	}
	return o, nil
}

// allocate reserves the tensors of maxBatch rows.
func (m *Model) allocate() {
	meta, n := &m.bundle.Meta, m.maxBatch
	for _, c := range meta.Cameras {
		m.images = append(m.images, newArray[byte](n*c.Bytes()))
		m.imageBytes = append(m.imageBytes, c.Bytes())
	}
	m.stateRow = len(meta.StateNames)
	m.noiseRow = meta.ChunkSize * meta.NoiseDim
	m.actionsRow = meta.ChunkSize * meta.ActionDim
	m.state, m.noise = newArray[float32](n*m.stateRow), newArray[float32](n*m.noiseRow)
	m.prefix, m.beta = newArray[float32](n*m.actionsRow), newArray[float32](n)
	m.prefixLen, m.delay = newArray[int64](n), newArray[int64](n)
	m.prefixEnd, m.mode = newArray[int64](n), newArray[int64](n)
	m.chunkModel, m.chunkRobot = newArray[float32](n*m.actionsRow), newArray[float32](n*m.actionsRow)
}

// bind makes one binding per batch size; all share the same memory. A run with a
// prepared binding allocates nothing.
func (m *Model) bind() error {
	for batch := 1; batch <= m.maxBatch; batch++ {
		binding, err := m.session.CreateIoBinding()
		if err != nil {
			return err
		}
		m.bindings = append(m.bindings, binding)
		for _, p := range m.bundle.inputs() {
			value, err := m.value(p, batch)
			if err == nil {
				err = binding.BindInput(p.name, value)
			}
			if err != nil {
				return fmt.Errorf("%s, batch %d: %w", p, batch, err)
			}
		}
		for _, p := range m.bundle.outputs() {
			value, err := m.value(p, batch)
			if err == nil {
				err = binding.BindOutput(p.name, value)
			}
			if err != nil {
				return fmt.Errorf("%s, batch %d: %w", p, batch, err)
			}
		}
	}
	return nil
}

// value wraps the first batch rows of a port's memory as a tensor of the library.
func (m *Model) value(p port, batch int) (ort.Value, error) {
	shape := ort.NewShape(append([]int64{int64(batch)}, p.shape...)...)
	var value ort.Value
	var err error
	switch a := m.array(p.name).(type) {
	case []byte:
		value, err = ort.NewTensor(shape, a)
	case []int64:
		value, err = ort.NewTensor(shape, a)
	case []float32:
		value, err = ort.NewTensor(shape, a)
	}
	if err != nil {
		return nil, err
	}
	m.values = append(m.values, value)
	return value, nil
}

// array returns the memory of an input or output: []byte, []int64 or []float32.
func (m *Model) array(name string) any {
	switch name {
	case inputState:
		return m.state
	case inputNoise:
		return m.noise
	case inputPrefix:
		return m.prefix
	case inputPrefixLen:
		return m.prefixLen
	case inputDelay:
		return m.delay
	case inputPrefixEnd:
		return m.prefixEnd
	case inputMode:
		return m.mode
	case inputBeta:
		return m.beta
	case outputModel:
		return m.chunkModel
	case outputRobot:
		return m.chunkRobot
	}
	cam := slices.IndexFunc(m.bundle.Cameras, func(c Camera) bool { return imagePrefix+c.Name == name })
	return m.images[cam]
}

// Bundle returns what the model was opened from.
func (m *Model) Bundle() *Bundle { return m.bundle }

// MaxBatch returns how many rows there are.
func (m *Model) MaxBatch() int { return m.maxBatch }

// BatchInvariant tells whether every golden row gave the same bytes alone and in
// its batch, on this machine. When false, a replay needs the recorded batch size.
func (m *Model) BatchInvariant() bool { return m.batchInvariant }

// Image lends row i's picture from camera cam, RGB bytes [H, W, 3].
//
//rt:noalloc
func (m *Model) Image(i, cam int) []byte { return row(m.images[cam], i, m.imageBytes[cam]) }

// State lends row i's joint state, in robot units and the order of StateNames.
//
//rt:noalloc
func (m *Model) State(i int) []float32 { return row(m.state, i, m.stateRow) }

// Noise lends row i's noise, [ChunkSize, NoiseDim]; empty for a policy without.
//
//rt:noalloc
func (m *Model) Noise(i int) []float32 { return row(m.noise, i, m.noiseRow) }

// Prefix lends row i's prefix, [ChunkSize, ActionDim] in robot units. Rows from
// Controls.PrefixLen on are ignored.
//
//rt:noalloc
func (m *Model) Prefix(i int) []float32 { return row(m.prefix, i, m.actionsRow) }

// SetControls sets row i's Real-Time Chunking inputs. Beta is clamped to 0 and
// NumSteps, the range in which a guided step cannot overshoot.
//
//rt:noalloc
func (m *Model) SetControls(i int, c Controls) {
	m.prefixLen[i] = int64(c.PrefixLen)
	m.delay[i] = int64(c.Delay)
	m.prefixEnd[i] = int64(c.PrefixEnd)
	m.mode[i] = int64(c.Mode)
	m.beta[i] = min(max(c.Beta, 0), float32(m.bundle.NumSteps))
}

// Run computes the chunks of rows 0 to batch-1. Errors wrap ErrRun; the model stays
// usable. It blocks its thread inside the library; the garbage collector does not
// wait for it.
//
//rt:noalloc
func (m *Model) Run(batch int) error {
	if err := m.session.RunWithBinding(m.bindings[batch-1]); err != nil {
		return runError(err)
	}
	return nil
}

func runError(err error) error { return fmt.Errorf("%w: %w", ErrRun, err) }

// ChunkModel lends row i's chunk in the policy's own normalised units, [ChunkSize,
// ActionDim]. Lent until the next Run.
//
//rt:noalloc
func (m *Model) ChunkModel(i int) []float32 { return row(m.chunkModel, i, m.actionsRow) }

// ChunkRobot lends row i's chunk in robot units, [ChunkSize, ActionDim], in the
// order of ActionNames. Lent until the next Run.
//
//rt:noalloc
func (m *Model) ChunkRobot(i int) []float32 { return row(m.chunkRobot, i, m.actionsRow) }

// Finite tells whether row i's chunk holds neither NaN nor infinity. A chunk that is
// not finite must not leave the server.
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

// Close releases the session and the tensors. All lent slices die with it.
func (m *Model) Close() error {
	var errs []error
	for _, b := range m.bindings {
		errs = append(errs, b.Destroy())
	}
	for _, v := range m.values {
		errs = append(errs, v.Destroy())
	}
	if m.session != nil {
		errs = append(errs, m.session.Destroy())
	}
	if m.chunkRobot != nil { // allocated last
		for _, a := range m.images {
			freeArray(a)
		}
		for _, a := range [][]float32{m.state, m.noise, m.prefix, m.beta, m.chunkModel, m.chunkRobot} {
			freeArray(a)
		}
		for _, a := range [][]int64{m.prefixLen, m.delay, m.prefixEnd, m.mode} {
			freeArray(a)
		}
	}
	*m = Model{bundle: m.bundle}
	return errors.Join(errs...)
}

// row lends row i of size elements; the capacity ends with the row.
func row[T any](a []T, i, size int) []T { return a[i*size : (i+1)*size : (i+1)*size] }
