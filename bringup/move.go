package bringup

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// MoveConfig holds the settings of edge-rt move.
type MoveConfig struct {
	Config
	Joint string  // such as shoulder_pan
	To    float64 // in its unit
	Speed float64 // share of the joint's velocity limit
}

const (
	movePeriod  = 20 * time.Millisecond
	moveSettle  = 300 * time.Millisecond // time at the goal until the move is done
	moveReach   = 2.0                    // in the joint's unit: distance within which the joint is at the goal
	moveExtra   = 3 * time.Second        // added to the time of the way at that speed
	silentTicks = 50                     // a second without an answer of every joint
)

// check refuses a movement that is not possible, and returns the joint's index.
func (cfg *MoveConfig) check() (joint int, err error) {
	names := cfg.Robot.ActionNames()
	joint = slices.IndexFunc(cfg.Robot.Motors, func(m robot.Motor) bool { return m.Name == cfg.Joint })
	if err := cfg.checkBus(); err != nil {
		return 0, err
	}
	switch {
	case cfg.Robot.Leader:
		return 0, exit.Errorf(exit.Usage, "a %s is moved by hand", cfg.Robot.Name)
	case joint < 0:
		return 0, exit.Errorf(exit.Usage, "no joint %q: a %s has %s", cfg.Joint, cfg.Robot.Name,
			strings.ReplaceAll(strings.Join(names, ", "), ".pos", ""))
	case math.IsNaN(cfg.To) || math.IsInf(cfg.To, 0):
		return 0, exit.Errorf(exit.Usage, "%v is no position", cfg.To)
	}
	return joint, nil
}

// Move moves one joint slowly while the others hold, then switches torque off while the operator
// supports the arm.
func Move(ctx context.Context, cfg MoveConfig) (err error) {
	joint, err := cfg.check()
	if err != nil {
		return err
	}
	s := newSession(cfg.Config)
	calibration, err := s.Load()
	if err != nil {
		return err
	}
	open := servo.ArmConfig{
		Path:        s.Bus,
		Robot:       s.Robot,
		Calibration: calibration,
		File:        s.File(),
		Clock:       s.Clock,
		Canceled:    func() bool { return ctx.Err() != nil },
	}
	arm, err := s.Open(&open)
	switch {
	case errors.Is(err, servo.ErrCanceled):
		return exit.Errorf(exit.Failure, "interrupted before the arm was open: nothing was moved")
	case err != nil:
		return err
	}
	if s.Taken != "" {
		s.printf("%s.", s.Taken)
	}
	for _, note := range arm.Notes() {
		s.printf("%s", note)
	}
	bus := hotplug.New(arm, open, s.Clock)
	defer bus.Close()
	if low, high := arm.Range(joint); cfg.To < low || cfg.To > high {
		return exit.Errorf(exit.Usage, "%s to %v: its range is %.1f to %.1f %s", cfg.Joint, cfg.To, low, high,
			s.Robot.Motors[joint].Norm)
	}
	defer func() {
		if off := bus.RetryTorqueOff(func() bool { return false }); off != nil {
			err = errors.Join(err, exit.With(exit.Absent, off))
		}
	}()
	safety := s.Robot.Safety
	safety.Slew = max(safety.Slew, cfg.Speed) // the goal is far on purpose, and the operator has chosen the speed
	bus.SetPeriod(movePeriod)
	f := follow.New(bus, follow.Config{
		Period: movePeriod,
		Safety: safety,
		Gate:   follow.NewGate(arm, movePeriod),
		Exit:   follow.ExitOff,
		Rescue: true,
		Clock:  s.Clock,
	}, len(s.Robot.Motors))
	f.StartArming()
	m := mover{
		session: s,
		arm:     f,
		bus:     bus,
		joint:   joint,
		cfg:     cfg,
	}
	at, err := m.travel(ctx)
	if err != nil {
		return err
	}
	s.printf("%s is at %.2f. Torque goes off.", cfg.Joint, at)
	s.printf("Next: edge-rt %s --camera top=/dev/video0 --connect tcp/HOST:7447", s.flags())
	return nil
}

