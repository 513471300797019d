package servertest

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/policy"
)

// PictureH and PictureW are the height and width of the pictures of the fake policy's only camera.
const (
	PictureH = 16
	PictureW = 24
)

// Meta describes the fake policy: it has two joints, one camera `top` and chunks of 8 rows, and is trained for a prefix
// of up to 3 steps.
func Meta() *policy.Meta {
	return &policy.Meta{
		BundleVersion: policy.BundleVersion,
		PolicyType:    "fake",
		SourceRepo:    "test/fake",
		FPS:           60,
		ChunkSize:     8,
		ActionDim:     2,
		ActionNames:   []string{"a.pos", "b.pos"},
		ActionUnits:   []string{"degrees", "percent"},
		StateNames:    []string{"a.pos", "b.pos"},
		StateUnits:    []string{"degrees", "percent"},
		Cameras:       []policy.Camera{{Name: "top", H: PictureH, W: PictureW}},
		NumSteps:      10,
		NoiseDim:      2,
		RTC:           "guided,trained",
		RTCMaxDelay:   3,
		PrefixEnd:     4,
	}
}

// Model is a policy with predictable chunks: row i of chunk_robot is the state plus (i+1)/100, and chunk_model is half
// of chunk_robot. When a chunk is conditioned by the trained prefix, its first Delay rows are the prefix.
type Model struct {
	meta     *policy.Meta
	maxBatch int
	rows     []row // rows of all buffers

	// Before is called at the start of every run, on the device's thread; its
	// error fails the inference. Set it before the server runs.
	Before func() error
	// Ran is called at the end of every run that did not fail. Set it before the server runs.
	Ran func(buffer, batch int)
	// Poison makes a run fail if the state of one of its rows begins with this value; 0: no run fails.
	Poison float32
	// Overflow makes a row return NaN if its state begins with this value; 0: no row does.
	Overflow float32
	// Filling is called with the first joint of each row that is filled, by the thread
	// that fills it. Set it before the server runs.
	Filling func(joint float32)
	// Filled counts the rows whose controls were set, which is the last step of filling.
	Filled atomic.Int64
	// NotFinite puts a NaN into the next chunks.
	NotFinite atomic.Bool
	// Terminated is closed by the first call of Terminate, which ends no run.
	Terminated chan struct{}
	terminate  sync.Once
}

// row is one row of the tensors.
type row struct {
	image                []byte
	state, noise, prefix []float32
	tokens               []int64
	mask                 []bool
	controls             policy.Controls
	model, robot         []float32
}

// NewModel returns a Model of Meta with one row.
func NewModel() *Model { return NewBatchModel(1, 1) }

// NewBatchModel returns a Model of Meta with maxBatch rows in each of its buffers.
func NewBatchModel(maxBatch, buffers int) *Model {
	m := &Model{Terminated: make(chan struct{}), meta: Meta(), maxBatch: maxBatch}
	n := m.meta.ChunkSize * m.meta.ActionDim
	for range maxBatch * buffers {
		m.rows = append(m.rows, row{
			image:  make([]byte, m.meta.Cameras[0].Bytes()),
			state:  make([]float32, len(m.meta.StateNames)),
			noise:  make([]float32, m.meta.ChunkSize*m.meta.NoiseDim),
			prefix: make([]float32, n),
			model:  make([]float32, n),
			robot:  make([]float32, n),
		})
	}
	return m
}

// MaxBatch returns the number of rows of a buffer.
func (m *Model) MaxBatch() int { return m.maxBatch }

// Buffers returns the number of buffers.
func (m *Model) Buffers() int { return len(m.rows) / m.maxBatch }

// Image lends the picture tensor.
func (m *Model) Image(i, _ int) []byte { return m.rows[i].image }

// State lends the state tensor.
func (m *Model) State(i int) []float32 { return m.rows[i].state }

// Read makes the policy read its task, of at most maxLen tokens.
func (m *Model) Read(maxLen int) {
	for i := range m.rows {
		m.rows[i].tokens, m.rows[i].mask = make([]int64, maxLen), make([]bool, maxLen)
	}
}

// Look makes the policy take the given number of observations. Its chunk then begins, for each joint, with the sum over
// the steps, oldest first, of (1 + step) times the sum of the step's state and the first byte of its picture.
func (m *Model) Look(steps int) {
	m.meta.ObservationSteps = steps
	for i := range m.rows {
		r := &m.rows[i]
		r.image, r.state = make([]byte, steps*m.meta.Cameras[0].Bytes()), make([]float32, steps*len(m.meta.StateNames))
	}
}

// Tokens returns the tensor of row i's task, which is empty unless Read was called.
func (m *Model) Tokens(i int) []int64 { return m.rows[i].tokens }

// TokenMask lends the mask of Tokens.
func (m *Model) TokenMask(i int) []bool { return m.rows[i].mask }

// Noise lends the noise tensor.
func (m *Model) Noise(i int) []float32 { return m.rows[i].noise }

// Prefix lends the prefix tensor.
func (m *Model) Prefix(i int) []float32 { return m.rows[i].prefix }

// ChunkModel lends the first output.
func (m *Model) ChunkModel(i int) []float32 { return m.rows[i].model }

// ChunkRobot lends the second output.
func (m *Model) ChunkRobot(i int) []float32 { return m.rows[i].robot }

// SetControls keeps c for the next run.
func (m *Model) SetControls(i int, c policy.Controls) {
	if m.Filling != nil {
		m.Filling(m.rows[i].state[0])
	}
	m.rows[i].controls = c
	m.Filled.Add(1)
}

// RunBuffer fills the outputs of the first rows of a buffer.
func (m *Model) RunBuffer(k, batch int) error {
	if m.Before != nil {
		if err := m.Before(); err != nil {
			return err
		}
	}
	rows := m.rows[k*m.maxBatch:][:batch]
	for i := range rows {
		if r := &rows[i]; m.Poison != 0 && r.state[0] == m.Poison {
			return errPoison
		}
	}
	for i := range rows {
		m.infer(&rows[i])
	}
	if m.Ran != nil {
		m.Ran(k, batch)
	}
	return nil
}

var errPoison = fmt.Errorf("%w: a row is poison", policy.ErrRun)

func (m *Model) infer(r *row) {
	for i := range r.robot {
		step, joint := i/m.meta.ActionDim, i%m.meta.ActionDim
		r.robot[i] = m.seen(r, joint) + float32(step+1)/100
		if r.controls.Mode == policy.ModeTrained && step < r.controls.Delay {
			r.robot[i] = r.prefix[i]
		}
		r.model[i] = r.robot[i] / 2
	}
	if m.NotFinite.Load() || m.Overflow != 0 && r.state[0] == m.Overflow {
		r.robot[0] = float32(math.NaN())
	}
}

// seen returns the value from which the joint's values in the chunk of r are computed.
func (m *Model) seen(r *row, joint int) (sum float32) {
	if m.meta.Steps() == 1 {
		return r.state[joint]
	}
	for i := range m.meta.Steps() {
		sum += float32(i+1) * (r.state[i*len(m.meta.StateNames)+joint] + float32(r.image[i*m.meta.Cameras[0].Bytes()]))
	}
	return sum
}

// Terminate closes Terminated.
func (m *Model) Terminate() error {
	m.terminate.Do(func() { close(m.Terminated) })
	return nil
}

// Finite reports whether the outputs are finite.
func (m *Model) Finite(i int) bool { return m.rows[i].robot[0] == m.rows[i].robot[0] }
