// Package drive runs a follower arm on a tick, for every source of its motion: a policy (package edge), a leader arm
// and a recorded episode (package attend). A Run owns the loop, the threads beside the tick, the requests to end, the
// arm's phases, and the way in which the arm is released or held at the end.
//
//	Go     starts the threads beside the tick
//	Loop   ticks until the end; each tick calls Step, and drives the arm if Step returns true
//	LetGo  switches the torque off, or holds the arm, before anything that may take long
//	Join   ends the threads
//
// All methods may be called from any thread, except where their comments name another owner.
package drive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// ErrStuck ends a run when a thread hangs in a file, a driver or the network.
var ErrStuck = fmt.Errorf("a thread did not end within %v of the arm: a camera or the network hangs", stuckLimit)

const (
	stuckLimit = 5 * time.Second
	leaveLimit = follow.ParkLimit + 2*time.Second // time for the parking, before the tick is stopped

	// Housekeeping is the interval at which Loop calls its parameter look.
	Housekeeping = 20 * time.Millisecond
)

// Config configures a Run.
type Config struct {
	Arm    *follow.Parts
	Bus    Bus
	Path   string // --bus, for the command that lets the arm go
	Robot  robot.Robot
	Loop   rt.LoopConfig
	OnExit string // key of follow.ExitModes

	// Parts are the arms of a robot of several parts, for the summary; nil: the robot has one arm.
	Parts hotplug.Parts

	// Duration ends the run, counted from Loop; 0: no limit.
	Duration time.Duration

	// Held is called when the arm stays under torque, with the command that lets it go.
	Held func(next string)

	// ArmError adds an exit code to an error of arming; nil: the error has its exit code already.
	ArmError func(error) error
}

// Bus has the methods of hotplug.Parts that let the arm go. Tests implement it without a port.
type Bus interface {
	RetryTorqueOff(hurry func() bool) error
}

// Run is one run of an arm.
type Run struct {
	cfg     Config
	loop    *rt.Loop
	touched atomic.Bool   // torque may be on
	leave   atomic.Bool   // end the run as --on-exit selects
	cause   atomic.Uint32 // first Cause of Leave other than Itself
	limp    atomic.Bool   // switch the torque off without parking, whatever --on-exit selects
	hurry   atomic.Bool   // do not park, and do not repeat a failed attempt to switch the torque off
	stop    atomic.Bool   // the tick has ended, or ends now
	ending  atomic.Bool   // the threads beside the tick must end
	failed  atomic.Pointer[error]
	threads sync.WaitGroup

	// Owner: the caller of Loop, LetGo and Join.
	began rt.Instant
	steal time.Duration // CPU time that the host had stolen until began
	held  bool
	stuck bool
	off   error // error of switching the torque off, which may still be on; nil: no error
}

// CheckCPU refuses a value of --cpu to which the tick cannot be pinned.
func CheckCPU(cpu int) error {
	if err := rt.CheckCPU(cpu); err != nil {
		return exit.Errorf(exit.Usage, "--cpu is %d: %w", cpu, err)
	}
	return nil
}

// New returns a run that has not started.
func New(cfg Config) *Run { return &Run{cfg: cfg, loop: rt.NewLoop(cfg.Loop)} }

// Stats returns the tick's statistics.
func (r *Run) Stats() rt.LoopStats { return r.loop.Stats() }

// Grant returns the kernel's answer to the request for real-time priority.
func (r *Run) Grant() rt.Grant { return r.loop.Grant() }

// Ending returns a flag that is set after the last tick. The threads beside the tick then end.
func (r *Run) Ending() *atomic.Bool { return &r.ending }

// Go runs a thread beside the tick. Its failure or panic ends the run as --on-exit selects. The
// thread must end soon after Ending is set.
func (r *Run) Go(thread func() error) {
	r.threads.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				r.GiveUp(fmt.Errorf("beside the tick: panic: %v", p))
			}
		}()
		if err := thread(); err != nil {
			r.GiveUp(err)
		}
	})
}

// Cause is the cause of a requested end.
type Cause uint32

// The causes of Leave.
const (
	Itself   Cause = iota // the source of the motion has ended, or the run has failed
	Signal                // a signal, or the end of a context
	Duration              // Config.Duration is over
	Operator
	Episodes // all episodes are recorded
)

// Leave ends the run soon, as --on-exit selects. The run keeps the first cause other than Itself.
//
//rt:noalloc
func (r *Run) Leave(cause Cause) {
	r.cause.CompareAndSwap(uint32(Itself), uint32(cause))
	r.leave.Store(true)
}

// Leaving reports whether the run ends as --on-exit selects.
//
//rt:noalloc
func (r *Run) Leaving() bool { return r.leave.Load() }

