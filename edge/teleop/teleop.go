// Package teleop drives a follower arm with a leader arm that a person moves, on
// one tick: read the leader, read the follower, limit, write.
//
// The follower passes a policy's gate, starts slowly, holds while either arm does not
// answer, and is let go on every way out. Both arms may be unplugged and come back.
package teleop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"edgert/edge/capture"
	"edgert/edge/device"
	"edgert/edge/direct"
	"edgert/edge/episode"
	"edgert/edge/event"
	"edgert/edge/follow"
	"edgert/edge/hotplug"
	"edgert/edge/identity"
	"edgert/edge/leader"
	"edgert/edge/operator"
	"edgert/edge/recording"
	"edgert/internal/exit"
	"edgert/record"
	"edgert/rt"
	"edgert/servo"
	"edgert/servo/servosim"
	"edgert/sim"
)

// Config is one edge-rt teleop.
type Config struct {
	FPS         float64
	Follower    device.Place
	Leader      device.Place // its Robot is looked up
	LeaderRobot string       // name or file; empty: the follower's name and _leader
	Duration    time.Duration
	Episodes    episode.Plan // Record is what its Check returns
	Task        string       // what the person shows
	Seed        uint64       // the simulated world's
	Cameras     []capture.Config
	Encoding    capture.Encoding
	Record      record.Mode // what is kept; empty: off
	RecordDir   string      // where its files go; empty: beside the robot's id
	RecordSize  int64       // most bytes of them all
	Log         *slog.Logger

	// Listen has key called with the keys of a terminal until what it returns is called; nil:
	// there is none.
	Listen func(key func(string)) (stop func())
	RT     rt.Mode
	CPU    int
	OnExit string // park, hold, off
	Rescue bool   // a follower outside its range is walked in slowly instead of refused
	Out    io.Writer
	Clock  rt.Clock // nil: the kernel's
}

const (
	stillGone = 100 * time.Millisecond
	measured  = 50 // cycles, to learn the adapter

	stuckLimit = 5 * time.Second // for the capture threads, once the arm is let go
	sayEvery   = 100 * time.Millisecond
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
	if s.cfg.Log == nil {
		s.cfg.Log = slog.New(slog.DiscardHandler)
	}
	if s.cfg.Listen == nil {
		s.cfg.Listen = func(func(string)) func() { return func() {} }
	}
	s.task.Store(&s.cfg.Task)
	defer s.close()
	err := s.openRecord()
	if err == nil {
		s.leader, err = s.open(ctx, cfg.Leader)
	}
	if err == nil {
		s.follower, err = s.open(ctx, cfg.Follower)
	}
	switch {
	case errors.Is(err, servo.ErrCanceled):
		return nil // nothing was under torque but a leader's triggers
	case err != nil:
		return err
	}
	if err := s.openCameras(); err != nil {
		return err
	}
	s.prepare()
	return s.drive(ctx)
}

