package policy

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	ort "github.com/yalue/onnxruntime_go"
)

// Bounds of Options: a value beyond them is a mistake.
const (
	maxBatchLimit   = 256
	maxBuffersLimit = 8
)

// Options of a Model.
type Options struct {
	MaxBatch     int // rows of one inference at most; 0: 1
	Buffers      int // sets of MaxBatch rows: with 2, one can be filled while the other runs; 0: 1
	IntraThreads int // threads inside one inference; 0: 1
}

// withDefaults fills in what is zero and checks the rest.
func (o Options) withDefaults() (Options, error) {
	o.MaxBatch, o.Buffers, o.IntraThreads = max(o.MaxBatch, 1), max(o.Buffers, 1), max(o.IntraThreads, 1)
	if o.MaxBatch > maxBatchLimit || o.Buffers > maxBuffersLimit {
		return o, fmt.Errorf("policy: max batch is %d with %d buffers, want at most %d with %d", o.MaxBatch, o.Buffers, maxBatchLimit, maxBuffersLimit)
	}
	return o, nil
}

// Model is an opened bundle: a session and its tensors for Buffers x MaxBatch rows.
// Rows are filled through Image, State, Noise, Prefix and SetControls, run with Run
// or RunBuffer, and read through ChunkModel and ChunkRobot. The slices they lend
// are the tensors' memory outside the Go heap, valid until Close: a row keeps its
// inputs until it is filled again, a chunk lasts until the next run of its buffer.
//
// Owner: one goroutine locked to its thread runs. Rows of a buffer that is not
// running may be filled and read by others, each row by one at a time.
type Model struct {
	// Constant after Open.
	bundle         *Bundle
	opt            Options
	batchInvariant bool // every golden row gave the same bytes alone and in its batch, on this machine
	session        *ort.DynamicAdvancedSession
	bindings       []*ort.IoBinding // [buffer * MaxBatch + batch - 1]
	values         []ort.Value      // tensors of all bindings

	// Tensor memory, row after row, listed by memories.
	images                      [][]byte // per camera
	state, noise, prefix        []float32
	tokens                      []int64
	tokenMask                   []bool
	prefixLen, delay, prefixEnd []int64
	mode, schedule              []int64
	beta, sigmaD                []float32
	chunkModel, chunkRobot      []float32
}

// Open builds the session, checks the graph against bundle.json, replays the golden
// sets and runs every batch size once; after OpenRuntime. A graph that does not
// load or fit is ErrBundle; a golden set that is not reproduced is ErrGolden with
// the difference.
func (b *Bundle) Open(opt Options) (*Model, error) {
	if !ort.IsInitialized() {
		return nil, fmt.Errorf("%w: call OpenRuntime before Open", ErrNoRuntime)
	}
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Model{bundle: b, opt: opt}
	if err := m.open(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Model) open() error {
	path := filepath.Join(m.bundle.Dir, graphName)
	if err := m.checkGraph(path); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBundle, path, err)
	}
	options, err := m.opt.session()
	if err != nil {
		return err
	}
	defer options.Destroy()
	if m.session, err = ort.NewDynamicAdvancedSession(path, nil, nil, options); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBundle, path, err)
	}
	m.allocate()
	if err := m.bind(); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	if err := m.replayGolden(); err != nil {
		return err
	}
	// The first run of a shape plans its memory: let no robot wait for that.
	for batch := 1; batch <= m.opt.MaxBatch; batch++ {
		if err := m.Run(batch); err != nil {
			return err
		}
	}
	return nil
}

// checkGraph asks for the graph's inputs and outputs. The wrapper only lists them
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

// session returns the library's session options.
func (o Options) session() (*ort.SessionOptions, error) {
	options, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		options.SetIntraOpNumThreads(o.IntraThreads),
		options.SetInterOpNumThreads(1), // the graphs are chains
		options.AddSessionConfigEntry("session.intra_op.allow_spinning", "0"),
		options.AddSessionConfigEntry("session.inter_op.allow_spinning", "0"),
	)
	if err != nil {
		return nil, errors.Join(err, options.Destroy())
	}
	return options, nil
}

// Bundle returns what the model was opened from.
func (m *Model) Bundle() *Bundle { return m.bundle }

// MaxBatch returns the largest batch.
func (m *Model) MaxBatch() int { return m.opt.MaxBatch }

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

// Noise lends row i's noise, NoiseRows of NoiseDim; empty for a policy without.
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

// TokenMask lends which of row i's tokens count.
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
	m.schedule[i] = int64(c.Schedule)
	m.sigmaD[i] = c.SigmaD
	if c.SigmaD <= 0 {
		m.sigmaD[i] = 1
	}
}

// Run computes the chunks of rows 0 to batch-1, 1 <= batch <= MaxBatch, and blocks
// its thread meanwhile. Errors wrap ErrRun; the model stays usable.
//
//rt:noalloc
func (m *Model) Run(batch int) error { return m.RunBuffer(0, batch) }

// RunBuffer is Run for the rows of one buffer: k*MaxBatch to k*MaxBatch+batch-1.
//
//rt:noalloc
func (m *Model) RunBuffer(k, batch int) error {
	if batch < 1 || batch > m.opt.MaxBatch {
		panic("policy: batch outside 1..MaxBatch")
	}
	if err := m.session.RunWithBinding(m.bindings[k*m.opt.MaxBatch+batch-1]); err != nil {
		return runError(err)
	}
	return nil
}

func runError(err error) error { return fmt.Errorf("%w: %w", ErrRun, err) }

// ChunkModel lends row i's chunk in the policy's own normalised units, [ChunkSize,
// ActionDim]. Lent until the next run of its buffer.
//
//rt:noalloc
func (m *Model) ChunkModel(i int) []float32 {
	return row(m.chunkModel, i, m.bundle.ChunkSize*m.bundle.ActionDim)
}

// ChunkRobot lends row i's chunk in robot units, [ChunkSize, ActionDim], in the
// order of ActionNames. Lent until the next run of its buffer.
//
//rt:noalloc
func (m *Model) ChunkRobot(i int) []float32 {
	return row(m.chunkRobot, i, m.bundle.ChunkSize*m.bundle.ActionDim)
}

// Finite reports whether row i's chunk holds only numbers; others must not leave.
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

// Close releases the session and the tensors. All lent slices are invalid then.
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
	m.free()
	*m = Model{bundle: m.bundle, opt: m.opt}
	return errors.Join(errs...)
}
