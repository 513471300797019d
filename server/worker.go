package server

import (
	"errors"
	"fmt"
	"log/slog"
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

// decodersMax bounds the threads that decode. More threads would be idle, because a batch has no more rows.
const decodersMax = manifest.MaxBatch

// worker chooses the robots of the next run, has their observations decoded into the rows of one
// buffer while the other buffer runs on the device's thread, and publishes the chunks. Only the
// worker uses the scheduler and the publisher.
type worker struct {
	// Constant after New.
	clock      rt.Clock
	log        *slog.Logger
	window     time.Duration // how long a batch waits to fill
	sessions   *registry
	stats      *stats
	engine     *engine
	filler     *filler
	publisher  *publisher
	work       queue.Signal  // signals that an observation waits, rows are filled, or a collection is due
	collectNow queue.Signal  // signals to housekeeping that a collection would disturb least now
	warmed     chan struct{} // closed after the warm-up
	done       chan struct{} // closed at the end; then err is valid
	err        error

	// Atomic.
	alive      atomic.Bool
	collectDue atomic.Bool // garbage is to be collected before the next request

	// Owner: worker.
	scheduler queue.Scheduler
	list      []*session      // robots at the last choice
	waiting   []queue.Waiting // the robots of list with a waiting observation
	open      *buffer         // the buffer whose rows are being filled; nil: there is none
	running   *buffer         // buffer on the device; nil: the device is idle
	queued    *buffer         // buffer that runs right after running; nil: there is none
	began     bool            // a run has just begun, so nothing else is urgent
	ends      rt.Instant      // expected end of the present run
	fillTook  time.Duration   // expected time to fill the rows of a batch
	alarm     rt.Instant      // when the worker must wake at the latest; 0: never
	timer     *time.Timer
}

// decoders returns the number of threads that prepare rows in addition to the worker's thread.
func decoders(cfg *manifest.Config, m Model) int {
	if cfg.DecodeThreads > 0 {
		return cfg.DecodeThreads
	}
	return min(max(1, runtime.NumCPU()-cfg.Threads), m.MaxBatch(), decodersMax)
}

// start starts the worker and its threads. The worker first runs the warm-up, whose number of inferences is warmup, and
// then closes w.warmed.
func (w *worker) start(warmup int) {
	w.engine.device.Start()
	w.filler.threads.Start()
	go func() {
		defer close(w.done)
		err := w.run(warmup)
		for w.running != nil { // the model must not be closed while a run uses it
			w.leave(<-w.engine.device.Ended())
		}
		w.engine.device.Close()
		<-w.engine.device.Done()
		w.err = errors.Join(err, w.filler.close())
	}()
}

// errStillInferring is the error of a worker that has ended while its device still uses the model.
var errStillInferring = errors.New("server: the inference in hand took longer")

// finish stops the worker. It waits for the present run, and terminates a run that takes too long.
// When the run does not end even then, finish returns errStillInferring.
func (w *worker) finish() error {
	close(w.publisher.leaving)
	limit := w.engine.finishLimit()
	err := w.await(limit)
	// a run that exceeded its time limit has been terminated already
	if !errors.Is(err, errStillInferring) || w.engine.failed.Load() != nil {
		return err
	}
	w.log.Warn("the inference in hand is terminated: the server leaves", "after", limit)
	w.engine.terminate()
	return w.await(terminateTimeout)
}

// abandon stops a worker that is warming up. It terminates the present inference, because no robot
// waits for its result.
func (w *worker) abandon() error {
	close(w.publisher.leaving)
	w.engine.terminate()
	return w.await(finishTimeout)
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

// run serves until publisher.leaving is closed. It turns a panic into an error, because Go's exit code for a panic
// would mean "do not restart" to the supervisor.
func (w *worker) run(warmup int) (err error) {
	w.alive.Store(true)
	defer func() {
		w.alive.Store(false)
		if p := recover(); p != nil {
			err = fmt.Errorf("server: the worker panicked: %v\n%s", p, debug.Stack())
		}
	}()
	if err := w.engine.warmUp(warmup); err != nil {
		select {
		case <-w.publisher.leaving:
			return nil // the warm-up was abandoned
		default:
		}
		return fmt.Errorf("server: warm-up: %w", err)
	}
	close(w.warmed)
	for {
		select {
		case <-w.publisher.leaving:
			return nil
		default:
		}
		if err := w.engine.failure(); err != nil {
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
		case e := <-w.engine.device.Ended():
			if err := w.end(e); err != nil {
				return err
			}
		case <-w.work:
		case <-w.timer.C:
		case <-w.publisher.leaving:
			return nil
		}
	}
}

// collectNext requests a garbage collection. The worker starts it at a moment when no robot waits for the worker.
//
// Owner: any goroutine.
func (w *worker) collectNext() {
	w.collectDue.Store(true)
	w.work.Wake()
}

// collect starts a due garbage collection while the worker is idle, or when a run has just begun,
// because then the worker has nothing to do for a while. Housekeeping's goroutine runs the
// collection, which takes some milliseconds, or more on a busy machine. It stops the other
// goroutines for only a fraction of a millisecond.
func (w *worker) collect() {
	if (w.running == nil && w.open == nil || w.began) && w.collectDue.CompareAndSwap(true, false) {
		w.collectNow.Wake()
	}
	w.began = false
}

// step does the work that can be done now. It returns false when there was nothing to do, and then
// the worker has to wait.
//
//rt:noalloc
func (w *worker) step() bool {
	w.alarm = 0
	chosen := w.choose(w.clock.Now())
	return w.begin(w.clock.Now()) || chosen
}

// wakeAt sets the worker's alarm so that the worker wakes at the given instant or earlier.
//
//rt:noalloc
func (w *worker) wakeAt(at rt.Instant) {
	if w.alarm == 0 || at < w.alarm {
		w.alarm = at
	}
}

// begin starts the run of the filled rows when the device is idle and the batch need not wait for
// more requests. While a run is under way, it queues a full batch after it, so that the device need
// not wait for the worker between the two. It reports whether it has started or queued a run, or
// refused a batch of bad observations.
//
//rt:noalloc
func (w *worker) begin(now rt.Instant) bool {
	b := w.open
	if b == nil || b.filling.Load() > 0 || w.queued != nil || w.running != nil && b.used < len(b.slots) {
		return false
	}
	if until := b.oldest.Add(w.window); now < until &&
		b.used < w.engine.sizes.Choose(min(len(b.slots), len(w.sessions.all()))) {
		w.wakeAt(until)
		return false
	}
	given := b.used
	for b.used > 0 && b.slots[b.used-1].err != nil { // bad rows before a good row run, too
		b.used--
	}
	w.open = nil
	if b.used > 0 {
		if w.running == nil {
			w.runs(b, now)
		} else {
			w.queued = b
		}
		w.engine.device.Begin(b.index, w.engine.sizes.Fit(b.used))
	}
	w.refuseBad(b, given)
	return true
}

// runs records that b is on the device from now on, and when its run is expected to end.
//
//rt:noalloc
func (w *worker) runs(b *buffer, now rt.Instant) {
	w.running = b
	w.began = true
	w.ends = now.Add(w.engine.sizes.Took(w.engine.sizes.Fit(b.used)))
	w.engine.busySince.Store(int64(now))
}

// refuseBad refuses, one by one, those requests in the first rows of b that could not be decoded,
// and updates the expected time of filling.
//
//rt:noalloc
func (w *worker) refuseBad(b *buffer, rows int) {
	ready := b.begun
	for i := range rows {
		t := &b.slots[i]
		ready = max(ready, t.ready)
		if t.err != nil {
			t.Outcome, t.QueueWait = audit.BadObservation, t.begun.Sub(t.request.At)
			w.publisher.close(t, t.err)
		}
	}
	w.fillTook += (ready.Sub(b.begun) - w.fillTook) / 8
}

// end answers the requests of a run that has ended and frees its buffer. A queued run, if there is
// one, becomes the present run.
//
//rt:noalloc
func (w *worker) end(e batch.Ended) error {
	b := w.running
	w.running = nil
	w.engine.past.Add(batch.Run{
		Begun:    e.Begun,
		Took:     e.At.Sub(e.Begun),
		Size:     e.Size,
		Requests: b.requests(),
		Failed:   e.Err != nil,
	})
	if next := w.queued; next != nil {
		w.queued = nil
		w.runs(next, e.At)
	}
	if e.Panicked {
		return e.Err
	}
	if e.Err != nil {
		return w.endFailed(b, e)
	}
	w.engine.sizes.Learn(e.Size, e.At.Sub(e.Begun))
	w.stats.batches[b.requests()-1].Add(1)
	w.engine.worked = e.At
	if !w.checkFinite(b) {
		return w.endNotFinite(b, e)
	}
	w.begin(w.clock.Now()) // first, so that the device does not wait
	w.publisher.answer(b, e)
	w.free(b)
	return nil
}

// checkFinite marks the requests whose chunk is not finite, which no robot may execute. It returns false when there is
// such a request.
//
//rt:noalloc
func (w *worker) checkFinite(b *buffer) bool {
	all := true
	for i := range b.used {
		if t := &b.slots[i]; t.session != nil && !w.engine.model.Finite(t.row) {
			t.err, all = errNotFinite, false
		}
	}
	return all
}

// endNotFinite does the work of end for a run with chunks that are not finite. It answers the other requests first,
// because judge runs the device again and overwrites their chunks.
//
//go:noinline
func (w *worker) endNotFinite(b *buffer, e batch.Ended) error {
	queued := w.waitQueued()
	for i := range b.used {
		if t := &b.slots[i]; t.session != nil && t.err == nil {
			w.publisher.answerOne(t, &e)
		}
	}
	err := w.engine.judge(errNotFinite, b, e.Size)
	for i := range b.used {
		if t := &b.slots[i]; errors.Is(t.err, errNotFinite) {
			t.err = err
		}
	}
	w.publisher.answer(b, e)
	return w.endedSlowly(b, queued)
}

// waitQueued waits for the end of the run that was queued after the ended run, so that the device is free for judge. It
// returns nil if there is no such run.
func (w *worker) waitQueued() *batch.Ended {
	if w.running == nil {
		return nil
	}
	queued := <-w.engine.device.Ended()
	return &queued
}

// endedSlowly frees b and ends the run that waitQueued has waited for.
func (w *worker) endedSlowly(b *buffer, queued *batch.Ended) error {
	w.free(b)
	if queued != nil {
		return w.end(*queued)
	}
	return nil
}

// endFailed does the work of end for a run that failed.
//
//go:noinline
func (w *worker) endFailed(b *buffer, e batch.Ended) error {
	queued := w.waitQueued()
	if errors.Is(e.Err, policy.ErrMemory) || b.requests() == 1 {
		e.Err = w.engine.judge(e.Err, b, e.Size)
	}
	if b.requests() > 1 && w.engine.failed.Load() == nil {
		if err := w.oneByOne(b, e.Err); err != nil {
			return err
		}
	} else {
		w.publisher.answer(b, e)
	}
	return w.endedSlowly(b, queued)
}

// free makes a buffer ready to be filled again.
//
//rt:noalloc
func (w *worker) free(b *buffer) {
	b.used = 0
	if w.running == nil {
		w.engine.busySince.Store(0)
	}
}

// oneByOne runs the requests of a failed batch again, each alone, so that only the request that causes the failure gets
// no chunk. It returns an error only when a run panics.
//
//go:noinline
func (w *worker) oneByOne(b *buffer, why error) error {
	w.log.Warn("a batch failed: its requests run one by one", "requests", b.used, "why", why)
	w.stats.reruns.Add(1)
	for i := range b.used {
		t := &b.slots[i]
		if t.session == nil {
			continue
		}
		if w.engine.failed.Load() != nil {
			t.Outcome = audit.InferenceFailed
			w.publisher.close(t, why)
			continue
		}
		t.row = b.first
		if w.filler.fill(w.filler.own, t); t.err != nil {
			t.Outcome = audit.BadObservation
			w.publisher.close(t, t.err)
			continue
		}
		e := w.engine.runNow(b, 1, 1)
		switch {
		case e.Panicked:
			return e.Err
		case e.Err != nil:
			e.Err = w.engine.judge(e.Err, b, 1)
		case !w.engine.model.Finite(t.row):
			t.err = w.engine.judge(errNotFinite, b, 1)
		}
		w.publisher.answerOne(t, &e)
	}
	return nil
}

// leave answers the robots of the present batch when the worker stops. Their run has ended with e.
func (w *worker) leave(e batch.Ended) {
	b := w.running
	w.running, w.queued = w.queued, nil
	if e.Err == nil {
		w.checkFinite(b)
	}
	w.publisher.answer(b, e)
	w.engine.busySince.Store(0)
}

// probeIdle runs an inference of the server's own when the device was idle for long. So a server
// whose device has died detects this and ends. It returns false when no inference was due.
func (w *worker) probeIdle(now rt.Instant) bool {
	if w.running != nil || w.open != nil {
		return false
	}
	if due := w.engine.worked.Add(max(probeInterval, probeShare*w.engine.sizes.Took(1))); now < due {
		w.wakeAt(due)
		return false
	}
	w.engine.worked = now
	if err, _ := w.engine.probe(w.engine.buffers[0], 1); err != nil {
		w.log.Warn("a run of the server's own failed", "why", err)
		_ = w.engine.judge(err, w.engine.buffers[0], 1) // no robot waits for this run
	}
	w.engine.busySince.Store(0)
	return true
}

// healthy reports whether the worker runs and makes progress.
//
// Owner: any goroutine.
func (w *worker) healthy() (ok bool, why string) {
	if why := w.engine.failed.Load(); why != nil {
		return false, *why
	}
	if !w.alive.Load() {
		return false, "worker dead"
	}
	_, why = w.engine.overdue(w.clock.Now())
	return why == "", why
}

// choose assigns rows of the next buffer to the robots that the scheduler puts first. While a run
// is under way, it chooses as late as the filling of the rows permits. So it considers late
// requests, and the observations are fresh. It reports whether it has chosen robots.
//
//rt:noalloc
func (w *worker) choose(now rt.Instant) bool {
	b := w.next()
	if b == nil || b.used == len(b.slots) {
		return false
	}
	if early := w.ends.Add(-2*w.fillTook - fillSlack); w.running != nil && now < early {
		w.wakeAt(early)
		return false
	}
	w.list = w.sessions.all()
	w.waiting = w.withinQuota(waiting(w.waiting[:0], w.list), now)
	if len(w.waiting) == 0 {
		return false
	}
	rows := w.engine.sizes.Choose(min(b.used+len(w.waiting), len(b.slots))) - b.used
	if rows <= 0 {
		return false
	}
	took := w.engine.sizes.Took(w.engine.sizes.Fit(b.used + rows))
	end := now.Add(w.fillTook + took)
	if w.running != nil {
		end = max(end, w.ends.Add(took))
	}
	w.scheduler.Order(w.waiting, rows, now, end, took)
	for _, passed := range w.waiting[min(rows, len(w.waiting)):] {
		if passed.Late {
			w.publisher.passOver(w.list[passed.Robot])
		}
	}
	alone := w.running == nil && b.used == 0 && rows == 1 // for a single row, other threads would not be faster
	for _, chosen := range w.waiting[:min(rows, len(w.waiting))] {
		s := w.list[chosen.Robot]
		r := s.mailbox.Take()
		if r == nil {
			continue // a reset has emptied the mailbox meanwhile
		}
		w.open = b
		t := b.assign(s, r, now)
		if runway, ok := r.Runway(); ok {
			w.stats.runway.record(runway)
			s.shown.runway.Store(int64(runway))
		}
		if alone {
			w.filler.prepare(w.filler.own, t)
		} else {
			w.filler.threads.Do(t)
		}
	}
	return true
}

// withinQuota returns the robots that have not used up their quotas. It informs the other robots,
// and sets the worker's alarm for the end of their first wait.
//
//rt:noalloc
func (w *worker) withinQuota(all []queue.Waiting, now rt.Instant) []queue.Waiting {
	kept := all[:0]
	for i := range all {
		s := w.list[all[i].Robot]
		k, until := s.meter.Held(now)
		if until == 0 {
			kept = append(kept, all[i])
			continue
		}
		w.wakeAt(until)
		w.publisher.hold(s, k, now)
	}
	return kept
}

// next returns the buffer for the next run, which may have rows already; nil when all buffers are in use.
//
//rt:noalloc
func (w *worker) next() *buffer {
	if w.open != nil {
		return w.open
	}
	for _, b := range w.engine.buffers {
		if b != w.running && b != w.queued {
			return b
		}
	}
	return nil
}

// fillSlack is how much earlier than necessary the worker begins to fill the next run's rows, because a timer may be
// late by this time.
const fillSlack = time.Millisecond
