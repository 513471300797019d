package server

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/batch"
	"github.com/edge-rt/edge-rt/server/remote"
)

const (
	// A server that ends waits for the run that is under way before it terminates that run: at least finishTimeout, and
	// for a slow policy at most finishMost. finishMost is less than TimeoutStopSec in the systemd unit.
	finishTimeout, finishMost = 1200 * time.Millisecond, 10 * time.Second
	// A run that takes longer than stuckAfter and than stuckTimes the longest expected run is
	// reported by /healthz as stuck. A run of a large policy on a CPU takes seconds, and several
	// times as long when other programs use the CPU, too.
	stuckAfter = 10 * time.Second
	stuckTimes = 5
	// The rows of a batch are decoded while another batch runs. Decoding counts as stuck when it
	// takes longer than decodeTimes the time limit of a run.
	decodeTimes = 2
	// The device is given up after at most failuresMax failed runs in a row. All of them except the
	// first are the server's own runs, so that no robot's request can end the server.
	failuresMax = 3
	// terminateTimeout is how long a hanging run may take to end once it is terminated.
	terminateTimeout = 3 * time.Second
	// recoverTimeout is the same limit for a model in another program, whose processes may take
	// seconds to end.
	recoverTimeout = 15 * time.Second
	// probeInterval is how long a device may be idle before the server runs an inference of its own to check the
	// device. The interval is longer if a run would otherwise take more than 1/probeShare of the interval.
	probeInterval = 10 * time.Second
	probeShare    = 100
)

// ErrDevice ends a server whose device no longer computes. The service manager starts it again:
// after most failures of a GPU only a new process gets a working context, and a thread that the
// driver never returns ends with the old process.
var ErrDevice = errors.New("server: the device failed")

// errDiverged refuses a policy whose values are not finite. Only policies in other programs need it, because they have
// no golden sets.
var errDiverged = fmt.Errorf("%w: the policy answers with values that are not finite: are there NaN in its weights or "+
	"statistics, as of a training that diverged?", policy.ErrBundle)

// recovering is a Model that another program computes. When that program fails, it is started or connected again, and
// the server does not end. Until the program works again, runs fail with policy.ErrAway.
type recovering interface {
	Condition() remote.Condition
	Fail(why error)
}

// engine runs the model on the device's thread, and decides whether the device still works.
type engine struct {
	// Constant after newEngine.
	clock   rt.Clock
	log     *slog.Logger
	stats   *stats
	tally   *tally        // tally of the model's runs
	name    policy.Device // name of the device
	model   Model
	away    recovering // the model, if another program computes it; nil: the model is in this process
	device  *batch.Device
	tensors *tensors // tensors of the worker's own thread
	buffers []*buffer

	// Atomic.
	warmRuns  atomic.Uint64          // runs of the warm-up so far
	busySince atomic.Int64           // rt.Instant at which the present run began; 0: the device is idle
	failed    atomic.Pointer[string] // why the device is given up; nil: the device works

	// Owner: worker.
	sizes       *batch.Sizes
	past        batch.Past // any goroutine may read it
	worked      rt.Instant // when a run last succeeded
	blankFinite bool       // the chunk of the server's own blank run is finite

	lost chan struct{} // closed when a run does not end although it was terminated
	hang struct {      // Owner: housekeeping
		began      rt.Instant // start of the run that is overdue
		terminated rt.Instant
		lost       bool
	}
}

func newEngine(clock rt.Clock, log *slog.Logger, st *stats, name policy.Device, m Model, own *tensors) *engine {
	e := &engine{
		clock:   clock,
		log:     log,
		stats:   st,
		tally:   newTally(),
		name:    name,
		model:   m,
		device:  batch.NewDevice(m.RunBuffer, clock),
		tensors: own,
		sizes:   batch.NewSizes(policy.BatchSizes(m.MaxBatch())),
		lost:    make(chan struct{}),
	}
	e.away, _ = m.(recovering)
	for k := range m.Buffers() {
		b := &buffer{index: k, first: k * m.MaxBatch(), slots: make([]slot, m.MaxBatch())}
		for i := range b.slots {
			b.slots[i].buffer, b.slots[i].row = b, b.first+i
		}
		e.buffers = append(e.buffers, b)
	}
	return e
}

