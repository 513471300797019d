// Package direct drives an arm on a tick from a source other than a policy: a leader (package
// teleop) or a record (package replay). It holds their common part: the arming, the way out, the
// threads beside the tick, and the release of the arm at the end.
package direct

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Config configures a Run.
type Config struct {
	Arm    *follow.Follower
	Bus    *hotplug.Arm
	Path   string // --bus, for the advice how to release the arm
	Robot  robot.Robot
	Loop   rt.LoopConfig
	OnExit string // one of follow.ExitModes
	Out    io.Writer
}

// Run is one run of an arm.
type Run struct {
	cfg     Config
	loop    *rt.Loop
	touched atomic.Bool // torque may be on
	limp    atomic.Bool // remove the torque without parking, regardless of --on-exit
	leave   atomic.Bool // end the run as --on-exit selects
	stop    atomic.Bool // the tick has ended
	ending  atomic.Bool // the threads beside the tick must end
	failed  atomic.Pointer[error]
	threads sync.WaitGroup
}

// New returns a run that has not started.
func New(cfg Config) *Run { return &Run{cfg: cfg, loop: rt.NewLoop(cfg.Loop)} }

// Stats returns the tick's statistics. Any thread may call it.
func (r *Run) Stats() rt.LoopStats { return r.loop.Stats() }

// Ending is set after the end of the tick, for the threads that run until then.
func (r *Run) Ending() *atomic.Bool { return &r.ending }

// Go runs f on a thread beside the tick. f must return soon after Ending is set.
func (r *Run) Go(f func()) { r.threads.Go(func() { r.Guarded(f) }) }

// Guarded runs f, and ends the run if f panics.
func (r *Run) Guarded(f func()) {
	defer func() {
		if p := recover(); p != nil {
			r.Fail(fmt.Errorf("beside the tick: panic: %v", p))
		}
	}()
	f()
}

// Leave ends the run soon, as --on-exit selects. Any thread may call it.
func (r *Run) Leave() { r.leave.Store(true) }

// Leaving reports whether the run is ending as --on-exit selects. Any thread may call it.
func (r *Run) Leaving() bool { return r.leave.Load() }

// Release removes the arm's torque at its current position, regardless of --on-exit. Any
// thread may call it.
func (r *Run) Release() {
	r.limp.Store(true)
	r.leave.Store(true)
}

// Finish ends the run with an error as --on-exit selects; it holds the arm only for the codes of
// exit.Held. The first error is the run's. Any thread may call it.
func (r *Run) Finish(code exit.Code, err error) {
	err = exit.With(code, err)
	r.failed.CompareAndSwap(nil, &err)
	r.leave.Store(true)
}

// Fail ends the run at once. Any thread may call it.
func (r *Run) Fail(err error) {
	r.failed.CompareAndSwap(nil, &err)
	r.stop.Store(true)
}

// Drive runs the tick until it ends, by itself or after ctx. A panic in the tick must not leave the
// arm under torque, so Drive returns it as an error.
func (r *Run) Drive(ctx context.Context, tick func(rt.Tick) rt.Wait) error {
	ticked := make(chan error, 1)
	go func() { ticked <- r.ticks(tick) }()
	for done := ctx.Done(); ; {
		select {
		case err := <-ticked:
			if failed := r.failed.Load(); err == nil && failed != nil {
				err = *failed
			}
			return err
		case <-done:
			r.Leave()
			done = nil
		}
	}
}

func (r *Run) ticks(tick func(rt.Tick) rt.Wait) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("tick: panic: %v", p)
		}
	}()
	return r.loop.Run(&r.stop, tick)
}

// Step advances the arm's phase, after its Read, and reports whether the arm is armed and must be
// driven now. ready reports that the source of goals is present; without it the arm is not armed.
//
// Owner: the tick.
func (r *Run) Step(t rt.Tick, ready bool) (drive bool) {
	arm := r.cfg.Arm
	switch arm.Phase {
	case follow.Unarmed:
		switch {
		case r.leave.Load():
			r.stop.Store(true)
		case ready:
			arm.StartArming()
		}
	case follow.Arming:
		switch {
		case r.leave.Load() && arm.HasTorque():
			arm.Finish(t.Woke)
			return false
		case r.leave.Load() || !ready:
			arm.CancelArming()
			return false
		}
		r.touched.Store(true)
		if _, err := arm.ArmStep(t); err != nil {
			r.Fail(device.Absent(err))
		}
	case follow.Armed:
		switch {
		case r.leave.Load():
			arm.Finish(t.Woke)
		case arm.Rescuing():
			if err := arm.RescueStep(t.Woke); err != nil {
				r.Fail(err)
			}
		default:
			return true
		}
	case follow.Parking:
		arm.ParkStep(t.Woke, r.limp.Load())
	default:
		r.stop.Store(true)
	}
	return false
}

// Check ends the run on a fault of the motors. Owner: the tick, after Read.
func (r *Run) Check() {
	if r.cfg.Arm.NeedsResume() { // a person is present and can start again
		r.Fail(exit.Errorf(exit.Fault, "the arm's motors have restarted: check their supply, then start again"))
	}
	if err := r.cfg.Arm.Fatal(); err != nil {
		r.Finish(exit.Fault, err)
	}
}

// End releases the arm, unless exit.Held applies to err, the result of Drive, and then ends the
// threads beside the tick. wake may be nil; otherwise it ends what these threads wait for. End
// returns the run's error.
func (r *Run) End(err error, wake func()) error {
	held := r.cfg.OnExit == "hold" && slices.Contains(exit.Held, exit.Of(err)) && !r.limp.Load()
	var off error
	if r.touched.Load() && !held {
		off = r.cfg.Bus.RetryTorqueOff(func() bool { return false })
	}
	r.ending.Store(true)
	if wake != nil {
		wake()
	}
	r.threads.Wait()
	if errors.Is(err, rt.ErrRealTimeRefused) {
		err = exit.With(exit.RealTime, err)
	}
	if off != nil {
		err = errors.Join(err,
			fmt.Errorf("torque may still be on: %w; hold on to the arm: %s lets it go once its motors answer", off,
				device.TorqueOff(r.cfg.Path, r.cfg.Robot)))
	}
	if held && r.touched.Load() && r.cfg.Path != device.Sim {
		fmt.Fprintf(r.cfg.Out, "The arm is held (--on-exit hold): %s lets it go.\n",
			device.TorqueOff(r.cfg.Path, r.cfg.Robot))
	}
	return err
}

// Close ends the threads of a run that has not reached End.
func (r *Run) Close() {
	if r != nil {
		r.ending.Store(true)
		r.threads.Wait()
	}
}

// The states of such a run, on record and for edge-rt ctl.
const (
	Connecting = "CONNECTING" // the arm is not armed yet
	Streaming  = "STREAMING"  // the source drives the arm
	Stalled    = "STALLED"    // the arm holds its position, or parks
)

// State returns the index of the arm's state in record.RunStates.
//
//rt:noalloc
func State(phase follow.Phase, driven bool) uint32 {
	switch {
	case phase < follow.Armed:
		return connecting
	case driven:
		return streaming
	}
	return stalled
}

var (
	connecting = uint32(slices.Index(record.RunStates, Connecting))
	streaming  = uint32(slices.Index(record.RunStates, Streaming))
	stalled    = uint32(slices.Index(record.RunStates, Stalled))
)