// check refuses what cannot run, and looks the leader up.
func (c *Config) check() error {
	switch {
	case c.Follower.Bus == "":
		return exit.Errorf(exit.Usage, "--bus is missing: give the follower's serial port; edge-rt ports finds it")
	case c.Leader.Bus == "":
		return exit.Errorf(exit.Usage, "--leader is missing: give the leader's serial port; edge-rt ports finds it")
	case len(c.Cameras) > record.MaxCameras:
		return exit.Errorf(exit.Usage, "%d cameras, at most %d", len(c.Cameras), record.MaxCameras)
	case c.Follower.Robot.Leader:
		return exit.Errorf(exit.Usage, "--robot %s is a leader: give the follower's", c.Follower.Robot.Name)
	}
	if len(c.Cameras) > 0 {
		if err := capture.CheckBuild(); err != nil {
			return err
		}
	}
	if c.Task != "" {
		if err := operator.CheckTask("--task", c.Task); err != nil {
			return err
		}
	}
	err := cmp.Or(follow.CheckExit(c.OnExit), device.CheckPorts(c.Leader.Bus, c.Follower.Bus))
	if err != nil {
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
	entry      *record.Tick // this tick's record; nil: there is none
	step       int64        // ticks on which the follower followed
	driven     bool         // it did in this one
	events     *event.Queue
	lead       []float32
	leaderSeen rt.Instant
	leading    *leader.Leading // which of its joints lead
	began      rt.Instant

	identity  *identity.Identity
	recording *recording.Recording
	record    *record.Recorder // its lanes; nil: nothing is recorded
	simBus    *servosim.Bus    // nil on hardware
	world     *sim.Live        // nil on hardware, until a simulated camera wants one
	cameras   []*capture.Camera
	blind     []bool // each camera gives no usable picture; owner: speak
	operator  net.Listener
	episodes  *episode.Episodes
	operating sync.Mutex // one command, or step of the episodes, at a time
	run       *direct.Run
	task      atomic.Pointer[string]

	paused  atomic.Bool    // by an operator: the follower stays
	state   atomic.Uint32  // in the newest tick, a number of record.RunStates
	pending atomic.Int32   // cameras without a first picture
	stuck   bool           // a thread did not end: what it may use is not closed
	grabs   sync.WaitGroup // the capture threads, which a driver may hold up
}

// open finds an arm; it ends with servo.ErrCanceled soon after ctx does.
func (s *session) open(ctx context.Context, a device.Place) (*hotplug.Arm, error) {
	path, c, err := s.find(a)
	if err != nil {
		return nil, err
	}
	cfg := servo.ArmConfig{Path: path, Robot: a.Robot, Calibration: c, File: a.File(), Clock: s.clock, Canceled: func() bool { return ctx.Err() != nil }}
	arm, err := a.Open(&cfg)
	if err != nil {
		return nil, err
	}
	if a.Taken != "" {
		s.cfg.Log.Info(a.Taken)
	}
	s.sayNotes(arm)
	if _, err := arm.MeasureCycles(measured); err != nil {
		return nil, errors.Join(exit.With(exit.Absent, err), arm.Close())
	}
	if err := arm.HoldTriggers(); err != nil {
		return nil, errors.Join(exit.With(exit.Absent, err), arm.TorqueOff(), arm.Close())
	}
	return hotplug.New(arm, cfg, s.clock), nil
}

// sayNotes says what the opening of an arm has found, as after a reconnect.
func (s *session) sayNotes(arm *servo.Arm) {
	for _, note := range arm.Notes() {
		fmt.Fprintf(s.cfg.Out, "%s: %s\n", arm.Robot(), note)
	}
}

func (s *session) prepare() {
	n := len(s.cfg.Follower.Robot.Motors)
	s.lead, s.events = make([]float32, n), event.NewQueue(64)
	s.leading = leader.NewLeading(s.cfg.Leader.Robot)
	s.follower.SetPeriod(s.period)
	s.arm = follow.New(s.follower, follow.Config{
		Period: s.period, Safety: s.cfg.Follower.Robot.Safety, Gate: follow.NewGate(s.follower.Arm(), s.period),
		Exit: follow.ExitModes[s.cfg.OnExit], Rescue: s.cfg.Rescue, Events: s.events, Clock: s.clock,
	}, n)
	s.state.Store(direct.State(follow.Unarmed, false))
	s.run = direct.New(direct.Config{
		Arm: s.arm, Bus: s.follower, Path: s.cfg.Follower.Bus, Robot: s.cfg.Follower.Robot, OnExit: s.cfg.OnExit, Out: s.cfg.Out,
		Loop: rt.LoopConfig{Clock: s.clock, Period: s.period, Mode: s.cfg.RT, CPU: s.cfg.CPU},
	})
}

func (s *session) drive(ctx context.Context) error {
	s.recording.Start()
	for _, cam := range s.cameras {
		s.grabs.Go(func() { s.run.Guarded(func() { cam.Run(s.clock, s.run.Ending(), &s.pending) }) })
	}
	s.run.Go(func() { operator.Serve(s.operator, s.command) })
	for _, arm := range []*hotplug.Arm{s.leader, s.follower} {
		s.run.Go(func() { arm.KeepOpen(s.run.Ending()) })
	}
	s.run.Go(s.speak)
	fmt.Fprintf(s.cfg.Out, "The %s follows the %s. Move the leader slowly towards where the follower is; Ctrl-C ends.\n", s.cfg.Follower.Robot.Name, s.cfg.Leader.Robot.Name)
	deaf := s.cfg.Listen(s.key)
	defer deaf()
	return s.end(s.run.Drive(ctx, s.tick))
}

// speak says what the tick has to say, and once more when it has ended.
func (s *session) speak() {
	for ended := false; !ended; {
		ended = s.run.Ending().Load()
		s.events.Drain(s.say)
		s.reportCameras()
		s.stepEpisodes()
		s.clock.SleepUntil(s.clock.Now().Add(sayEvery))
	}
}

func (s *session) stepEpisodes() {
	s.operating.Lock()
	defer s.operating.Unlock() // also where it panics: commands wait for it
	s.episodes.Step(context.Background())
}

// say tells the person at the leader what became of the follower.
func (s *session) say(e event.Event) {
	joint, why, level := "", "", slog.LevelWarn
	switch e.Code {
	case event.LeaderHeld, event.LeaderLeads:
		joint = s.cfg.Leader.Robot.Joints(uint32(e.A)) + ": "
		if e.Code == event.LeaderHeld {
			why = "; " + leader.Cause(e.B).String()
		}
	case event.LeaderBack:
		s.sayNotes(s.leader.Arm())
	case event.JointHeld:
		joint = s.cfg.Follower.Robot.Joints(uint32(e.A)) + ": "
		if text := event.ComplaintText(e.B); text != "" {
			why = ": " + text
		}
	case event.JointFrozen, event.JointOverloaded, event.JointBlind, event.JointLimp, event.JointStalled, event.JointMoved:
		joint = s.cfg.Follower.Robot.Joints(uint32(e.A)) + ": "
	case event.BusBack:
		s.sayNotes(s.follower.Arm())
		if e.B>>1 != 0 {
			joint = s.cfg.Follower.Robot.Joints(uint32(e.B>>1)) + ": a motor had restarted; "
		}
	case event.BusLost, event.Suspended:
	case event.TorqueOn:
		level = slog.LevelInfo
	default:
		return
	}
	attrs := []slog.Attr{slog.String("joint", strings.TrimSuffix(joint, ": "))}
	if e.Code == event.LeaderHeld {
		attrs = append(attrs, slog.String("why", leader.Cause(e.B).String()))
	}
	s.recording.Event(e, level, attrs)
	if level == slog.LevelInfo {
		return
	}
	fmt.Fprintf(s.cfg.Out, "%s%s%s\n", joint, e.Code.String(), why)
}

// tick is one period: first the leader is read, in half the time, then the follower.
//
//rt:noalloc
func (s *session) tick(t rt.Tick) rt.Wait {
	if s.began == 0 {
		s.began = t.Woke
	}
	s.entry = recording.Begin(s.record, t)
	reading := s.period - follow.Reserve(s.period)
	if s.leader.Read(s.lead, t.Deadline.Add(reading/2)) == 0 && s.leader.Reactions().Encoder == 0 {
		s.leaderSeen = t.Woke
		s.checkLeading(t.Woke)
	}
	s.arm.ReadBy(t, t.Deadline.Add(reading))
	wait := s.leader.BusWait()
	wait.Add(s.follower.BusWait())
	if why, _ := s.leader.Reconnected(); why != 0 { // the next Read has its positions
		s.leading.Forget()
		s.events.Emit(t.Woke, event.LeaderBack, int64(why), 0)
	}
	if s.cfg.Duration > 0 && t.Woke.Sub(s.began) >= s.cfg.Duration {
		s.run.Leave()
	}
	s.run.Check()
	read := s.clock.Now()
	s.driven = false
	if present := t.Woke.Sub(s.leaderSeen) < stillGone; s.run.Step(t, present) {
		s.follow(t.Woke, present)
	}
	s.commitRecord(t, read)
	return wait
}

// follow gives the follower the leader's positions. While the leader is silent it stays,
// and then starts slowly: the leader may have moved.
//
//rt:noalloc
func (s *session) follow(now rt.Instant, present bool) {
	if !present || s.paused.Load() {
		s.arm.StartSlowly(now)
		return
	}
	s.arm.KeepGoals(s.lead, s.leading.Held())
	s.arm.Drive(now, s.lead)
	s.recordAction()
}

// checkLeading reports the joints of the leader that do not lead any more, and those that
// lead again, which the follower follows slowly at first.
//
//rt:noalloc
func (s *session) checkLeading(now rt.Instant) {
	began, ended := s.leading.Check(now, s.leader)
	for cause, joints := range began {
		if joints != 0 {
			s.events.Emit(now, event.LeaderHeld, int64(joints), int64(cause))
		}
	}
	if ended != 0 {
		s.arm.StartSlowly(now)
		s.events.Emit(now, event.LeaderLeads, int64(ended), 0)
	}
}

// end lets the follower go, and says how it went.
func (s *session) end(err error) error {
	err = s.run.End(err, func() { s.operator.Close() })
	s.stuck = !device.Within(s.clock, stuckLimit, &s.grabs)
	if s.stuck {
		err = exit.Keep(err, fmt.Errorf("a camera did not end within %v of the arm: it hangs", stuckLimit))
	}
	s.episodes.Close()
	err, hangs := s.recording.End(err)
	s.stuck = s.stuck || hangs
	l, f, stats := s.leader.Stats(), s.follower.Stats(), s.run.Stats()
	fmt.Fprintf(s.cfg.Out, "%d ticks, %d own and %d host overruns; leader p99 %v, %d lost; follower p99 %v, %d lost; %d goals clipped in range, %d in speed\n",
		stats.Ticks, stats.OverrunsOwn, stats.OverrunsHost, l.Cycle.Quantile(0.99), l.Lost, f.Cycle.Quantile(0.99), f.Lost, s.arm.Gate().RangeClips, s.arm.Gate().StepClips)
	if r := s.recording.Stats(); r != nil {
		fmt.Fprintf(s.cfg.Out, "record: %s\n", recording.Line(r))
	}
	return err
}

func (s *session) close() {
	s.run.Close()
	if s.leader != nil {
		if !s.leader.Away() && len(s.leader.Arm().Triggers()) > 0 {
			_ = s.leader.TorqueOff() // a trigger's spring; it holds nothing up
		}
		s.leader.Close()
	}
	if s.follower != nil {
		s.follower.Close()
	}
	s.closeRecord()
}