// judge decides whether a failed run of the given rows of b is the fault of its requests or of the device, and in the
// second case gives the device up. Before any robot is informed, it repeats the run with blank inputs, which are known
// to be valid, and overwrites the rows. It returns the error for the robots. That is err, with one exception: if
// another program computes the model, and fails with blank inputs, too, judge restarts the program instead of giving up
// the device, and the error wraps policy.ErrAway.
//
// Owner: worker, while nothing runs.
//
//go:noinline
func (e *engine) judge(err error, b *buffer, rows int) error {
	first, how := err, failureRun
	switch {
	case e.failed.Load() != nil: // the failed run was terminated
		return first
	case e.away != nil && errors.Is(err, policy.ErrAway): // the program recovers by itself
		return first
	case errors.Is(err, policy.ErrMemory):
		how = failureMemory
	case errors.Is(err, errNotFinite):
		how = failureNotFinite
	}
	e.stats.failures[how].Add(1)
	for range failuresMax - 1 {
		own, panicked := e.probe(b, rows)
		if own == nil || e.failed.Load() != nil {
			return first
		}
		if e.away != nil && errors.Is(own, policy.ErrAway) { // openpi's server ends a connection after each error
			return first
		}
		err = own
		e.stats.failures[how].Add(1)
		if panicked || how == failureMemory { // memory will not become free soon, because arenas do not shrink
			break
		}
	}
	if e.away != nil {
		e.log.Error("THE POLICY'S PROGRAM FAILS blank inputs, too: it is started or connected again", "how", how,
			"why", err)
		e.away.Fail(fmt.Errorf("it fails blank inputs, too: %w", err))
		return fmt.Errorf("%w: the policy's program fails blank inputs, too: %w", policy.ErrAway, first)
	}
	e.giveUp(fmt.Sprintf("the server's own runs fail, too: %v", err), how)
	return first
}

// probe runs an inference of the server's own: the given number of rows of b, with blank inputs.
func (e *engine) probe(b *buffer, rows int) (err error, panicked bool) {
	for row := range rows {
		e.tensors.blank(b.first+row, false, 0)
	}
	ended := e.runNow(b, rows, 0)
	if ended.Err == nil && e.blankFinite && !e.finite(b, rows) {
		ended.Err = errNotFinite
	}
	if ended.Err != nil {
		e.stats.probes[probeFailed].Add(1)
		return ended.Err, ended.Panicked
	}
	e.stats.probes[probeOK].Add(1)
	e.blankFinite = e.finite(b, rows)
	e.worked = ended.At
	return nil, false
}

func (e *engine) finite(b *buffer, rows int) bool {
	for row := range rows {
		if !e.model.Finite(b.first + row) {
			return false
		}
	}
	return true
}

// giveUp marks the device as failed. The server is not ready from then on, and ends.
//
//go:noinline
func (e *engine) giveUp(why string, how failure) {
	if e.failed.CompareAndSwap(nil, &why) {
		e.log.Error("THE DEVICE FAILED: the server ends, to be started again", "device", e.name, "how", how,
			"why", why)
	}
}

// failure returns the reason why the device was given up, or nil when it works.
func (e *engine) failure() error {
	if why := e.failed.Load(); why != nil {
		return fmt.Errorf("%w: %s", ErrDevice, *why)
	}
	return nil
}

// overdue looks for a run, or the decoding of a batch, that exceeds its time limit. It returns the start of that work
// and a text for people; 0 and "" when there is none.
//
// Owner: any goroutine.
func (e *engine) overdue(now rt.Instant) (since rt.Instant, why string) {
	since = rt.Instant(e.busySince.Load())
	limit := max(stuckAfter, stuckTimes*e.longestRun())
	if busy := now.Sub(since); since != 0 && busy > limit {
		return since, fmt.Sprintf("worker busy with one request for %.0f s", busy.Seconds())
	}
	for _, b := range e.buffers {
		since = rt.Instant(b.since.Load())
		if filling := now.Sub(since); b.filling.Load() > 0 && filling > decodeTimes*limit {
			return since, fmt.Sprintf("observations of one batch are being decoded for %.0f s", filling.Seconds())
		}
	}
	return 0, ""
}

