package server

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"edgert/policy"
	"edgert/rt"
	"edgert/wire"
)

const (
	// eventInterval is the shortest time between two events to one robot. A stock
	// client takes an event for a lost chunk and asks again at once, so answering
	// each one would make the two race.
	eventInterval = 200 * time.Millisecond

	// hungAfter is how long one request may take before /healthz calls the worker
	// dead: longer than any policy, shorter than an operator's patience.
	hungAfter = 10 * time.Second

	eventTextMax = 1024 // bytes
)

// Model runs a policy for row i of a batch; *policy.Model is the real one. The
// slices are views of its tensors, valid for its life. Nothing here may
// allocate.
//
// Owner: worker.
type Model interface {
	Image(i, cam int) []byte
	State(i int) []float32
	Noise(i int) []float32
	Prefix(i int) []float32
	SetControls(i int, c policy.Controls)
	Run(batch int) error
	ChunkModel(i int) []float32
	ChunkRobot(i int) []float32
	Finite(i int) bool
}

// worker is the one thread that owns the model. It serves one robot after the
// other: decode into the tensors, infer, encode, publish.
type worker struct {
	// Constant after New.
	clock    rt.Clock
	meta     *policy.Meta
	model    Model
	sessions *registry
	limit    int // sessions, for server_load
	serverID string
	stats    *stats
	log      *slog.Logger
	wake     chan struct{} // cap 1: something was deposited
	stop     chan struct{}

	// Atomic.
	alive     atomic.Bool
	busySince atomic.Int64 // rt.Instant at which the request in hand began; 0: none

	// Owner: worker.
	row        *row
	turn       roundRobin
	chunk      wire.ActionChunk
	payload    []byte
	attachment []byte
}

// run serves until stop is closed, finishing the request in hand. It locks its
// goroutine to the OS thread for good. warmed is called after the warm-up
// inferences. A panic becomes an error: the process must not leave with the
// exit code that Go gives a panic, which says "do not restart".
func (w *worker) run(warmup int, warmed func()) (err error) {
	runtime.LockOSThread()
	w.alive.Store(true)
	defer func() {
		w.alive.Store(false)
		if p := recover(); p != nil {
			err = fmt.Errorf("server: the worker panicked: %v\n%s", p, debug.Stack())
		}
	}()
	if err := w.warm(warmup); err != nil {
		return fmt.Errorf("server: warm-up: %w", err)
	}
	warmed()
	for {
		select {
		case <-w.stop:
			return nil
		default:
		}
		if w.step() {
			continue
		}
		select {
		case <-w.wake:
		case <-w.stop:
			return nil
		}
	}
}

// warm runs n inferences on the tensors as they are, through every conditioning
// the policy has.
func (w *worker) warm(n int) error {
	for i := range n {
		rows := 0
		if i > 0 {
			rows = min(1, w.meta.ChunkSize)
		}
		policy.FillNoise(w.model.Noise(0), 0, uint64(i))
		w.model.SetControls(0, w.meta.Condition(rows, rows, 0))
		if err := w.model.Run(1); err != nil {
			return err
		}
	}
	return nil
}

// step gives the robot whose turn it is one inference; false when nobody waits.
//
//rt:noalloc
func (w *worker) step() bool {
	s := w.turn.next(w.sessions.all())
	if s == nil {
		return false
	}
	r, ok := s.box.take()
	if !ok {
		return true // a reset emptied the mailbox in between; ask again
	}
	now := w.clock.Now()
	w.busySince.Store(int64(now))
	w.serve(s, r, now)
	w.busySince.Store(0)
	return true
}

