package server

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"edgert/policy"
	"edgert/rt"
	"edgert/server/audit"
	"edgert/server/queue"
)

const (
	// stuckAfter is how long one request may take before /healthz calls the worker
	// dead: longer than any policy takes, shorter than an operator waits.
	stuckAfter = 10 * time.Second
	// finishTimeout is what the request in hand gets at the end.
	finishTimeout = 1200 * time.Millisecond
)

// Model runs a policy for row i of a batch. Its slices are views of the tensors,
// valid for its life. Nothing here may allocate. It is a *policy.Model, or
// servertest's, which needs no ONNX Runtime.
//
// Owner: worker.
type Model interface {
	Image(i, cam int) []byte
	State(i int) []float32
	Tokens(i int) []int64
	TokenMask(i int) []bool
	Noise(i int) []float32
	Prefix(i int) []float32
	SetControls(i int, c policy.Controls)
	Run(batch int) error
	ChunkModel(i int) []float32
	ChunkRobot(i int) []float32
	Finite(i int) bool
	Terminate() error // by any goroutine: the run in hand and later ones end with an error
}

// worker is the one thread that owns the model. It serves one robot after the
// other: decode into the tensors, infer, publish.
type worker struct {
	*service
	audit  *audit.Writer // nil: none
	work   chan struct{} // cap 1: an observation waits, or a collection is due
	stop   chan struct{}
	warmed chan struct{} // closed after the warm-up
	done   chan struct{} // closed at the end; then err is valid
	lost   chan struct{} // closed when a run does not even end when it is terminated
	err    error

	// Atomic.
	alive      atomic.Bool
	collectDue atomic.Bool            // garbage is to be collected before the next request
	busySince  atomic.Int64           // rt.Instant at which the request in hand began; 0: none
	sick       atomic.Pointer[string] // why the device is given up; nil: it works

	// Owner: worker.
	scheduler queue.Scheduler
	waiting   []queue.Waiting // robots, at the last turn
	took      time.Duration   // expected of a turn
	turn      turn            // in hand
	tensors   *tensors
	publisher publisher
	failures  int // runs in a row

	watch watch // Owner: housekeeping
}

// turn is the request in hand and what becomes of it.
type turn struct {
	session *Session
	audit.Record
}

func newWorker(s *service, t *tensors, order queue.Scheduler, a *audit.Writer) *worker {
	return &worker{
		service: s, audit: a, scheduler: order, tensors: t, publisher: newPublisher(s),
		work: make(chan struct{}, 1), stop: make(chan struct{}), warmed: make(chan struct{}), done: make(chan struct{}), lost: make(chan struct{}),
	}
}

// start starts the worker's thread, which closes warmed after so many warm-up
// inferences.
func (w *worker) start(warmup int) {
	go func() {
		defer close(w.done)
		w.err = errors.Join(w.run(warmup), w.tensors.close())
	}()
}

// errStillInferring says that the worker's thread goes on using the model.
var errStillInferring = errors.New("server: the request in hand took longer")

// finish stops the worker. It lets the request in hand end, but does not wait
// for ever.
func (w *worker) finish() error {
	close(w.stop)
	return w.await()
}

// abandon stops a worker that warms up: the inference in hand is terminated, since
// nobody waits for it.
func (w *worker) abandon() error {
	close(w.stop)
	if err := w.tensors.model.Terminate(); err != nil {
		w.log.Warn("the warm-up cannot be terminated", "why", err)
	}
	return w.await()
}

func (w *worker) await() error {
	timeout := time.NewTimer(finishTimeout)
	defer timeout.Stop()
	select {
	case <-w.done:
		return w.err
	case <-timeout.C:
		return fmt.Errorf("%w than %v to finish", errStillInferring, finishTimeout)
	}
}

// run serves until stop is closed, on a thread of its own. A panic becomes an
// error: Go's exit code for a panic would say "do not restart".
func (w *worker) run(warmup int) (err error) {
	runtime.LockOSThread()
	w.alive.Store(true)
	defer func() {
		w.alive.Store(false)
		if p := recover(); p != nil {
			err = fmt.Errorf("server: the worker panicked: %v\n%s", p, debug.Stack())
		}
	}()
	if err := w.tensors.warmUp(warmup); err != nil {
		select {
		case <-w.stop:
			return nil // it was abandoned
		default:
		}
		return fmt.Errorf("server: warm-up: %w", err)
	}
	close(w.warmed)
	for {
		select {
		case <-w.stop:
			return nil
		default:
		}
		if err := w.sickness(); err != nil {
			return err
		}
		if w.collectDue.CompareAndSwap(true, false) {
			runtime.GC()
		}
		if w.step() {
			continue
		}
		select {
		case <-w.work:
		case <-w.stop:
			return nil
		}
	}
}