// Cause returns the first cause of Leave other than Itself, or Itself.
func (r *Run) Cause() Cause { return Cause(r.cause.Load()) }

// Hurry makes an ending run skip the parking. The second Ctrl-C calls it.
func (r *Run) Hurry() { r.hurry.Store(true) }

// Hurried reports whether the run ends without parking.
//
//rt:noalloc
func (r *Run) Hurried() bool { return r.hurry.Load() || r.limp.Load() }

// Release switches the arm's torque off where the arm is, whatever --on-exit selects.
func (r *Run) Release() {
	r.limp.Store(true)
	r.Leave(Operator)
}

// GiveUp ends the run with an error, as --on-exit selects. It holds the arm only if exit.Held contains the error's
// code. The run keeps the first error.
func (r *Run) GiveUp(err error) {
	r.failed.CompareAndSwap(nil, &err)
	r.leave.Store(true)
}

// Abort ends the run with a fault as --on-exit selects, except that it never holds the arm.
func (r *Run) Abort(err error) {
	err = exit.With(exit.Fault, err)
	r.failed.CompareAndSwap(nil, &err)
	r.leave.Store(true)
}

// Fail ends the run with an error at once, without parking. The run keeps the first error.
func (r *Run) Fail(err error) {
	r.failed.CompareAndSwap(nil, &err)
	r.stop.Store(true)
}

// Failed returns the first error of GiveUp, Abort or Fail, nil without one.
func (r *Run) Failed() error {
	if err := r.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Stopped reports whether the tick has ended, or ends now.
func (r *Run) Stopped() bool { return r.stop.Load() }

// Touched reports whether torque may be on.
func (r *Run) Touched() bool { return r.touched.Load() }

// Loop calls tick every period until the run has ended: by itself, after the end of ctx, or after
// Duration. Meanwhile it calls look, which may be nil, at short intervals. A panic in the tick must
// not leave the arm under torque, so Loop returns it as an error.
func (r *Run) Loop(ctx context.Context, tick func(rt.Tick) rt.Wait, look func(now rt.Instant)) error {
	clock := r.cfg.Loop.Clock
	r.began, r.steal = clock.Now(), rt.StealTime()
	leaveBy := rt.Instant(0)
	ticked := make(chan error, 1)
	go func() { ticked <- r.ticks(tick) }()
	for {
		select {
		case err := <-ticked:
			return err
		default:
		}
		now := clock.Now()
		switch {
		case leaveBy != 0 && now >= leaveBy:
			r.stop.Store(true)
		case leaveBy != 0:
		case ctx.Err() != nil:
			r.Leave(Signal)
		case r.cfg.Duration > 0 && now.Sub(r.began) >= r.cfg.Duration:
			r.Leave(Duration)
		}
		if leaveBy == 0 && r.leave.Load() {
			leaveBy = now.Add(leaveLimit)
		}
		if look != nil {
			look(now)
		}
		clock.SleepUntil(now.Add(Housekeeping))
	}
}

func (r *Run) ticks(tick func(rt.Tick) rt.Wait) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("tick: panic: %v", p)
		}
	}()
	err = r.loop.Run(&r.stop, tick)
	if errors.Is(err, rt.ErrRealTimeRefused) {
		return exit.With(exit.RealTime, err)
	}
	return err
}

// Step advances the arm's phase, after its Read, and reports whether the arm is armed and its source
// decides its motion in this tick. Step arms an unarmed arm or part only if ready is true. If held is true,
// joints outside their range stay where they are; otherwise Step moves them into their range.
//
// Owner: the tick.
func (r *Run) Step(t rt.Tick, ready, held bool) (drive bool) {
	arm := r.cfg.Arm
	switch {
	case r.leave.Load() && arm.Phase < follow.Parking:
		r.Finish(t.Woke)
		return false
	case arm.Phase == follow.Unarmed && ready:
		arm.StartArming()
	case arm.Phase == follow.Arming:
		if !ready {
			arm.CancelArming()
		}
		if arm.Phase == follow.Arming {
			r.armStep(t)
		}
	case arm.Phase == follow.Armed && arm.Rescuing() && !held:
		if err := arm.RescueStep(t.Woke); err != nil {
			r.Fail(err)
		}
		return arm.Apart()
	case arm.Phase == follow.Armed:
		if ready {
			arm.StartArming() // a part that was away while the other parts stayed armed
		}
		if arm.Rearming() {
			r.armStep(t)
		}
		return true
	case arm.Phase == follow.Parking:
		arm.ParkStep(t.Woke, r.Hurried())
	}
	if arm.Phase == follow.Done {
		r.stop.Store(true)
	}
	return false
}