// endHang terminates a run that exceeds its time limit, and gives the device up; if another program computes the model,
// the termination restarts that program instead. When the run does not end even then, endHang gives the device up and
// closes e.lost. It treats a batch whose decoding hangs in the same way. It acts only when a second call finds the same
// work overdue: before the first call the whole process may have been stopped for a while.
// Owner: housekeeping.
func (e *engine) endHang(now rt.Instant) {
	switch since, why := e.overdue(now); {
	case since == 0:
	case e.hang.began != since:
		e.hang.began = since
		e.hang.terminated = 0
	case e.hang.terminated == 0 && e.away != nil:
		e.hang.terminated = now
		e.stats.failures[failureHang].Add(1)
		e.log.Error("THE POLICY'S PROGRAM HANGS: it is started again", "why", why)
		e.terminate()
	case e.hang.terminated == 0:
		e.hang.terminated = now
		e.stats.failures[failureHang].Add(1)
		e.giveUp(why, failureHang)
		e.terminate()
	case !e.hang.lost && now.Sub(e.hang.terminated) > e.terminateLimit():
		e.hang.lost = true
		e.giveUp(why, failureHang)
		close(e.lost)
	}
}

func (e *engine) terminateLimit() time.Duration {
	if e.away != nil {
		return recoverTimeout
	}
	return terminateTimeout
}

// longestRun returns the expected duration of the longest run. For a size that has not run yet,
// it assumes the time of one row for each row.
func (e *engine) longestRun() time.Duration {
	one, sizes := max(e.sizes.Took(1), time.Duration(e.tally.pace.most.Load())), e.sizes.All()
	longest := max(e.sizes.Longest(), one)
	if largest := sizes[len(sizes)-1]; e.sizes.Took(largest) == 0 {
		longest = max(longest, time.Duration(largest)*one)
	}
	return longest
}

func (e *engine) terminate() {
	if err := e.model.Terminate(); err != nil {
		e.log.Warn("the inference in hand cannot be terminated", "why", err)
	}
}

// runNow runs the first rows of b and waits for the end. No other run may be under way.
func (e *engine) runNow(b *buffer, rows, requests int) batch.Ended {
	e.busySince.Store(int64(e.clock.Now())) // the time limit of this run begins now
	ended := e.device.Do(b.index, rows)
	e.past.Add(batch.Run{
		Begun:    ended.Begun,
		Took:     ended.At.Sub(ended.Begun),
		Size:     rows,
		Requests: requests,
		Failed:   ended.Err != nil,
	})
	return ended
}

// warmUp makes n runs of one row, of which only the first has no prefix, and one run of each larger size, so that their
// durations are known. If n is 0, it makes no run.
func (e *engine) warmUp(n int) error {
	for row := range e.model.Buffers() * e.model.MaxBatch() {
		e.tensors.blank(row, false, 0) // a batch may include rows that no request has filled yet
	}
	warm := func(size int) error {
		ended := e.device.Do(0, size)
		e.sizes.Learn(size, ended.At.Sub(ended.Begun))
		if size == 1 {
			e.tally.pace.warm(ended.At.Sub(ended.Begun))
		}
		e.warmRuns.Add(1)
		e.blankFinite = ended.Err == nil && e.model.Finite(0)
		return ended.Err
	}
	defer func() { e.worked = e.clock.Now() }()
	for i := range n {
		e.tensors.blank(0, i > 0, uint64(i))
		if err := warm(1); err != nil {
			return err
		}
	}
	if n > 0 && e.away != nil && !e.blankFinite {
		return errDiverged
	}
	for _, size := range e.sizes.All()[1:] {
		if n == 0 {
			break
		}
		if err := warm(size); err != nil {
			return err
		}
	}
	return nil
}

// finishLimit returns how long finish waits for the present run: until one and a half times the longest expected
// duration has passed since the run's start, but at least finishTimeout and at most finishMost.
func (e *engine) finishLimit() time.Duration {
	since := rt.Instant(e.busySince.Load())
	if since == 0 || e.failed.Load() != nil {
		return finishTimeout
	}
	left := since.Add(e.longestRun() * 3 / 2).Sub(e.clock.Now())
	return max(finishTimeout, min(left, finishMost))
}
