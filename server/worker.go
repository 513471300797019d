package server

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/batch"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/queue"
)

const (
	// stuckAfter is the least time that one run may take before /healthz reports the worker as
	// stuck; a longer limit is stuckTimes the longest expected run. A large policy on a CPU takes
	// seconds, and several times as long beside other programs.
	stuckAfter = 10 * time.Second
	stuckTimes = 5
	// decodeTimes times that limit is how long decoding the rows of one batch may take, which
	// happens while a run is under way.
	decodeTimes = 2
	// finishTimeout is how long the run in hand may go on at the end before it is terminated, and
	// finishMost the limit for a slow policy: it is less than TimeoutStopSec of the systemd unit.
	finishTimeout, finishMost = 1200 * time.Millisecond, 10 * time.Second
	// decodersMax bounds the crew: a batch has no more rows.
	decodersMax = manifest.MaxBatch
)

// Model runs a policy. It has Buffers sets of MaxBatch rows; the rows of buffer k begin at
// k*MaxBatch. The returned slices are views of the tensors, valid for the model's life. No method
// may allocate. It is a *policy.Model, or servertest's, which needs no ONNX Runtime.
//
// Owner: each row is filled and read by one goroutine at a time, while its buffer does not run.
type Model interface {
	MaxBatch() int
	Buffers() int
	Image(i, cam int) []byte
	State(i int) []float32
	Tokens(i int) []int64
	TokenMask(i int) []bool
	Noise(i int) []float32
	Prefix(i int) []float32
	SetControls(i int, c policy.Controls)
	Stage(k, batch int) error     // begins to bring the filled rows of buffer k to the device
	RunBuffer(k, batch int) error // by one thread
	ChunkModel(i int) []float32
	ChunkRobot(i int) []float32
	Finite(i int) bool
	Terminate() error // by any goroutine: the run in hand and later ones end with an error
}

// worker chooses the robots of the next run, has their observations decoded into the rows of one
// buffer while the other buffer runs on the device's thread, and publishes the chunks. Only the
// worker uses the scheduler, the publisher, the statistics and the audit.
type worker struct {
	*service
	audit      *audit.Writer // nil: no request is recorded
	work       chan struct{} // cap 1: an observation waits, rows are filled, or a collection is due
	collectNow chan struct{} // cap 1: a collection would disturb least now
	stop       chan struct{}
	warmed     chan struct{} // closed after the warm-up
	done       chan struct{} // closed at the end; then err is valid
	lost       chan struct{} // closed when a run does not end although it was terminated
	err        error

	// Constant after newWorker.
	model  Model
	device *batch.Device
	crew   *batch.Crew[*turn]
	fills  []*tensors // of the crew's threads

	// Atomic.
	alive      atomic.Bool
	warmRuns   atomic.Uint64          // of the warm-up, so far
	collectDue atomic.Bool            // garbage is to be collected before the next request
	busySince  atomic.Int64           // rt.Instant at which the run in hand began; 0: the device is idle
	sick       atomic.Pointer[string] // why the device is given up; nil: it works

	// Owner: worker.
	scheduler   queue.Scheduler
	sizes       *batch.Sizes
	list        []*Session      // robots, at the last choice
	waiting     []queue.Waiting // those of list with a waiting observation
	buffers     []*buffer
	open        *buffer       // its rows are being filled; nil: no buffer's are
	running     *buffer       // on the device; nil: it is idle
	queued      *buffer       // runs right after running; nil: no buffer does
	began       bool          // a run has just begun: nothing else is urgent
	ends        rt.Instant    // expected end of the run in hand
	fillTook    time.Duration // expected for the rows of a batch
	alarm       rt.Instant    // when the worker must wake at the latest; 0: never
	timer       *time.Timer
	tensors     *tensors // of the worker's own thread
	publisher   publisher
	past        batch.Past // any goroutine may read it
	worked      rt.Instant // when a run last succeeded
	blankFinite bool       // the chunk of the server's own blank run is finite

	watch watch // Owner: housekeeping
}

