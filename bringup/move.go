package bringup

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
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
	Joint string  // name of the joint, such as shoulder_pan
	To    float64 // goal in the joint's unit
	Speed float64 // share of the joint's velocity limit
}

const (
	movePeriod = 20 * time.Millisecond
	moveSettle = 300 * time.Millisecond // the move ends after this time at the goal
	moveReach  = 2.0                    // in the joint's unit: distance within which the joint is at the goal
	// time limit beyond the computed time of the move, or since the joint last came nearer
	moveExtra   = 3 * time.Second
	silentTicks = 50 // one second of ticks in which some joint did not answer
)

// check refuses a movement that is not possible, and returns the joint's index.
func (cfg *MoveConfig) check() (joint int, err error) {
	names := cfg.Robot.JointNames()
	joint = slices.IndexFunc(cfg.Robot.Motors, func(m robot.Motor) bool { return m.Name == cfg.Joint })
	if err := cfg.checkBus(); err != nil {
		return 0, err
	}
	switch {
	case cfg.Robot.Leader:
		return 0, exit.Errorf(exit.Usage, "a %s is moved by hand", cfg.Robot.Name)
	case joint >= 0 && cfg.Robot.Wheels().Has(joint):
		return 0, exit.Errorf(exit.Usage,
			"%s is a wheel, which goes to no position: keys drive a base in edge-rt teleop",
			cfg.Joint)
	case joint < 0:
		return 0, exit.Errorf(exit.Usage, "no joint %q: a %s has %s", cfg.Joint, cfg.Robot.Name,
			strings.Join(names, ", "))
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
	m := newMover(s, arm, bus, joint, cfg)
	err = m.run.End(m.run.Loop(ctx, m.tick, m.look), nil)
	m.look(0)
	if !m.run.Touched() { // an earlier program may have left torque on
		err = errors.Join(err, letGo{bus}.RetryTorqueOff(func() bool { return false }))
	}
	at := m.arm.State[joint]
	switch {
	case err != nil:
		return err
	case m.run.Cause() == drive.Signal:
		return exit.Errorf(exit.Failure, "interrupted at %.2f: torque goes off", at)
	}
	s.printf("%s%s is at %.2f. Torque goes off.", s.Prefix(), cfg.Joint, at)
	if s.Part != "" {
		return nil // the next command is for all parts
	}
	s.printf("Next: edge-rt %s --camera top=/dev/video0 --connect tcp/HOST:7447", s.flags())
	return nil
}

// mover moves one joint. Its tick is the tick of the drive.Run in run.
type mover struct {
	*session
	arm    *follow.Parts
	bus    *hotplug.Arm
	run    *drive.Run
	joint  int
	cfg    MoveConfig
	events *event.Queue

	// Owner: the tick.
	armed  bool
	want   []float32  // the action; empty: the move has not begun
	giveUp rt.Instant // deadline of the move; 0: the length of the move is not known yet
	best   float64    // smallest distance to the goal so far
	silent int        // consecutive ticks in which some joint did not answer
	there  int        // ticks in a row at the goal
	why    string     // state of the joint in its last answer, for the text of an error

	outside atomic.Uint32 // joints that are moved into their range, one bit each
}

// letGo is the arm of a move. If its torque cannot be switched off, the command ends with exit.Absent.
type letGo struct{ *hotplug.Arm }

func (l letGo) RetryTorqueOff(hurry func() bool) error {
	return exit.With(exit.Absent, l.Arm.RetryTorqueOff(hurry))
}

func newMover(s *session, arm *servo.Arm, bus *hotplug.Arm, joint int, cfg MoveConfig) *mover {
	safety := s.Robot.Safety
	safety.Slew = max(safety.Slew, cfg.Speed) // the goal is far on purpose, and the operator has chosen the speed
	m := &mover{
		session: s,
		bus:     bus,
		joint:   joint,
		cfg:     cfg,
		events:  event.NewQueue(64),
	}
	m.arm = follow.One(follow.New(bus, follow.Config{
		Period: movePeriod,
		Safety: safety,
		Gate:   follow.NewGate(arm, movePeriod),
		Exit:   follow.ExitOff,
		Rescue: true,
		Events: m.events,
		Clock:  s.Clock,
	}, len(s.Robot.Motors)))
	m.run = drive.New(drive.Config{
		Arm:    m.arm,
		Bus:    letGo{bus},
		Path:   s.Bus,
		Robot:  s.Robot,
		OnExit: "off",
		Loop: rt.LoopConfig{
			Clock:  s.Clock,
			Period: movePeriod,
			Mode:   rt.ModeOff,
			CPU:    rt.UnpinnedCPU,
		},
		ArmError: device.Absent,
	})
	return m
}

// look prints the progress, beside the tick.
func (m *mover) look(rt.Instant) {
	m.events.Drain(func(e event.Event) {
		if e.Code == event.TorqueOn {
			m.printf("Torque is on. Hold the arm: torque goes off at the end.")
		}
	})
	if joints := m.outside.Swap(0); joints != 0 {
		m.printf("Joints outside their range are moved in slowly: %s.", m.Robot.Joints(robot.Joints(joints)))
	}
}

// noteWhy stores the joint's state, but only in a tick with an answer. A reply lost in the last tick is not the reason
// why a move took too long.
func (m *mover) noteWhy() {
	if m.arm.Stale()&(1<<m.joint) == 0 {
		m.why = m.arm.Why(m.joint)
	}
}

// tick is one period.
func (m *mover) tick(t rt.Tick) rt.Wait {
	m.arm.Read(t)
	if m.silent++; m.arm.Stale() == 0 {
		m.silent = 0
	}
	m.noteWhy()
	if err := m.fault(t.Woke); err != nil && !m.run.Leaving() {
		m.run.Fail(err)
		return rt.Wait{}
	}
	if m.run.Step(t, true, false) {
		m.drive(t.Woke)
	}
	if m.arm.Phase == follow.Armed && !m.armed {
		m.armed = true
		if m.arm.Rescuing() {
			m.outside.Store(uint32(m.bus.OutOfRange()))
		}
	}
	return m.bus.BusWait()
}

// fault returns the reason why the move cannot continue; nil: it can.
func (m *mover) fault(now rt.Instant) error {
	present := m.arm.State[m.joint]
	switch complaint := m.arm.Complains(m.joint); {
	case m.bus.Away() || m.silent > silentTicks:
		return exit.Errorf(exit.Absent,
			"the arm does not answer any more: check its cables, and whether its motors have restarted")
	case m.arm.Fatal() != nil:
		return exit.With(exit.Fault, m.arm.Fatal())
	case m.armed && m.arm.Phase == follow.Unarmed: // in Arming, motors stopped by a bus watchdog are only armed again
		return exit.Errorf(exit.Fault, "the arm was away: %s", m.arm.Why(m.joint))
	case m.giveUp == 0 || now <= m.giveUp:
		return nil
	case complaint != "":
		return exit.Errorf(exit.Fault, "%s stays at %.2f: its motor reports a fault of its %s", m.cfg.Joint, present,
			complaint)
	default:
		return exit.Errorf(exit.Fault, "%s stays at %.2f: something blocks it, or its load is too high (%s)",
			m.cfg.Joint, present, m.why)
	}
}

// drive moves the joint at cfg.Speed of its velocity limit, and ends the move when the joint has settled at the goal.
func (m *mover) drive(now rt.Instant) {
	way := math.Abs(m.cfg.To - float64(m.arm.State[m.joint]))
	if len(m.want) == 0 {
		m.want = append(m.want, m.arm.Goal...)
		m.want[m.joint] = float32(m.cfg.To)
		// The estimate assumes the speed of a slow start for the whole way.
		seconds := way / (m.Robot.Motors[m.joint].MaxVelocity * min(m.cfg.Speed, m.Robot.Safety.Slew))
		m.best = way
		m.giveUp = now.Add(time.Duration(seconds*float64(time.Second)) + moveExtra)
	}
	m.arm.DriveAt(now, m.want, float32(m.cfg.Speed))
	if way < m.best-moveReach { // the joint comes nearer, perhaps slowly on a busy machine
		m.best = way
		m.giveUp = max(m.giveUp, now.Add(moveExtra))
	}
	if m.there++; way > moveReach {
		m.there = 0
	}
	if time.Duration(m.there)*movePeriod >= moveSettle {
		m.run.Leave(drive.Itself)
	}
}
