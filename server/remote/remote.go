// Package remote has the common part of the policies that other programs compute: a worker process
// in the user's Python, or a server that the user runs.
//
// A runtime opens such a program and returns a Policy, which consists of a description and of a
// Runtime that computes batches. Serve makes the Policy a Model. Its rows are allocated once and
// filled like the rows of a bundle's model.
package remote

import (
	"errors"
	"fmt"
	"math"

	"github.com/edge-rt/edge-rt/policy"
)

// Row is one request: inputs, and room for the chunk. Its slices are the Model's memory, and their
// addresses do not change.
//
// Owner: the goroutine that fills the row; during Batch the runtime.
type Row struct {
	policy.Request
	policy.Controls
	// Reset is true in the first request of a session and in the first request of each episode. It
	// stays true in the following requests until one succeeds.
	Reset  bool
	Images [][]byte  // [camera] RGB bytes [Steps][H][W][3], the oldest first
	State  []float32 // [Steps][StateNames], robot units
	Prefix []float32 // [ChunkSize][ActionDim], robot units; PrefixLen rows are valid
	// Batch writes the chunk: ChunkRobot [ChunkSize][ActionDim] in robot units, and ChunkModel in the policy's own
	// units. If the runtime does not have the chunk in those units, ChunkModel is a copy of ChunkRobot.
	ChunkModel, ChunkRobot []float32
}

// Runtime computes chunks. Its errors wrap policy.ErrRun. They also wrap policy.ErrAway while the program does not
// answer, and policy.ErrMemory when memory was short.
type Runtime interface {
	// Batch computes the chunks of the rows. It returns within the runtime's own time limit.
	//
	// Owner: one thread. Batch must not use rows after it has returned.
	Batch(rows []*Row) error
	// Interrupt ends the batch that is being computed with an error that wraps policy.ErrAway. The runtime recovers
	// and answers later batches.
	//
	// Owner: any goroutine.
	Interrupt()
	// Fail ends the program, or the connection, because even blank inputs failed with the error
	// why. The runtime then recovers. Owner: any goroutine, while no batch is being computed.
	Fail(why error)
	// Condition returns the state of the program or connection, for the page and the metrics, without blocking.
	//
	// Owner: any goroutine.
	Condition() Condition
	// Close ends the program, or the connection, and waits until it has ended.
	Close() error
}

// allocator is a Runtime that makes the rows in its own memory, and whose Batch accepts only these rows. Allocate is
// called once.
type allocator interface {
	Allocate(rows int) ([]*Row, error)
}

// Condition is a runtime's state.
type Condition struct {
	Ready    bool   // batches are answered
	State    string // a word or two, such as serving, loading, or waiting to restart
	Why      string // reason of the last failure; empty: there was none
	Failures uint64 // how often the program or its connection ended without a request to end
	Restarts uint64 // starts, or connections, after the first that succeeded
	Errors   uint64 // answers that are an error, or of another form than described
	Timeouts uint64 // batches that exceeded their time limit
	Memory   int64  // bytes that the program occupies; 0: unknown
}

// Text returns the state and its reason in one line; empty while batches are answered.
func (c *Condition) Text() string {
	if c.Ready {
		return ""
	}
	if c.Why == "" {
		return c.State
	}
	return c.State + ": " + c.Why
}

// Policy is an opened policy.
type Policy struct {
	policy.Meta
	Runtime Runtime

	SHA256    string // 64 hex digits: a checksum of all that is known about the policy
	Where     string // folder of the checkpoint, or URL of the server
	Version   string // version of the program, such as "lerobot 0.6.1"
	Program   string // file or address of the program
	Device    string // device in the form that policy.ParseDevice reads
	ReadsTask bool   // chunks depend on Request.Task
	// Exclusive marks a policy that keeps state of one robot between requests. Its server has one
	// session at a time.
	Exclusive bool
	MaxBatch  int // largest number of rows that Batch takes; 0 means 1
}

// Model is a Policy with its rows. It implements server.Model. Owner: see policy.Model.
type Model struct {
	*Policy
	maxBatch, buffers int
	rows              []*Row // rows of all buffers
	seen              sessions
	blank             []float32 // empty slice for tokens and noise, which this model does not have
}

// Serve returns a Model that has the given number of buffers with maxBatch rows each. maxBatch 0
// means the policy's MaxBatch. The Model then owns the policy and closes it.
func (p *Policy) Serve(maxBatch, buffers int) (*Model, error) {
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", policy.ErrBundle, p.Where, err)
	}
	p.MaxBatch = max(p.MaxBatch, 1)
	if maxBatch == 0 {
		maxBatch = p.MaxBatch
	}
	if maxBatch > p.MaxBatch {
		return nil, fmt.Errorf("%w: max_batch is %d, want at most %d, which this runtime computes together, or 0",
			policy.ErrBundle, maxBatch, p.MaxBatch)
	}
	m := &Model{
		Policy:   p,
		maxBatch: maxBatch,
		buffers:  buffers,
		seen:     sessions{episodes: map[string]int64{}},
	}
	var err error
	if own, ok := p.Runtime.(allocator); ok {
		m.rows, err = own.Allocate(buffers * maxBatch)
		return m, err
	}
	for range buffers * maxBatch {
		m.rows = append(m.rows, newRow(&p.Meta))
	}
	return m, nil
}