func newWorker(s *service, m Model, fills []*tensors, order queue.Scheduler, a *audit.Writer) *worker {
	w := &worker{
		service:    s,
		audit:      a,
		scheduler:  order,
		model:      m,
		fills:      fills[1:],
		tensors:    fills[0],
		publisher:  newPublisher(s),
		device:     batch.NewDevice(m.RunBuffer, s.clock),
		sizes:      batch.NewSizes(policy.BatchSizes(m.MaxBatch())),
		work:       make(chan struct{}, 1),
		collectNow: make(chan struct{}, 1),
		stop:       make(chan struct{}),
		warmed:     make(chan struct{}),
		done:       make(chan struct{}),
		lost:       make(chan struct{}),
		timer:      time.NewTimer(time.Hour),
	}
	for k := range m.Buffers() {
		b := &buffer{index: k, first: k * m.MaxBatch(), turns: make([]turn, m.MaxBatch())}
		for i := range b.turns {
			b.turns[i].buffer, b.turns[i].row = b, b.first+i
		}
		w.buffers = append(w.buffers, b)
	}
	var work []func(*turn)
	for _, t := range w.fills {
		work = append(work, func(t2 *turn) { w.prepare(t, t2) })
	}
	w.crew = batch.NewCrew(m.Buffers()*m.MaxBatch(), work)
	return w
}

// decoders returns the number of threads that prepare rows beside the worker.
func decoders(cfg *manifest.Config, m Model) int {
	if cfg.DecodeThreads > 0 {
		return cfg.DecodeThreads
	}
	return min(max(1, runtime.NumCPU()-cfg.Threads), m.MaxBatch(), decodersMax)
}

// start starts the worker and its threads. The worker closes warmed after warmup warm-up
// inferences.
func (w *worker) start(warmup int) {
	w.device.Start()
	w.crew.Start()
	go func() {
		defer close(w.done)
		err := w.run(warmup)
		for w.running != nil { // the model must not be closed under it
			w.leave(<-w.device.Ended())
		}
		w.device.Close()
		<-w.device.Done()
		w.crew.Close()
		err = errors.Join(err, w.tensors.close())
		for _, t := range w.fills {
			err = errors.Join(err, t.close())
		}
		w.err = err
	}()
}

// errStillInferring marks that the device's thread still uses the model.
var errStillInferring = errors.New("server: the inference in hand took longer")

// finish stops the worker. It lets the run in hand end, terminates it when that takes too long, and
// does not wait for ever.
func (w *worker) finish() error {
	close(w.stop)
	limit := w.finishLimit()
	err := w.await(limit)
	if !errors.Is(err, errStillInferring) || w.sick.Load() != nil { // a run that hangs was terminated before
		return err
	}
	w.log.Warn("the inference in hand is terminated: the server leaves", "after", limit)
	w.terminate()
	return w.await(terminateTimeout)
}

// finishLimit returns how long the run in hand may go on: until one and a half times the longest
// expected run after its begin, at least finishTimeout and at most finishMost.
func (w *worker) finishLimit() time.Duration {
	since := rt.Instant(w.busySince.Load())
	if since == 0 || w.sick.Load() != nil {
		return finishTimeout
	}
	left := since.Add(w.longestRun() * 3 / 2).Sub(w.clock.Now())
	return max(finishTimeout, min(left, finishMost))
}

// abandon stops a worker that warms up. It terminates the inference in hand, because no robot waits
// for the result.
func (w *worker) abandon() error {
	close(w.stop)
	w.terminate()
	return w.await(finishTimeout)
}

func (w *worker) terminate() {
	if err := w.model.Terminate(); err != nil {
		w.log.Warn("the inference in hand cannot be terminated", "why", err)
	}
}

func (w *worker) await(limit time.Duration) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-w.done:
		return w.err
	case <-timeout.C:
		return fmt.Errorf("%w than %v to finish", errStillInferring, limit)
	}
}

