package hotplug

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Parts are the arms of one robot, in the order of its joints.
type Parts []*Arm

// Several returns p if the robot has several parts, else nil.
func (p Parts) Several() Parts {
	if len(p) == 1 {
		return nil
	}
	return p
}

// KeepOpen runs Arm.KeepOpen of every part until ending is set, each on a thread that start starts. No part opens the
// adapter of another part.
func (p Parts) KeepOpen(ending *atomic.Bool, start func(thread func() error), log *slog.Logger) {
	for _, a := range p {
		a.beside = p
		start(func() error { a.KeepOpen(ending, log); return nil })
	}
}

// Stats returns the sum over the parts, with the Cycle of the last part. Any thread may call it.
//
//rt:noalloc
func (p Parts) Stats() (s servo.Stats) {
	for _, a := range p {
		s.Add(a.Stats())
	}
	return s
}

// Warned returns the joints whose temperature or supply is outside the limits of the robot's description.
//
//rt:noalloc
func (p Parts) Warned() (joints robot.Joints) {
	first := 0
	for _, a := range p {
		joints |= a.Warned() << first
		first += len(a.cfg.Robot.Motors)
	}
	return joints
}

// Extremes returns the hottest motor, in degrees Celsius, and the lowest supply, in volts; 0: not
// known yet. Any thread may call it.
//
//rt:noalloc
func (p Parts) Extremes() (hottest, volts float64) {
	for _, a := range p {
		h, v := a.Extremes()
		if hottest = max(hottest, h); v > 0 && (volts == 0 || v < volts) {
			volts = v
		}
	}
	return hottest, volts
}

// OpenError returns the errors of the parts that could not be reopened. Any thread may call it.
func (p Parts) OpenError() (all error) {
	for _, a := range p {
		all = errors.Join(all, a.OpenError())
	}
	return all
}

// Calibration returns the calibration of all motors, by their names in the robot.
func (p Parts) Calibration(r robot.Robot) servo.Calibration {
	all := servo.Calibration{}
	for i, part := range r.Parts() {
		all.Join(part.Prefix(), p[i].cfg.Calibration)
	}
	return all
}

// RetryTorqueOff is Arm.RetryTorqueOff for all parts at once: a part that fails delays no other.
func (p Parts) RetryTorqueOff(hurry func() bool) error {
	errs := make([]error, len(p))
	var all sync.WaitGroup
	for i, a := range p {
		all.Go(func() { errs[i] = a.RetryTorqueOff(hurry) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Close closes the ports and leaves the torque unchanged.
func (p Parts) Close() {
	for _, a := range p {
		a.Close()
	}
}