// newRow returns a row in the memory of this process, for a Runtime that is not an allocator.
func newRow(m *policy.Meta) *Row {
	chunk := m.ChunkSize * m.ActionDim
	r := &Row{
		State:      make([]float32, m.Steps()*len(m.StateNames)),
		Prefix:     make([]float32, chunk),
		ChunkModel: make([]float32, chunk),
		ChunkRobot: make([]float32, chunk),
	}
	for _, c := range m.Cameras {
		r.Images = append(r.Images, make([]byte, m.Steps()*c.Bytes()))
	}
	return r
}

// errNotFinite marks an answer with NaN or infinities.
var errNotFinite = errors.New("the answer has a value that is not finite")

// checkFinite returns an error that names the first value of the chunk that is not finite.
func (r *Row) checkFinite(m *policy.Meta) error {
	for i, v := range r.ChunkRobot {
		if d := float64(v); math.IsNaN(d) || math.IsInf(d, 0) {
			return fmt.Errorf("%w: action %d has %v for %s: the server's policy computes no usable action",
				errNotFinite, i/m.ActionDim, v, m.ActionNames[i%m.ActionDim])
		}
	}
	return nil
}

// MaxBatch returns the rows of a buffer.
func (m *Model) MaxBatch() int { return m.maxBatch }

// Buffers returns the number of buffers.
func (m *Model) Buffers() int { return m.buffers }

// Image lends row i's pictures from camera cam.
func (m *Model) Image(i, cam int) []byte { return m.rows[i].Images[cam] }

// State lends row i's joint state.
func (m *Model) State(i int) []float32 { return m.rows[i].State }

// Tokens returns nil, because the runtime reads the text of the task itself.
func (m *Model) Tokens(int) []int64 { return nil }

// TokenMask returns an empty mask, because there are no tokens.
func (m *Model) TokenMask(int) []bool { return nil }

// Noise returns an empty slice, because the runtime draws its own noise.
func (m *Model) Noise(int) []float32 { return m.blank }

// Prefix lends row i's prefix.
func (m *Model) Prefix(i int) []float32 { return m.rows[i].Prefix }

// SetControls sets row i's Real-Time Chunking inputs.
func (m *Model) SetControls(i int, c policy.Controls) { m.rows[i].Controls = c }

// SetRequest sets the session, episode, task and seed of the request in row i.
func (m *Model) SetRequest(i int, r policy.Request) { m.rows[i].Request = r }

// ChunkModel returns row i's chunk in the policy's units, which is valid until the next run.
func (m *Model) ChunkModel(i int) []float32 { return m.rows[i].ChunkModel }

// ChunkRobot lends row i's chunk in robot units.
func (m *Model) ChunkRobot(i int) []float32 { return m.rows[i].ChunkRobot }

// Finite reports whether row i's chunk has neither NaN nor infinities.
func (m *Model) Finite(i int) bool { return m.rows[i].checkFinite(&m.Meta) == nil }

// Run is RunBuffer of the first buffer.
func (m *Model) Run(batch int) error { return m.RunBuffer(0, batch) }

// RunBuffer computes the chunks of the first rows of a buffer.
func (m *Model) RunBuffer(k, batch int) error {
	rows := m.rows[k*m.maxBatch:][:batch]
	for _, r := range rows {
		r.Reset = m.seen.reset(&r.Request)
	}
	if err := m.Runtime.Batch(rows); err != nil {
		return err
	}
	for _, r := range rows {
		m.seen.answered(&r.Request)
	}
	return nil
}

// Terminate ends the present run.
func (m *Model) Terminate() error {
	m.Runtime.Interrupt()
	return nil
}

// Fail ends the program, or the connection, which then recovers.
func (m *Model) Fail(why error) { m.Runtime.Fail(why) }

// Condition returns the runtime's state.
func (m *Model) Condition() Condition { return m.Runtime.Condition() }

// TensorBytes returns the memory of all rows.
func (m *Model) TensorBytes() (n int64) {
	for _, r := range m.rows {
		n += int64(4 * (len(r.State) + 3*len(r.Prefix)))
		for _, image := range r.Images {
			n += int64(len(image))
		}
	}
	return n
}

// Close ends the runtime.
func (m *Model) Close() error { return m.Runtime.Close() }

// sessionsMax bounds the number of remembered sessions. The first request of a forgotten session has Reset set again.
const sessionsMax = 20_000

// sessions has, for each session, the episode of its last answered request. Owner: the thread that calls RunBuffer.
type sessions struct{ episodes map[string]int64 }

func (s *sessions) reset(r *policy.Request) bool {
	episode, known := s.episodes[r.Session]
	return !known || episode != r.Episode
}

func (s *sessions) answered(r *policy.Request) {
	if _, known := s.episodes[r.Session]; !known && len(s.episodes) >= sessionsMax {
		clear(s.episodes)
	}
	s.episodes[r.Session] = r.Episode
}