// serve answers one observation with a chunk, or with an event that says why
// not.
//
//rt:noalloc
func (w *worker) serve(s *Session, r *request, start rt.Instant) {
	h := r.header
	mode, err := w.row.fill(s, h.SeqID, r.body)
	if err != nil {
		w.stats.bad.Add(1)
		w.refuse(s, h, err)
		return
	}
	s.episode.Store(int64(h.EpisodeID))
	decoded := w.clock.Now()
	if err := w.model.Run(1); err != nil {
		w.stats.failed.Add(1)
		w.refuse(s, h, err)
		return
	}
	if !w.model.Finite(0) {
		w.stats.notFinite.Add(1)
		w.refuse(s, h, errNotFinite)
		return
	}
	inferred := w.clock.Now()
	w.stats.wait.Record(start.Sub(r.at))
	w.stats.decode.Record(decoded.Sub(start))
	w.stats.inference.Record(inferred.Sub(decoded))
	w.stats.modes[mode].Add(1)
	w.answer(s, h, start.Sub(r.at), inferred.Sub(start))
	w.stats.service.Record(w.clock.Now().Sub(r.at))
}

// errNotFinite is a chunk no robot may execute.
var errNotFinite = fmt.Errorf("%w: the chunk has a value that is not finite", policy.ErrRun)

//rt:noalloc
func (w *worker) answer(s *Session, h wire.Header, wait, inference time.Duration) {
	c, obs := &w.chunk, &w.row.obs
	*c = wire.ActionChunk{
		SeqIDEcho: h.SeqID, ClientMonoNsEcho: h.ClientMonoNs, EpisodeIDEcho: h.EpisodeID,
		ChunkModel:     wire.Matrix{Rows: w.meta.ChunkSize, Cols: w.meta.ActionDim, Data: w.model.ChunkModel(0)},
		ChunkRobot:     wire.Matrix{Rows: w.meta.ChunkSize, Cols: w.meta.ActionDim, Data: w.model.ChunkRobot(0)},
		QueueWaitMs:    ms(wait),
		InferenceMs:    ms(inference),
		SupersededSeqs: s.box.takeSuperseded(),
		ServerLoad:     float64(len(w.sessions.all())) / float64(w.limit),
		HasT:           obs.HasT, T: obs.T, HasN: obs.HasN, N: obs.N,
	}
	if obs.HasT {
		c.ServerID = w.serverID
	}
	w.payload = wire.AppendActionChunk(w.payload[:0], c)
	w.attachment = wire.AppendHeader(w.attachment[:0], h.Reply(wire.MsgActionChunk))
	if err := s.actions.Put(w.payload, w.attachment); err != nil {
		w.stats.unsent.Add(1)
		return
	}
	w.stats.requests.Add(1)
}

// refuse tells the robot, and the log, why there is no chunk.
//
//go:noinline
func (w *worker) refuse(s *Session, h wire.Header, err error) {
	now := w.clock.Now()
	if s.spoken && now.Sub(s.told) < eventInterval {
		w.stats.silenced.Add(1)
		return
	}
	s.told, s.spoken = now, true
	w.log.Warn("no chunk for "+s.uuid, "seq", h.SeqID, "why", err)
	put(s.actions, h, &wire.Event{Code: wire.EventBadObservation, Text: err.Error(), Seq: h.SeqID})
}

// put publishes an event beside the header of the observation it is about. An
// event that is lost is no worse than the chunk that was not sent.
func put(p wire.Publisher, h wire.Header, e *wire.Event) {
	e.Text = strings.ToValidUTF8(e.Text[:min(len(e.Text), eventTextMax)], "")
	_ = p.Put(wire.AppendEvent(nil, e), wire.AppendHeader(nil, h.Reply(wire.MsgEvent)))
}

// healthy reports whether the worker's thread lives and makes progress.
func (w *worker) healthy() (ok bool, why string) {
	if !w.alive.Load() {
		return false, "worker dead"
	}
	since := w.busySince.Load()
	if since != 0 {
		if busy := w.clock.Now().Sub(rt.Instant(since)); busy > hungAfter {
			return false, fmt.Sprintf("worker busy with one request for %.0f s", busy.Seconds())
		}
	}
	return true, ""
}