// run serves until stop is closed. A panic becomes an error: Go's exit code for a panic would mean
// "do not restart" to the supervisor.
func (w *worker) run(warmup int) (err error) {
	w.alive.Store(true)
	defer func() {
		w.alive.Store(false)
		if p := recover(); p != nil {
			err = fmt.Errorf("server: the worker panicked: %v\n%s", p, debug.Stack())
		}
	}()
	if err := w.warmUp(warmup); err != nil {
		select {
		case <-w.stop:
			return nil // the warm-up was abandoned
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
		w.collect()
		if w.step() || w.probeIdle(w.clock.Now()) {
			continue
		}
		if w.alarm != 0 {
			w.timer.Reset(w.alarm.Sub(w.clock.Now()))
		}
		select {
		case e := <-w.device.Ended():
			if err := w.end(e); err != nil {
				return err
			}
		case <-w.work:
		case <-w.timer.C:
		case <-w.stop:
			return nil
		}
	}
}

// warmUp runs n inferences of one row through every conditioning that the policy has, and one of
// each larger size, so that their durations are known.
func (w *worker) warmUp(n int) error {
	for row := range w.model.Buffers() * w.model.MaxBatch() {
		w.tensors.blank(row, false, 0) // a row that no request fills may run beside a filled one
	}
	warm := func(size int) error {
		e := w.device.Do(0, size)
		w.sizes.Learn(size, e.At.Sub(e.Begun))
		if size == 1 {
			w.pace.warm(e.At.Sub(e.Begun))
		}
		w.warmRuns.Add(1)
		w.blankFinite = e.Err == nil && w.model.Finite(0)
		return e.Err
	}
	defer func() { w.worked = w.clock.Now() }()
	for i := range n {
		w.tensors.blank(0, i > 0, uint64(i))
		if err := warm(1); err != nil {
			return err
		}
	}
	for _, size := range w.sizes.All()[1:] {
		if n == 0 {
			break
		}
		if err := warm(size); err != nil {
			return err
		}
	}
	return nil
}

// collectNext has garbage collected when no robot waits for the worker: only the worker knows such
// a moment.
//
// Owner: any goroutine.
func (w *worker) collectNext() {
	w.collectDue.Store(true)
	wake(w.work)
}

// collect starts a due garbage collection while the worker is idle, or when a run has just begun,
// because then the next work is far away. The housekeeping collects: a collection takes
// milliseconds, many on a busy machine, and stops the other goroutines for a fraction of one.
func (w *worker) collect() {
	if (w.running == nil && w.open == nil || w.began) && w.collectDue.CompareAndSwap(true, false) {
		wake(w.collectNow)
	}
	w.began = false
}

// step does the work that can be done now; false when the worker has to wait.
//
//rt:noalloc
func (w *worker) step() bool {
	w.alarm = 0
	chosen := w.choose(w.clock.Now())
	return w.begin(w.clock.Now()) || chosen
}

// wakeAt wakes the worker at that instant at the latest.
//
//rt:noalloc
func (w *worker) wakeAt(at rt.Instant) {
	if w.alarm == 0 || at < w.alarm {
		w.alarm = at
	}
}

// begin starts the run of the filled rows, when the device is idle and the batch need not wait for
// more. A full batch is queued after the run in hand, so that the device does not wait for the
// worker between the two.
//
//rt:noalloc
func (w *worker) begin(now rt.Instant) bool {
	b := w.open
	if b == nil || b.filling.Load() > 0 || w.queued != nil || w.running != nil && b.used < len(b.turns) {
		return false
	}
	if until := b.oldest.Add(w.window); now < until &&
		b.used < w.sizes.Choose(min(len(b.turns), len(w.sessions.all()))) {
		w.wakeAt(until)
		return false
	}
	given := b.used
	for b.used > 0 && b.turns[b.used-1].err != nil { // a bad row between others runs, and its chunk is ignored
		b.used--
	}
	w.open = nil
	if b.used > 0 {
		if w.running == nil {
			w.runs(b, now)
		} else {
			w.queued = b
			w.stage(b)
		}
		w.device.Begin(b.index, w.sizes.Fit(b.used))
	}
	w.refuseBad(b, given)
	return true
}

// runs notes which buffer is on the device.
//
//rt:noalloc
func (w *worker) runs(b *buffer, now rt.Instant) {
	w.running = b
	w.began = true
	w.ends = now.Add(w.sizes.Took(w.sizes.Fit(b.used)))
	w.busySince.Store(int64(now))
}

// stage brings a batch to the device while another one runs.
//
//rt:noalloc
func (w *worker) stage(b *buffer) {
	if err := w.model.Stage(b.index, w.sizes.Fit(b.used)); err != nil {
		w.stageFailed(err) // the run will fail with the same error
	}
}

//go:noinline
func (w *worker) stageFailed(err error) { w.log.Warn("a batch cannot be staged", "why", err) }

// refuseBad refuses, one by one, those requests in the first rows of b that could not be decoded,
// and updates the expected time of filling.
//
//rt:noalloc
func (w *worker) refuseBad(b *buffer, rows int) {
	ready := b.begun
	for i := range rows {
		t := &b.turns[i]
		ready = max(ready, t.ready)
		if t.err != nil {
			t.Outcome, t.QueueWait = audit.BadObservation, t.begun.Sub(t.request.At)
			w.close(t, t.err)
		}
	}
	w.fillTook += (ready.Sub(b.begun) - w.fillTook) / 8
}

// end takes back the buffer of a run that is over.
//
//rt:noalloc
func (w *worker) end(e batch.Ended) error {
	b := w.running
	w.running = nil
	w.past.Add(batch.Run{
		Begun:    e.Begun,
		Took:     e.At.Sub(e.Begun),
		Size:     e.Size,
		Requests: b.requests(),
		Failed:   e.Err != nil,
	})
	if behind := w.queued; behind != nil {
		w.queued = nil
		w.runs(behind, e.At)
	}
	if e.Panicked {
		return e.Err
	}
	if e.Err != nil {
		return w.endFailed(b, e)
	}
	w.sizes.Learn(e.Size, e.At.Sub(e.Begun))
	w.stats.batches[b.requests()-1].Add(1)
	w.worked = e.At
	if !w.checkFinite(b) {
		return w.endNotFinite(b, e)
	}
	w.begin(w.clock.Now()) // first, so that the device does not wait
	w.answer(b, e)
	w.free(b)
	return nil
}

// checkFinite marks the turns whose chunk is not finite, which no robot may execute; it returns
// false when there is such a turn.
//
//rt:noalloc
func (w *worker) checkFinite(b *buffer) bool {
	all := true
	for i := range b.used {
		if t := &b.turns[i]; t.session != nil && !w.model.Finite(t.row) {
			t.err, all = errNotFinite, false
		}
	}
	return all
}

// endNotFinite is end for a run with chunks that are not finite. It answers the other turns first,
// because judge runs the device again and overwrites their chunks.
//
//go:noinline
func (w *worker) endNotFinite(b *buffer, e batch.Ended) error {
	behind, waits := w.waitBehind()
	for i := range b.used {
		if t := &b.turns[i]; t.session != nil && t.err == nil {
			w.answerOne(t, &e)
		}
	}
	w.judge(errNotFinite, b, e.Size)
	w.answer(b, e)
	return w.endedSlowly(b, behind, waits)
}

// waitBehind waits for the run that was queued after the ended one: then the device is free for
// judge.
func (w *worker) waitBehind() (behind batch.Ended, waits bool) {
	if w.running == nil {
		return behind, false
	}
	return <-w.device.Ended(), true
}

// endedSlowly frees b and ends the run that waitBehind has waited for.
func (w *worker) endedSlowly(b *buffer, behind batch.Ended, waits bool) error {
	w.free(b)
	if waits {
		return w.end(behind)
	}
	return nil
}

// runNow runs the first rows of b and waits for the end. No other run may be under way.
func (w *worker) runNow(b *buffer, rows, requests int) batch.Ended {
	w.busySince.Store(int64(w.clock.Now())) // it gets the whole time limit of a run
	e := w.device.Do(b.index, rows)
	w.past.Add(batch.Run{
		Begun:    e.Begun,
		Took:     e.At.Sub(e.Begun),
		Size:     rows,
		Requests: requests,
		Failed:   e.Err != nil,
	})
	return e
}

// endFailed is end for a run that failed.
//
//go:noinline
func (w *worker) endFailed(b *buffer, e batch.Ended) error {
	behind, waits := w.waitBehind()
	memory := errors.Is(e.Err, policy.ErrMemory)
	if memory || b.requests() == 1 {
		w.judge(e.Err, b, e.Size)
	}
	if b.requests() > 1 && w.sick.Load() == nil {
		if err := w.oneByOne(b, e.Err); err != nil {
			return err
		}
	} else {
		w.answer(b, e)
	}
	return w.endedSlowly(b, behind, waits)
}

// free makes a buffer ready to be filled again.
//
//rt:noalloc
func (w *worker) free(b *buffer) {
	b.used = 0
	if w.running == nil {
		w.busySince.Store(0)
	}
}

// oneByOne runs the requests of a failed batch again, each alone, so that only the request that
// causes the failure gets no chunk. The error that it returns is a panic of the device's thread.
//
//go:noinline
func (w *worker) oneByOne(b *buffer, why error) error {
	w.log.Warn("a batch failed: its requests run one by one", "requests", b.used, "why", why)
	w.stats.reruns.Add(1)
	for i := range b.used {
		t := &b.turns[i]
		if t.session == nil {
			continue
		}
		if w.sick.Load() != nil {
			t.Outcome = audit.InferenceFailed
			w.close(t, why)
			continue
		}
		t.row = b.first
		if w.fill(w.tensors, t); t.err != nil {
			t.Outcome = audit.BadObservation
			w.close(t, t.err)
			continue
		}
		e := w.runNow(b, 1, 1)
		switch {
		case e.Panicked:
			return e.Err
		case e.Err != nil:
			w.judge(e.Err, b, 1)
		case !w.model.Finite(t.row):
			t.err = errNotFinite
			w.judge(t.err, b, 1)
		}
		w.answerOne(t, &e)
	}
	return nil
}

// leave takes back the run in hand when the worker has stopped.
func (w *worker) leave(e batch.Ended) {
	b := w.running
	w.running, w.queued = w.queued, nil
	if e.Err == nil {
		w.checkFinite(b)
	}
	w.answer(b, e)
	w.busySince.Store(0)
}
