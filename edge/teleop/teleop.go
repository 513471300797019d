// Package teleop drives a follower arm with a leader arm that a person moves, on
// one tick: read the leader, read the follower, limit, write.
//
// The follower passes a policy's gate, starts slowly, holds while either arm does not
// answer, and is let go on every way out. Both arms may be unplugged and come back.
package teleop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"edgert/edge/device"
	"edgert/edge/event"
	"edgert/edge/follow"
	"edgert/edge/hotplug"
	"edgert/internal/exit"
	"edgert/rt"
	"edgert/servo"
)

// Config is one edge-rt teleop.
type Config struct {
	FPS         float64
	Follower    device.Place
	Leader      device.Place // its Robot is looked up
	LeaderRobot string       // name or file; empty: the follower's name and _leader
	Duration    time.Duration
	RT          rt.Mode
	CPU         int
	OnExit      string // park, hold, off
	Rescue      bool   // a follower outside its range is walked in slowly instead of refused
	Out         io.Writer
	Clock       rt.Clock // nil: the kernel's
}

const (
	stillGone = 100 * time.Millisecond
	measured  = 50 // cycles, to learn the adapter
	sayEvery  = 100 * time.Millisecond
)

// Run drives the follower until ctx ends or the duration is over.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.check(); err != nil {
		return err
	}
	s := &session{cfg: cfg, clock: cfg.Clock, period: time.Duration(float64(time.Second) / cfg.FPS)}
	if s.clock == nil {
		s.clock = rt.KernelClock()
	}
	defer s.close()
	var err error
	s.leader, err = s.open(ctx, cfg.Leader)
	if err == nil {
		s.follower, err = s.open(ctx, cfg.Follower)
	}
	switch {
	case errors.Is(err, servo.ErrCanceled):
		return nil // nothing was under torque but a leader's triggers
	case err != nil:
		return err
	}
	s.prepare()
	return s.run(ctx)
}

// check refuses what cannot run, and looks the leader up.
func (c *Config) check() error {
	_, known := follow.ExitModes[c.OnExit]
	var err error
	switch {
	case c.Follower.Bus == "":
		return exit.Errorf(exit.Usage, "--bus is missing: give the follower's serial port; edge-rt ports finds it")
	case c.Leader.Bus == "":
		return exit.Errorf(exit.Usage, "--leader is missing: give the leader's serial port; edge-rt ports finds it")
	case c.Follower.Bus == device.Sim:
		return exit.Errorf(exit.Usage, "sim is the arm inside a run: start edge-rt sim-bus --link /tmp/arm for each simulated arm, and give its link")
	case !known:
		return exit.Errorf(exit.Usage, "--on-exit is %q, want park, hold or off", c.OnExit)
	case c.Follower.Robot.Leader:
		return exit.Errorf(exit.Usage, "--robot %s is a leader: give the follower's", c.Follower.Robot.Name)
	}
	if err := device.CheckPorts(c.Leader.Bus, c.Follower.Bus); err != nil {
		return err
	}
	c.Leader.Robot, err = device.Leader(c.LeaderRobot, c.Follower.Robot)
	return err
}

// session is one run.
type session struct {
	// Constant after prepare.
	cfg              Config
	clock            rt.Clock
	period           time.Duration
	leader, follower *hotplug.Arm

	// Owner: tick thread.
	arm        *follow.Follower
	events     *event.Queue
	lead       []float32
	leaderSeen rt.Instant
	began      rt.Instant

	touched atomic.Bool // torque may be on
	leave   atomic.Bool // the operator wants to stop
	stop    atomic.Bool // the tick is over
	ending  atomic.Bool // so are the other threads
	failed  atomic.Pointer[error]
	threads sync.WaitGroup
}

// open finds an arm; it ends with servo.ErrCanceled soon after ctx does.
func (s *session) open(ctx context.Context, a device.Place) (*hotplug.Arm, error) {
	c, err := a.Load()
	if err != nil {
		return nil, err
	}
	cfg := servo.ArmConfig{Path: a.Bus, Robot: a.Robot, Calibration: c, Clock: s.clock, Canceled: func() bool { return ctx.Err() != nil }}
	arm, err := device.OpenArm(cfg)
	if err != nil {
		return nil, err
	}
	if _, err := arm.MeasureCycles(measured); err != nil {
		return nil, errors.Join(exit.With(exit.Absent, err), arm.Close())
	}
	if err := arm.HoldTriggers(); err != nil {
		return nil, errors.Join(exit.With(exit.Absent, err), arm.TorqueOff(), arm.Close())
	}
	return hotplug.New(arm, cfg, s.clock), nil
}

