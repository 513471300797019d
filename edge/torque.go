package edge

import (
	"errors"
	"fmt"
	"slices"

	"edgert/edge/follow"
	"edgert/internal/exit"
)

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
