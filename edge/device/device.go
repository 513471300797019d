// Package device opens what a run and other commands need: an arm's description,
// calibration and port, with the exit code of each failure, and a simulated world.
package device

import (
	"errors"
	"fmt"
	"os"

	"edgert/internal/exit"
	"edgert/servo"
	"edgert/servo/robot"
)

// Sim is the --bus of the simulated arm inside a run.
const Sim = "sim"

// Robot returns a built-in arm, or the one that a file describes.
func Robot(name string) (robot.Robot, error) {
	r, err := robot.ByName(name)
	if errors.Is(err, robot.ErrInvalid) {
		return r, exit.With(exit.Config, err)
	}
	return r, exit.With(exit.Usage, err)
}

// Place says where one arm is, and under which name it was calibrated.
type Place struct {
	Bus         string // serial port
	Robot       robot.Robot
	ID          string // names the calibration file
	Calibration string // file; empty: LeRobot's place
}

// File is where the arm's calibration is, or shall be.
func (p *Place) File() string {
	if p.Calibration != "" {
		return p.Calibration
	}
	return servo.CalibrationPath(p.Robot, p.ID)
}

// Load reads the arm's calibration. Its errors are exit.Config.
func (p *Place) Load() (servo.Calibration, error) {
	c, err := servo.LoadCalibration(p.File())
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("no calibration for %s at %s: give the --id under which it was calibrated, or --calibration FILE, or run edge-rt calibrate --bus %s --robot %s",
			p.Robot.Name, p.File(), p.Bus, p.Robot.Flag())
	}
	return c, exit.With(exit.Config, err)
}

// OpenArm is servo.OpenArm with exit codes, but none for servo.ErrCanceled.
func OpenArm(cfg servo.ArmConfig) (*servo.Arm, error) {
	arm, err := servo.OpenArm(cfg)
	switch {
	case err == nil, errors.Is(err, servo.ErrCanceled):
		return arm, err
	case errors.Is(err, servo.ErrCalibration):
		return nil, exit.With(exit.Config, err)
	case errors.Is(err, servo.ErrTorqueOn), errors.Is(err, servo.ErrLatched):
		return nil, exit.With(exit.Fault, err)
	}
	return nil, exit.With(exit.Absent, err)
}

// Absent gives an error without an exit code exit.Absent.
func Absent(err error) error {
	if exit.Of(err) != exit.Failure {
		return err
	}
	return exit.With(exit.Absent, err)
}