// collectNext has the worker collect garbage before its next request: only the
// worker knows when no request is in hand.
//
// Owner: any goroutine.
func (w *worker) collectNext() {
	w.collectDue.Store(true)
	wake(w.work)
}

// step gives the robot whose turn it is one inference; false when nobody waits.
//
//rt:noalloc
func (w *worker) step() bool {
	now := w.clock.Now()
	s := w.next(now)
	if s == nil {
		return false
	}
	r := s.mailbox.Take()
	if r == nil {
		return true // a reset emptied the mailbox in between; ask again
	}
	w.busySince.Store(int64(now))
	w.serve(s, r, now)
	w.busySince.Store(0)
	w.pool.Return(r)
	w.took += (w.clock.Now().Sub(now) - w.took) / 8
	return true
}

// next asks the scheduler who is served next, and tells the robots that gave way
// because nothing can come in time for them.
//
//rt:noalloc
func (w *worker) next(now rt.Instant) *Session {
	sessions := w.sessions.all()
	w.waiting = w.waiting[:0]
	for i, s := range sessions {
		if since, deadline, ok := s.mailbox.Waiting(); ok {
			w.waiting = append(w.waiting, queue.Waiting{ID: s.uuid, Robot: i, Since: since, Deadline: deadline})
		}
	}
	if len(w.waiting) == 0 {
		return nil
	}
	w.scheduler.Order(w.waiting, 1, now, now.Add(w.took), w.took)
	for _, passed := range w.waiting[1:] {
		if passed.Late {
			w.gaveWay(sessions[passed.Robot])
		}
	}
	return sessions[w.waiting[0].Robot]
}

//rt:noalloc
func (w *worker) gaveWay(s *Session) {
	if h, ok := s.mailbox.GaveWay(); ok {
		w.stats.gaveWay.Add(1)
		w.publisher.tellLate(s, &h)
	}
}

//rt:noalloc
func (w *worker) serve(s *Session, r *queue.Request, start rt.Instant) {
	t := &w.turn
	*t = turn{s, audit.Record{
		ClientUUID: s.uuid, SessionID: s.id, Task: s.opened.text, RTC: s.rtc, Header: r.Header, QueueWait: start.Sub(r.At),
	}}
	if runway, ok := r.Runway(); ok {
		w.stats.runway.record(runway)
	}
	var reply []byte
	if err := w.infer(t, r.Body, start); err != nil {
		w.stats.outcomes[t.Outcome].Add(1)
		if t.Outcome == audit.InferenceFailed {
			w.failed(err)
		}
		if w.sick.Load() == nil {
			w.publisher.refuse(t, err)
		} else {
			t.Why = eventText(err) // the robot is told with all others that the server leaves
		}
	} else {
		reply = w.publisher.publish(t, w.tensors)
	}
	t.At = w.clock.Now()
	t.Service = t.At.Sub(r.At)
	if t.Rows > 0 {
		w.stats.service.record(t.Service)
		s.answered.Add(1)
	}
	w.audit.Add(&t.Record, r.Body, reply)
}

//rt:noalloc
func (w *worker) infer(t *turn, body []byte, start rt.Instant) (err error) {
	t.Controls, err = w.tensors.fill(t.session, t.Header.SeqID, body)
	decoded := w.clock.Now()
	t.Decode = decoded.Sub(start)
	if err != nil {
		t.Outcome = audit.BadObservation
		return err
	}
	t.Task = w.tensors.task.text
	t.session.episode.Store(int64(t.Header.EpisodeID))
	t.Stale, t.Cameras = uint32(w.tensors.stale), w.tensors.contract.Cameras
	t.session.countPictures(w.stats, w.tensors.stale, w.tensors.stray)
	t.Outcome, err = w.tensors.infer()
	t.Inference = w.clock.Now().Sub(decoded)
	if t.Outcome != audit.InferenceFailed {
		w.failures = 0
	}
	if err != nil {
		return err
	}
	w.stats.wait.record(t.QueueWait)
	w.stats.decode.record(t.Decode)
	w.stats.inference.record(t.Inference)
	w.stats.modes[t.Controls.Mode].Add(1)
	w.stats.spans[w.tensors.spans].Add(1)
	w.tensors.remember(t.session)
	return nil
}

func (w *worker) healthy() (ok bool, why string) {
	if why := w.sick.Load(); why != nil {
		return false, *why
	}
	if !w.alive.Load() {
		return false, "worker dead"
	}
	since := w.busySince.Load()
	if since != 0 {
		if busy := w.clock.Now().Sub(rt.Instant(since)); busy > stuckAfter {
			return false, busyText(busy)
		}
	}
	return true, ""
}