// armStep takes the next step of arming, which lasts several ticks.
func (r *Run) armStep(t rt.Tick) {
	before := r.touched.Swap(true) // set before ArmStep, which may panic
	touched, err := r.cfg.Arm.ArmStep(t)
	if !touched && !before {
		r.touched.Store(false)
	}
	if err != nil && r.cfg.ArmError != nil {
		err = r.cfg.ArmError(err)
	}
	if err != nil {
		r.Fail(err)
	}
}

// Finish begins the end of a run: an arm under torque parks if --on-exit selects it, and without torque the tick ends.
//
// Owner: the tick.
//
//rt:noalloc
func (r *Run) Finish(now rt.Instant) {
	arm := r.cfg.Arm
	switch {
	case arm.Phase == follow.Armed, arm.Phase < follow.Armed && arm.HasTorque():
		arm.Finish(now)
	default:
		arm.CancelArming()
	}
	if arm.Phase == follow.Unarmed || arm.Phase == follow.Done {
		r.stop.Store(true)
	}
}

// Check ends the run on a fault of the motors. It is for runs whose person is present and can start
// again.
//
// Owner: the tick, after Read.
func (r *Run) Check() {
	if r.cfg.Arm.NeedsResume() {
		r.Fail(exit.Errorf(exit.Fault, "the arm's motors have restarted: check their supply, then start again"))
	}
	if err := r.cfg.Arm.Fatal(); err != nil {
		r.Abort(err)
	}
}

// LetGo switches the arm's torque off. It holds the arm instead if --on-exit is hold, Release was not called, and
// exit.Held contains the code of the run's error. That error is ticked, the result of Loop, or, if ticked is nil, the
// result of Failed.
func (r *Run) LetGo(ticked error) {
	if ticked == nil {
		ticked = r.Failed()
	}
	r.held = follow.ExitModes[r.cfg.OnExit] == follow.ExitHold && slices.Contains(exit.Held, exit.Of(ticked)) &&
		!r.limp.Load()
	switch next := device.TorqueOff(r.cfg.Path, r.cfg.Robot); {
	case !r.touched.Load():
	case !r.held:
		if err := r.cfg.Bus.RetryTorqueOff(r.hurry.Load); err != nil {
			r.off = fmt.Errorf("torque may still be on: %w; hold on to the arm: %s lets it go once its motors answer",
				err, next)
		}
	default:
		r.cfg.Arm.StopBase()
		if r.cfg.Path == device.Sim {
			return
		}
		r.cfg.Held(next)
	}
}

// Join ends the threads beside the tick, and returns ErrStuck if one of them hangs. Resources that a
// stuck thread may use stay open until the process ends. Join calls wake, which may be nil, to end
// the waiting of the threads.
func (r *Run) Join(wake func()) error {
	r.ending.Store(true)
	if wake != nil {
		wake()
	}
	if r.stuck = !device.Within(r.cfg.Loop.Clock, stuckLimit, &r.threads); r.stuck {
		return ErrStuck
	}
	return nil
}

// Stuck reports whether a thread did not end. Owner: the caller of Join.
func (r *Run) Stuck() bool { return r.stuck }

// Outcome joins verdict, the error that explains the end, with the error of LetGo. The exit code is
// verdict's, unless verdict is nil.
func (r *Run) Outcome(verdict error) error {
	switch {
	case r.off == nil:
		return verdict
	case verdict == nil:
		return r.off
	}
	return exit.With(exit.Of(verdict), errors.Join(verdict, r.off))
}

// Aside joins two errors: end is a run's error, and other does not concern the arm, such as the error of a file. other
// turns a clean end into a failure, unless the arm is held. After exit code 1 the systemd unit switches the torque off,
// and a held arm would fall.
func (r *Run) Aside(end, other error) error {
	switch {
	case other == nil:
		return end
	case r.held:
		return exit.Keep(end, other)
	}
	return errors.Join(end, other)
}

// End is LetGo, Join and Outcome for a run that a person attends: a thread that hangs does not
// change the exit code of the run.
func (r *Run) End(ticked error, wake func()) error {
	r.LetGo(ticked)
	stuck := r.Join(wake)
	if ticked == nil {
		ticked = r.Failed()
	}
	err := r.Outcome(ticked)
	if stuck != nil {
		err = exit.Keep(err, stuck)
	}
	return err
}

// SayHeld returns a Config.Held that prints the command for a person.
func SayHeld(out io.Writer) func(next string) {
	return func(next string) { fmt.Fprintf(out, "The arm is held (--on-exit hold): %s lets it go.\n", next) }
}

// Close ends the threads of a run that has not reached Join.
func (r *Run) Close() {
	if r != nil && !r.stuck {
		r.ending.Store(true)
		r.threads.Wait()
	}
}

// The states of a run without a policy, on record and for edge-rt ctl.
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