func (s *session) prepare() {
	n := len(s.cfg.Follower.Robot.Motors)
	s.lead, s.events = make([]float32, n), event.NewQueue(64)
	s.follower.SetPeriod(s.period)
	s.arm = follow.New(s.follower, follow.Config{
		Period: s.period, Safety: s.cfg.Follower.Robot.Safety, Gate: follow.NewGate(s.follower.Arm(), s.period),
		Exit: follow.ExitModes[s.cfg.OnExit], Rescue: s.cfg.Rescue, Events: s.events, Clock: s.clock,
	}, n)
}

func (s *session) run(ctx context.Context) error {
	loop := rt.NewLoop(rt.LoopConfig{Clock: s.clock, Period: s.period, Mode: s.cfg.RT, CPU: s.cfg.CPU})
	for _, arm := range []*hotplug.Arm{s.leader, s.follower} {
		s.threads.Go(func() { s.keep(arm) })
	}
	s.threads.Go(s.speak)
	fmt.Fprintf(s.cfg.Out, "The %s follows the %s. Move the leader slowly towards where the follower is; Ctrl-C ends.\n", s.cfg.Follower.Robot.Name, s.cfg.Leader.Robot.Name)
	ticked := make(chan error, 1)
	go func() { ticked <- s.ticks(loop) }()
	for done := ctx.Done(); ; {
		select {
		case err := <-ticked:
			return s.end(loop, err)
		case <-done:
			s.leave.Store(true)
			done = nil
		}
	}
}

// speak says what the tick has to say, and once more when it has ended.
func (s *session) speak() {
	for ended := false; !ended; {
		ended = s.ending.Load()
		s.events.Drain(s.say)
		s.clock.SleepUntil(s.clock.Now().Add(sayEvery))
	}
}

// say tells the person at the leader what became of the follower.
func (s *session) say(e event.Event) {
	joint := ""
	switch e.Code {
	case event.JointFrozen, event.JointHeld, event.JointOverloaded, event.JointBlind, event.JointLimp, event.JointStalled, event.JointMoved:
		joint = s.cfg.Follower.Robot.Joints(uint32(e.A)) + ": "
	case event.BusBack:
		if e.B>>1 != 0 {
			joint = s.cfg.Follower.Robot.Joints(uint32(e.B>>1)) + ": a motor had restarted; "
		}
	case event.BusLost, event.Suspended:
	default:
		return
	}
	fmt.Fprintf(s.cfg.Out, "%s%s\n", joint, e.Code.String())
}

// keep opens an arm again beside the tick; a panic ends the run.
func (s *session) keep(arm *hotplug.Arm) {
	defer func() {
		if p := recover(); p != nil {
			s.fail(fmt.Errorf("beside the tick: panic: %v", p))
		}
	}()
	arm.KeepOpen(&s.ending)
}

// ticks runs the loop; a panic in it must not leave the arm under torque.
func (s *session) ticks(loop *rt.Loop) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("tick: panic: %v", p)
		}
	}()
	return loop.Run(&s.stop, s.tick)
}

// tick is one period: first the leader is read, in half the time, then the follower.
//
//rt:noalloc
func (s *session) tick(t rt.Tick) rt.Wait {
	if s.began == 0 {
		s.began = t.Woke
	}
	reading := s.period - follow.Reserve(s.period)
	if s.leader.Read(s.lead, t.Deadline.Add(reading/2)) == 0 && s.leader.Reactions().Encoder == 0 {
		s.leaderSeen = t.Woke
	}
	s.arm.ReadBy(t, t.Deadline.Add(reading))
	wait := s.leader.BusWait()
	wait.Add(s.follower.BusWait())
	s.leader.Reconnected() // the next Read has its positions
	if s.cfg.Duration > 0 && t.Woke.Sub(s.began) >= s.cfg.Duration {
		s.leave.Store(true)
	}
	if s.arm.NeedsResume() {
		// A person is at the leader, and starts anew.
		s.fail(exit.Errorf(exit.Fault, "the follower's motors have restarted: check their supply, then start again"))
	}
	if err := s.arm.Fatal(); err != nil {
		s.finish(err)
	}
	s.drive(t)
	return wait
}

