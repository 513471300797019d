package servertest

import (
	"math"
	"sync"
	"sync/atomic"

	"edgert/policy"
)

// Picture sides of the fake policy's only camera.
const (
	PictureH = 16
	PictureW = 24
)

// Meta describes the fake policy: two joints, one camera `top`, chunks of 8
// rows, a prefix trained up to 3 steps.
func Meta() *policy.Meta {
	return &policy.Meta{
		BundleVersion: policy.BundleVersion, PolicyType: "fake", SourceRepo: "test/fake", FPS: 60,
		ChunkSize: 8, ActionDim: 2, ActionNames: []string{"a.pos", "b.pos"}, ActionUnits: []string{"degrees", "percent"},
		StateNames: []string{"a.pos", "b.pos"}, StateUnits: []string{"degrees", "percent"},
		Cameras:  []policy.Camera{{Name: "top", H: PictureH, W: PictureW}},
		NumSteps: 10, NoiseDim: 2, RTC: "guided,trained", RTCMaxDelay: 3, PrefixEnd: 4,
	}
}

// Model is a policy that anyone can follow: row i of chunk_robot is the state
// plus (i+1)/100, chunk_model is half of it; with a trained prefix the first
// Delay rows are the prefix.
type Model struct {
	meta     *policy.Meta
	image    []byte
	state    []float32
	noise    []float32
	prefix   []float32
	tokens   []int64
	mask     []bool
	controls policy.Controls
	model    []float32
	robot    []float32

	// Before is called at the start of every Run, on the worker's thread; its
	// error fails the inference. Set it before the server runs.
	Before func() error
	// NotFinite puts a NaN into the next chunks.
	NotFinite atomic.Bool
	// Terminated is closed by the first Terminate; Run does not look at it.
	Terminated chan struct{}
	terminate  sync.Once
}

// NewModel makes a Model of Meta.
func NewModel() *Model {
	m := Meta()
	n := m.ChunkSize * m.ActionDim
	return &Model{
		Terminated: make(chan struct{}),
		meta:       m, image: make([]byte, m.Cameras[0].Bytes()), state: make([]float32, len(m.StateNames)),
		noise: make([]float32, m.ChunkSize*m.NoiseDim), prefix: make([]float32, n),
		model: make([]float32, n), robot: make([]float32, n),
	}
}

// Image lends the picture tensor.
func (m *Model) Image(_, _ int) []byte { return m.image }

// State lends the state tensor.
func (m *Model) State(int) []float32 { return m.state }

// Read makes the policy one that reads its task, of so many tokens at most.
func (m *Model) Read(maxLen int) { m.tokens, m.mask = make([]int64, maxLen), make([]bool, maxLen) }

// Tokens lends the task's tensor; it is empty before Read.
func (m *Model) Tokens(int) []int64 { return m.tokens }

// TokenMask lends the mask of Tokens.
func (m *Model) TokenMask(int) []bool { return m.mask }

// Noise lends the noise tensor.
func (m *Model) Noise(int) []float32 { return m.noise }

// Prefix lends the prefix tensor.
func (m *Model) Prefix(int) []float32 { return m.prefix }

// ChunkModel lends the first output.
func (m *Model) ChunkModel(int) []float32 { return m.model }

// ChunkRobot lends the second output.
func (m *Model) ChunkRobot(int) []float32 { return m.robot }

// SetControls keeps c for the next Run.
func (m *Model) SetControls(_ int, c policy.Controls) { m.controls = c }

// Run fills the outputs.
func (m *Model) Run(int) error {
	if m.Before != nil {
		if err := m.Before(); err != nil {
			return err
		}
	}
	for i := range m.robot {
		row, joint := i/m.meta.ActionDim, i%m.meta.ActionDim
		m.robot[i] = m.state[joint] + float32(row+1)/100
		if m.controls.Mode == policy.ModeTrained && row < m.controls.Delay {
			m.robot[i] = m.prefix[i]
		}
		m.model[i] = m.robot[i] / 2
	}
	if m.NotFinite.Load() {
		m.robot[0] = float32(math.NaN())
	}
	return nil
}

// Terminate closes Terminated.
func (m *Model) Terminate() error {
	m.terminate.Do(func() { close(m.Terminated) })
	return nil
}

// Finite reports whether the outputs are numbers.
func (m *Model) Finite(int) bool { return m.robot[0] == m.robot[0] }
