package bringup

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"edgert/edge/limit"
	"edgert/internal/exit"
	"edgert/servo"
	"edgert/servo/robot"
)

// MoveConfig is one edge-rt move.
type MoveConfig struct {
	Config
	Joint string  // shoulder_pan
	To    float64 // in its unit
	Speed float64 // share of the joint's velocity limit
}

const (
	movePeriod  = 20 * time.Millisecond
	moveSettle  = 300 * time.Millisecond // at the goal before it counts
	moveReach   = 2.0                    // in the joint's unit: nearer counts as there
	moveExtra   = 3 * time.Second        // beyond what the way takes at that speed
	silentTicks = 50                     // without an answer of every joint: a second
)

// Move moves one joint slowly to a position and holds the others, then lets the
// arm go: the operator supports it.
func Move(ctx context.Context, cfg MoveConfig) (err error) {
	names := cfg.Robot.ActionNames()
	joint := slices.IndexFunc(cfg.Robot.Motors, func(m robot.Motor) bool { return m.Name == cfg.Joint })
	if err := cfg.named(); err != nil {
		return err
	}
	switch {
	case cfg.Robot.Leader:
		return exit.Errorf(exit.Usage, "a %s is moved by hand", cfg.Robot.Name)
	case joint < 0:
		return exit.Errorf(exit.Usage, "no joint %q: a %s has %s", cfg.Joint, cfg.Robot.Name, strings.ReplaceAll(strings.Join(names, ", "), ".pos", ""))
	case !(cfg.Speed > 0 && cfg.Speed <= 1):
		return exit.Errorf(exit.Usage, "--speed is %v, want above 0 and up to 1, of the joint's velocity limit", cfg.Speed)
	case math.IsNaN(cfg.To) || math.IsInf(cfg.To, 0):
		return exit.Errorf(exit.Usage, "%v is no position", cfg.To)
	}
	s := newSession(cfg.Config)
	calibration, err := s.load()
	if err != nil {
		return err
	}
	arm, err := servo.OpenArm(servo.ArmConfig{Path: s.Bus, Robot: s.Robot, Calibration: calibration, Clock: s.Clock,
		Halted: func() bool { return ctx.Err() != nil }})
	if err != nil {
		code := exit.Absent
		switch {
		case errors.Is(err, servo.ErrCalibration):
			code = exit.Config
		case errors.Is(err, servo.ErrHalted):
			return exit.Errorf(exit.Failure, "interrupted before the arm was there: nothing was moved")
		}
		return exit.With(code, err)
	}
	defer arm.Close()
	if low, high := arm.Range(joint); cfg.To < low || cfg.To > high {
		return exit.Errorf(exit.Usage, "%s to %v: its range is %.1f to %.1f %s", cfg.Joint, cfg.To, low, high, s.Robot.Motors[joint].Norm)
	}
	defer func() {
		if off := arm.TorqueOff(); off != nil {
			err = errors.Join(err, exit.With(exit.Absent, off))
		}
	}()
	if err := arm.TorqueOn(); err != nil {
		return exit.With(exit.Absent, err)
	}
	s.say("Torque is on. Hold on to the arm: it is let go at the end.")
	at, err := s.travel(ctx, arm, joint, cfg)
	if err != nil {
		return err
	}
	s.say("%s is at %.2f. Torque goes off.", cfg.Joint, at)
	s.say("Next: edge-rt %s --camera top=/dev/video0 --connect tcp/HOST:7447", s.flags())
	return nil
}

// travel drives the joint at the given share of its velocity limit, through the
// same gate that a policy's actions pass.
func (s *session) travel(ctx context.Context, arm *servo.Arm, joint int, cfg MoveConfig) (at float64, err error) {
	gate := limit.Limiter{Pace: float32(cfg.Speed)}
	gate.Step, gate.Far = arm.Limits(movePeriod.Seconds())
	for j := range gate.Step {
		low, high := arm.Range(j)
		gate.Min, gate.Max = append(gate.Min, float32(low)), append(gate.Max, float32(high))
	}
	n := len(gate.Step)
	present, goal, want := make([]float32, n), make([]float32, n), make([]float32, n)
	for tries := 0; arm.Read(present, s.instant(movePeriod)) != 0; tries++ {
		if tries == silentTicks {
			return 0, exit.Errorf(exit.Absent, "the arm does not answer: check its cables")
		}
	}
	copy(goal, present)
	copy(want, present)
	want[joint] = float32(cfg.To)
	way := math.Abs(cfg.To-float64(present[joint])) / (cfg.Robot.Motors[joint].MaxVelocity * cfg.Speed)
	giveUp := s.instant(time.Duration(way*float64(time.Second)) + moveExtra)
	there, silent := 0, 0
	for next := s.instant(movePeriod); ; next = next.Add(movePeriod) {
		s.Clock.SleepUntil(next)
		if silent++; arm.Read(present, s.instant(movePeriod/2)) == 0 {
			silent = 0
		}
		switch {
		case ctx.Err() != nil:
			return 0, exit.Errorf(exit.Failure, "interrupted at %.2f: torque goes off", present[joint])
		case arm.Lost() || silent > silentTicks:
			return 0, exit.Errorf(exit.Absent, "the arm does not answer any more: check its cables")
		case arm.Fatal() != nil:
			return 0, exit.With(exit.Fault, arm.Fatal())
		case s.Clock.Now() > giveUp:
			return 0, exit.Errorf(exit.Fault, "%s stays at %.2f: something blocks it, or its load is too high", cfg.Joint, present[joint])
		}
		gate.Apply(goal, want, present, arm.Hold())
		arm.Write(goal)
		if there++; math.Abs(float64(present[joint])-cfg.To) > moveReach {
			there = 0
		}
		if time.Duration(there)*movePeriod >= moveSettle {
			return float64(present[joint]), nil
		}
	}
}