// drive takes the follower one step further in its phase.
func (s *session) drive(t rt.Tick) {
	present := t.Woke.Sub(s.leaderSeen) < stillGone
	switch s.arm.Phase {
	case follow.Unarmed:
		switch {
		case s.leave.Load():
			s.stop.Store(true)
		case present:
			s.arm.StartArming()
		}
	case follow.Arming:
		switch {
		case s.leave.Load() && s.arm.HasTorque():
			s.arm.Finish(t.Woke)
			return
		case !present || s.leave.Load():
			s.arm.CancelArming()
			return
		}
		s.touched.Store(true)
		if _, err := s.arm.ArmStep(t); err != nil {
			s.fail(device.Absent(err))
		}
	case follow.Armed:
		s.follow(t.Woke, present)
	case follow.Parking:
		s.arm.ParkStep(t.Woke, false)
	default:
		s.stop.Store(true)
	}
}

// follow gives the follower the leader's positions. While the leader is silent it stays,
// and then starts slowly: the leader may have moved.
//
//rt:noalloc
func (s *session) follow(now rt.Instant, present bool) {
	switch {
	case s.leave.Load():
		s.arm.Finish(now)
	case s.arm.Rescuing():
		if err := s.arm.RescueStep(now); err != nil {
			s.fail(err)
		}
	case !present:
		s.arm.StartSlowly(now)
	default:
		s.arm.Drive(now, s.lead)
	}
}

func (s *session) finish(err error) {
	err = exit.With(exit.Fault, err)
	s.failed.CompareAndSwap(nil, &err)
	s.leave.Store(true)
}

func (s *session) fail(err error) {
	s.failed.CompareAndSwap(nil, &err)
	s.stop.Store(true)
}

// end lets the follower go, unless exit.Held applies, and says how it went.
func (s *session) end(loop *rt.Loop, err error) error {
	if failed := s.failed.Load(); err == nil && failed != nil {
		err = *failed
	}
	var off error
	held := s.cfg.OnExit == "hold" && slices.Contains(exit.Held, exit.Of(err))
	if s.touched.Load() && !held {
		off = s.follower.RetryTorqueOff(func() bool { return false })
	}
	s.ending.Store(true)
	s.threads.Wait()
	if errors.Is(err, rt.ErrRealTimeRefused) {
		err = exit.With(exit.RealTime, err)
	}
	if off != nil {
		err = errors.Join(err, fmt.Errorf("torque may still be on: %w; hold on to the arm: edge-rt torque off --bus %s lets it go once its motors answer", off, s.cfg.Follower.Bus))
	}
	if held && s.touched.Load() {
		fmt.Fprintf(s.cfg.Out, "The follower is held, as --on-exit hold says: edge-rt torque off --bus %s lets it go.\n", s.cfg.Follower.Bus)
	}
	l, f, stats := s.leader.Stats(), s.follower.Stats(), loop.Stats()
	fmt.Fprintf(s.cfg.Out, "%d ticks, %d own and %d host overruns; leader p99 %v, %d lost; follower p99 %v, %d lost; %d goals clipped in range, %d in speed\n",
		stats.Ticks, stats.OverrunsOwn, stats.OverrunsHost, l.Cycle.Quantile(0.99), l.Lost, f.Cycle.Quantile(0.99), f.Lost, s.arm.Gate().RangeClips, s.arm.Gate().StepClips)
	return err
}

func (s *session) close() {
	s.ending.Store(true)
	s.threads.Wait()
	if s.leader != nil {
		if !s.leader.Away() && len(s.leader.Arm().Triggers()) > 0 {
			_ = s.leader.TorqueOff() // a trigger's spring; it holds nothing up
		}
		s.leader.Close()
	}
	if s.follower != nil {
		s.follower.Close()
	}
}
