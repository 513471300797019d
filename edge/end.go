package edge

import (
	"edgert/edge/follow"
	"edgert/internal/exit"
	"edgert/rt"
	"errors"
	"fmt"
	"slices"
	"time"
)

// errStuck ends a run, after the arm, when a thread is stuck in a file, a driver or the
// network.
var errStuck = fmt.Errorf("a thread did not end within %v of the arm: the file of --record, a camera or the network hangs", stuckLimit)

const (
	stuckLimit = 5 * time.Second
	joinPoll   = 2 * time.Millisecond
)

// join waits for the threads. One that is stuck may still use a camera's buffers, the
// encoders and the waker, so these are left to the end of the process.
func (e *Edge) join(linked <-chan error) (linkErr, other error) {
	if e.stuck = !e.joined(); e.stuck {
		return nil, errStuck
	}
	return <-linked, e.recorded
}

// joined waits for the other threads, at most stuckLimit.
func (e *Edge) joined() bool {
	ended := make(chan struct{})
	go func() { e.threads.Wait(); close(ended) }()
	for limit := e.clock.Now().Add(stuckLimit); ; e.clock.SleepUntil(e.clock.Now().Add(joinPoll)) {
		select {
		case <-ended:
			return true
		default:
		}
		if e.clock.Now() > limit {
			return false
		}
	}
}

// torqueOff takes the arm's torque, unless --on-exit says hold and the exit code is one
// of exit.Held. The tick has ended: the arm is this goroutine's now.
func (e *Edge) torqueOff(err error) error {
	if failed := e.control.failed.Load(); err == nil && failed != nil {
		err = *failed
	}
	e.held = follow.ExitModes[e.cfg.OnExit] == follow.ExitHold && slices.Contains(exit.Held, exit.Of(err))
	if e.held || !e.control.stats.touched.Load() {
		return nil
	}
	if err := e.arm.RetryTorqueOff(e.control.operator.hurry.Load); err != nil {
		return fmt.Errorf("torque may still be on: %w; hold on to the arm: edge-rt torque off --bus %s lets it go once its motors answer", err, e.cfg.Bus)
	}
	return nil
}

// NotOpenedError joins the error of Open with another, of a file that could not be
// written. The arm is as it was found: where the run before may hold it, a failure gets
// a code after which the unit leaves it alone, and tries again slowly.
func NotOpenedError(onExit string, end, other error) error {
	err := errors.Join(end, other)
	switch {
	case follow.ExitModes[onExit] != follow.ExitHold || exit.Of(err) != exit.Failure:
		return err
	case end == nil:
		return exit.With(exit.Clean, err)
	}
	return exit.With(exit.Absent, err)
}

// EndError joins the error of Run with another that did not concern the arm, such as a
// file that cannot be written. A clean end becomes a failure by it, unless the arm is
// held: after code 1 the unit would let it fall, so there the code stays.
func (e *Edge) EndError(end, other error) error {
	switch {
	case other == nil:
		return end
	case e.held:
		return exit.With(exit.Of(end), errors.Join(end, other))
	}
	return errors.Join(end, other)
}

// verdict picks the error that explains the end.
func (e *Edge) verdict(tickErr, linkErr error) error {
	failed := e.control.failed.Load()
	switch {
	case errors.Is(tickErr, rt.ErrRealTimeRefused):
		return exit.With(exit.RealTime, tickErr)
	case tickErr != nil:
		return tickErr
	case linkErr != nil:
		return linkErr
	case failed != nil:
		return *failed
	case state(e.control.stats.state.Load()) == stateDead && e.control.stats.busFault.Load():
		return exit.Errorf(exit.Absent, "joints were silent for %v%s: gave up; check the arm's cables and power", e.cfg.MaxOffline, e.silent())
	case state(e.control.stats.state.Load()) == stateDead && e.control.link.noSession.Load() != nil:
		return exit.Errorf(exit.Absent, "no chunk for %v: gave up; no session: %s; start lean-server, or check --connect and --id", e.cfg.MaxOffline, *e.control.link.noSession.Load())
	case state(e.control.stats.state.Load()) == stateDead:
		return exit.Errorf(exit.Absent, "no chunk for %v: gave up%s", e.cfg.MaxOffline, e.cameraErrors())
	}
	return nil
}

// silent names the joints that do not answer; the tick has ended.
func (e *Edge) silent() string {
	if who := e.robot.Joints(e.control.arm.Frozen()); who != "" {
		return " (" + who + ")"
	}
	return ""
}

// describe is the exit reason of a clean end.
func (e *Edge) describe() string {
	if e.ran {
		return fmt.Sprintf("ran for %v as asked", e.cfg.Duration)
	}
	return "stopped by signal"
}
