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

// errStuck ends a run whose arm was let go, or is held as it was asked to be, when
// a thread is stuck in a file, a driver or the network and cannot be ended.
var errStuck = fmt.Errorf("a thread did not end within %v of the arm: the file of --record, a camera or the network hangs", stuckLimit)

const (
	stuckLimit = 5 * time.Second
	joinPoll   = 2 * time.Millisecond
)

// join waits for the threads. One that is stuck may go on any time and use what
// it has: a camera's buffers, the encoders, the waker. release leaves that to the
// end of the process, which is near.
func (e *Edge) join(linked <-chan error) (linkErr, aside error) {
	if e.stuck = !e.joined(); e.stuck {
		return nil, errStuck
	}
	return <-linked, e.recorded
}

// joined waits for the other threads, but not for one that is stuck.
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

// letGo ends the arm's torque as --on-exit says; hold is for ends of exit.Held.
// The tick has ended: the arm is this goroutine's now.
func (e *Edge) letGo(err error) error {
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

// Unopened is the end of a run that Open has refused, with what went wrong beside
// it. The arm is as it was found: where the run before may hold it, a failure gets
// a code after which the unit leaves it alone, and tries again slowly.
func Unopened(onExit string, end, aside error) error {
	err := errors.Join(end, aside)
	switch {
	case follow.ExitModes[onExit] != follow.ExitHold || exit.Of(err) != exit.Failure:
		return err
	case end == nil:
		return exit.With(exit.Clean, err)
	}
	return exit.With(exit.Absent, err)
}

// Beside adds to the end of a run what went wrong beside the arm, such as a file
// that cannot be written; nil when nothing did. A clean end becomes a failure by
// it, unless the arm is held: after code 1 the unit would let it fall, so there
// the code stays.
func (e *Edge) Beside(end, aside error) error {
	switch {
	case aside == nil:
		return end
	case e.held:
		return exit.With(exit.Of(end), errors.Join(end, aside))
	}
	return errors.Join(end, aside)
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
	case State(e.control.stats.state.Load()) == Dead && e.control.stats.busFault.Load():
		return exit.Errorf(exit.Absent, "joints were silent for %v%s: gave up; check the arm's cables and power", e.cfg.MaxOffline, e.silent())
	case State(e.control.stats.state.Load()) == Dead && e.control.link.noSession.Load() != nil:
		return exit.Errorf(exit.Absent, "no chunk for %v: gave up; no session: %s; start lean-server, or check --connect and --id", e.cfg.MaxOffline, *e.control.link.noSession.Load())
	case State(e.control.stats.state.Load()) == Dead:
		return exit.Errorf(exit.Absent, "no chunk for %v: gave up%s", e.cfg.MaxOffline, e.cameraErrors())
	}
	return nil
}

// silent names the joints that do not answer any more; the tick has ended.
func (e *Edge) silent() string {
	if who := e.robot.Joints(e.control.arm.Frozen()); who != "" {
		return " (" + who + ")"
	}
	return ""
}

// describe names the exit reason of an ordinary end.
func (e *Edge) describe() string {
	if e.ran {
		return fmt.Sprintf("ran for %v as asked", e.cfg.Duration)
	}
	return "stopped by signal"
}
