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
	journal  *journal      // nil: none
	wake     chan struct{} // cap 1: something was deposited
	stop     chan struct{}

	// Atomic.
	alive     atomic.Bool
	littered  atomic.Bool  // garbage is to be collected before the next request
	busySince atomic.Int64 // rt.Instant at which the request in hand began; 0: none

	// Owner: worker.
	row        *row
	order      roundRobin
	turn       turn // in hand
	events     eventWriter
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
		if w.littered.CompareAndSwap(true, false) {
			runtime.GC()
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

// collectNext has the worker collect garbage before its next request: nobody
// else knows when no request is in hand.
//
// Owner: any goroutine.
func (w *worker) collectNext() {
	w.littered.Store(true)
	poke(w.wake)
}

// poke wakes whoever listens to c, a channel of capacity 1; nobody waits.
//
//rt:noalloc
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
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
		w.model.SetControls(0, w.meta.ConditionAs(&w.row.how, rows, rows, 0))
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
	s := w.order.next(w.sessions.all())
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
	t := &w.turn
	*t = turn{session: s, header: r.header, queueWait: start.Sub(r.at)}
	reply := w.payload[:0]
	if err := w.infer(t, r.body, start); err != nil {
		w.stats.outcomes[t.outcome].Add(1)
		w.refuse(t, err)
	} else {
		w.answer(t)
		reply = w.payload
	}
	t.at = w.clock.Now()
	t.service = t.at.Sub(r.at)
	if t.rows > 0 {
		w.stats.service.record(t.service)
	}
	w.journal.note(t, r.body, reply)
}

// infer turns the observation in body into a chunk in the model's outputs.
//
//rt:noalloc
func (w *worker) infer(t *turn, body []byte, start rt.Instant) (err error) {
	t.controls, err = w.row.fill(t.session, t.header.SeqID, body)
	decoded := w.clock.Now()
	t.decode = decoded.Sub(start)
	if err != nil {
		t.outcome = badObservation
		return err
	}
	t.session.episode.Store(int64(t.header.EpisodeID))
	t.stale, t.cameras = w.row.stale, w.row.contract.Cameras
	w.countStale(t.session, t.stale)
	w.countWarned(t.session, w.row.warned)
	err = w.model.Run(1)
	t.inference = w.clock.Now().Sub(decoded)
	if err != nil {
		t.outcome = inferenceFailed
		return err
	}
	if !w.model.Finite(0) {
		t.outcome = notFinite
		return errNotFinite
	}
	w.stats.wait.record(t.queueWait)
	w.stats.decode.record(t.decode)
	w.stats.inference.record(t.inference)
	w.stats.modes[t.controls.Mode].Add(1)
	w.stats.past[w.row.past].Add(1)
	w.row.remember(t.session)
	return nil
}

// errNotFinite is a chunk no robot may execute.
var errNotFinite = fmt.Errorf("%w: the chunk has a value that is not finite", policy.ErrRun)

// answer publishes the chunk. It takes the place of one that has not begun to
// leave: a robot that reads slowly shall get the newest, not the oldest.
//
//rt:noalloc
func (w *worker) answer(t *turn) {
	c := &w.chunk
	w.row.answer(c, &t.header)
	c.QueueWaitMs, c.InferenceMs = ms(t.queueWait), ms(t.decode+t.inference)
	c.SupersededSeqs = t.session.box.takeSuperseded()
	c.ServerLoad = float64(len(w.sessions.all())) / float64(w.limit)
	if c.HasT {
		c.ServerID = w.serverID
	}
	c.Nonce = t.session.nonce
	t.superseded, t.rows = c.SupersededSeqs, c.ChunkRobot.Rows
	if c.HasN {
		t.first = c.N + 1
	}
	w.payload = wire.AppendActionChunk(w.payload[:0], c)
	w.attachment = wire.AppendHeader(w.attachment[:0], t.header.Reply(wire.MsgActionChunk))
	replaced, err := t.session.actions.PutLatest(w.payload, w.attachment)
	if err != nil {
		t.outcome = unsent
		t.why = because(err)
	} else {
		w.stats.sentBytes.Add(uint64(len(w.payload)))
	}
	if replaced {
		w.stats.replaced.Add(1)
	}
	w.stats.outcomes[t.outcome].Add(1)
}

// refuse tells the robot, and the log, why there is no chunk. A failure of the
// model is a bad_observation too: the same again would fail again.
//
//go:noinline
func (w *worker) refuse(t *turn, err error) {
	t.why = because(err)
	if !t.session.told.due(w.clock.Now()) {
		w.stats.silenced.Add(1)
		return
	}
	w.log.Warn("no chunk for "+t.session.uuid, "seq", t.header.SeqID, "why", err)
	w.events.put(t.session.actions, &t.header, &wire.Event{Code: wire.EventBadObservation, Text: t.why, Seq: t.header.SeqID})
}

// because is the text of err, no longer than an event carries.
//
//go:noinline
func because(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), eventTextMax)], "")
}

// eventWriter publishes events; it owns what they are encoded into.
type eventWriter struct{ body, header []byte }

// put publishes an event beside the header of the observation it is about. An
// event that is lost is no worse than the chunk that was not sent.
func (w *eventWriter) put(p wire.Publisher, h *wire.Header, e *wire.Event) {
	w.body = wire.AppendEvent(w.body[:0], e)
	w.header = wire.AppendHeader(w.header[:0], h.Reply(wire.MsgEvent))
	_ = p.Put(w.body, w.header)
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