type mover struct {
	*session
	arm   *follow.Follower
	bus   *hotplug.Arm
	joint int
	cfg   MoveConfig

	want   []float32
	giveUp rt.Instant // set when the way is known
	silent int        // ticks in a row without an answer of every joint
	there  int        // ticks in a row at the goal
	why    string     // state of the joint in its last answer, for an error
}

// noteWhy stores the joint's state in a tick with an answer: a reply lost in the last tick is not
// the reason of a move that took too long.
func (m *mover) noteWhy() {
	if m.arm.Stale()&(1<<m.joint) == 0 {
		m.why = m.arm.Why(m.joint)
	}
}

// travel arms the arm at its position, moves it into its range, and drives the joint at its share
// of the velocity limit through the gate of a run.
func (m *mover) travel(ctx context.Context) (at float64, err error) {
	clock := m.Clock
	heartbeat := rt.LoopHeartbeat(clock)
	slept := rt.NewSuspension(clock)
	index := uint64(0)
	heartbeat.Start(movePeriod)
	defer heartbeat.Stop()
	for next := clock.Now().Add(movePeriod); ; next = next.Add(movePeriod) {
		clock.SleepUntil(next)
		index++
		t := rt.Tick{
			Index:     index,
			Deadline:  next,
			Woke:      clock.Now(),
			Suspended: slept.Passed(),
		}
		m.arm.Read(t)
		present := float64(m.arm.State[m.joint])
		if m.silent++; m.arm.Stale() == 0 {
			m.silent = 0
		}
		m.noteWhy()
		switch {
		case ctx.Err() != nil:
			return 0, exit.Errorf(exit.Failure, "interrupted at %.2f: torque goes off", present)
		case m.bus.Away() || m.silent > silentTicks:
			return 0, exit.Errorf(exit.Absent,
				"the arm does not answer any more: check its cables, and whether its motors have restarted")
		case m.arm.Fatal() != nil:
			return 0, exit.With(exit.Fault, m.arm.Fatal())
		case m.giveUp != 0 && t.Woke > m.giveUp:
			if text := m.arm.Complains(m.joint); text != "" {
				return 0, exit.Errorf(exit.Fault, "%s stays at %.2f: its motor reports a fault of its %s", m.cfg.Joint,
					present, text)
			}
			return 0, exit.Errorf(exit.Fault, "%s stays at %.2f: something blocks it, or its load is too high (%s)",
				m.cfg.Joint, present, m.why)
		}
		if done, err := m.step(t, present); done || err != nil {
			return present, err
		}
		heartbeat.Beat()
	}
}

func (m *mover) step(t rt.Tick, present float64) (done bool, err error) {
	switch {
	case m.arm.Phase == follow.Arming:
		if _, err := m.arm.ArmStep(t); err != nil {
			return false, device.Absent(err)
		}
		if m.arm.Phase == follow.Armed {
			m.printf("Torque is on. Hold on to the arm: it is let go at the end.")
		}
		return false, nil
	case m.arm.Phase != follow.Armed:
		return false, exit.Errorf(exit.Fault, "the arm was away: %s", m.arm.Why(m.joint))
	case m.arm.Rescuing():
		if m.want == nil {
			m.printf("Joints outside their range are moved in slowly: %s.", m.Robot.Joints(m.bus.OutOfRange()))
			m.want = []float32{}
		}
		return false, m.arm.RescueStep(t.Woke)
	}
	if len(m.want) == 0 {
		m.want = append([]float32{}, m.arm.Goal...)
		m.want[m.joint] = float32(m.cfg.To)
		// at the speed of a slow start
		way := math.Abs(m.cfg.To-present) / (m.cfg.Robot.Motors[m.joint].MaxVelocity * min(m.cfg.Speed,
			m.Robot.Safety.Slew))
		m.giveUp = t.Woke.Add(time.Duration(way*float64(time.Second)) + moveExtra)
	}
	m.arm.DriveAt(t.Woke, m.want, float32(m.cfg.Speed))
	if m.there++; math.Abs(present-m.cfg.To) > moveReach {
		m.there = 0
	}
	return time.Duration(m.there)*movePeriod >= moveSettle, nil
}
