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

// errStuck ends a run when a thread is stuck in a file, a driver or the network.
var errStuck = fmt.Errorf("a thread did not end within %v of the arm: the file of --record, a camera or the network hangs", stuckLimit)

const (
	stuckLimit = 5 * time.Second
	joinPoll   = 2 * time.Millisecond
)

// join waits for the threads. What a stuck one may use is left to the process's end.
func (e *Edge) join(linked <-chan error) (linkErr, other error) {
	if e.stuck = !e.joined(); e.stuck {
		return nil, errStuck
	}
	return <-linked, e.recorded
}

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

// torqueOff takes the torque, unless --on-exit and exit.Held keep it. The tick has ended.
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

// NotOpenedError joins the error of Open with another, of a file that was not written.
// Where the run before may hold the arm, the code is one after which the unit lets it be.
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

// EndError joins the error of Run with one that did not concern the arm, as of a file. It
// makes a clean end a failure, unless the arm is held: code 1 would let it fall.
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
