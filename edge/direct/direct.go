// Package direct drives an arm on a tick from something else than a policy: a leader
// (package teleop), or a record (package replay). It has what these have in common: how the
// arm is armed, the way out, the threads beside the tick, and the end, at which the arm is
// let go.
package direct

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"edgert/edge/device"
	"edgert/edge/follow"
	"edgert/edge/hotplug"
	"edgert/internal/exit"
	"edgert/record"
	"edgert/rt"
	"edgert/servo/robot"
)

// Config is one arm that is driven.
type Config struct {
	Arm    *follow.Follower
	Bus    *hotplug.Arm
	Path   string // --bus, for who has to let the arm go
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
	limp    atomic.Bool // and goes, whatever --on-exit says, without parking
	leave   atomic.Bool // the arm is to end as --on-exit says
	stop    atomic.Bool // the tick is over
	ending  atomic.Bool // so are the threads beside it
	failed  atomic.Pointer[error]
	threads sync.WaitGroup
}

// New returns a run that has not begun.
func New(cfg Config) *Run { return &Run{cfg: cfg, loop: rt.NewLoop(cfg.Loop)} }

// Stats are the tick's. Any thread may call it.
func (r *Run) Stats() rt.LoopStats { return r.loop.Stats() }

// Ending is set when the tick has ended, for the threads that stay until then.
func (r *Run) Ending() *atomic.Bool { return &r.ending }

// Go runs f on a thread beside the tick, which ends soon after Ending is set.
func (r *Run) Go(f func()) { r.threads.Go(func() { r.Guarded(f) }) }

// Guarded ends the run when f panics.
func (r *Run) Guarded(f func()) {
	defer func() {
		if p := recover(); p != nil {
			r.Fail(fmt.Errorf("beside the tick: panic: %v", p))
		}
	}()
	f()
}

// Leave has the arm end as --on-exit says, soon. Any thread may call it.
func (r *Run) Leave() { r.leave.Store(true) }

// Leaving reports whether it does. Any thread may call it.
func (r *Run) Leaving() bool { return r.leave.Load() }

// Release has the arm lose its torque where it stands, whatever --on-exit says. Any thread
// may call it.
func (r *Run) Release() {
	r.limp.Store(true)
	r.leave.Store(true)
}

// Finish ends the run as --on-exit says, where exit.Held lets it hold; the first error is
// the run's. Any thread may call it.
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

// Drive runs the tick until it has ended, by itself or behind ctx. A panic in it must not
// leave the arm under torque.
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

// Step takes the arm one step further in its phase, behind its Read, and reports whether
// it is armed and is to be driven now. ready: what drives it is there, without which it is
// not armed.
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

// Check ends the run when its motors want that. Owner: the tick, behind Read.
func (r *Run) Check() {
	if r.cfg.Arm.NeedsResume() { // a person is there, and starts anew
		r.Fail(exit.Errorf(exit.Fault, "the arm's motors have restarted: check their supply, then start again"))
	}
	if err := r.cfg.Arm.Fatal(); err != nil {
		r.Finish(exit.Fault, err)
	}
}

// End lets the arm go, unless exit.Held applies to err, Drive's, and ends the threads
// beside the tick; wake, where it is not nil, ends what these wait for. It returns how the
// run ends.
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
		err = errors.Join(err, fmt.Errorf("torque may still be on: %w; hold on to the arm: %s lets it go once its motors answer", off, device.TorqueOff(r.cfg.Path, r.cfg.Robot)))
	}
	if held && r.touched.Load() && r.cfg.Path != device.Sim {
		fmt.Fprintf(r.cfg.Out, "The arm is held, as --on-exit hold says: %s lets it go.\n", device.TorqueOff(r.cfg.Path, r.cfg.Robot))
	}
	return err
}

// Close ends the threads of a run that has not come to its End.
func (r *Run) Close() {
	if r != nil {
		r.ending.Store(true)
		r.threads.Wait()
	}
}

// A run's words for where the arm is, on record and for edge-rt ctl.
const (
	Connecting = "CONNECTING" // it is not armed yet
	Streaming  = "STREAMING"  // something drives it
	Stalled    = "STALLED"    // it stays where it is, or goes to where it parks
)

// State is the number on record of where the arm is.
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
