// Package teleop drives a follower arm with a leader arm that a person moves, on one tick: read the
// leader, read the follower, limit, write.
//
// The follower's goals pass the same gate as a policy's. It starts slowly, holds while either arm
// does not answer, and loses its torque on every way out. Both arms may be unplugged and come back.
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
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// Config configures edge-rt teleop.
type Config struct {
	FPS         float64
	Follower    device.Place
	Leader      device.Place // check sets its Robot
	LeaderRobot string       // name or file; empty: the follower's name with _leader
	Duration    time.Duration
	Episodes    episode.Plan // Plan.Check has returned Record for it
	Task        string       // the task that the person demonstrates
	Seed        uint64       // of the simulated world
	Cameras     []capture.Config
	Encoding    capture.Encoding
	Record      record.Mode // content of the record; empty: off
	RecordDir   string      // folder of its files; empty: beside the robot's id
	RecordSize  int64       // maximum bytes of its files
	Log         *slog.Logger

	// Listen calls key with the keys of a terminal until stop is called. nil: no terminal.
	Listen func(key func(string)) (stop func())
	RT     rt.Mode
	CPU    int
	OnExit string // park, hold, off
	Rescue bool   // walk a follower outside its range in slowly, instead of refusing it
	Out    io.Writer
	Clock  rt.Clock // nil: the kernel's
}

const (
	stillGone = 100 * time.Millisecond
	measured  = 50 // measured cycles, to learn the adapter's latency
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
		return nil // nothing was under torque except a leader's triggers
	case err != nil:
		return err
	}
	if err := s.openCameras(); err != nil {
		return err
	}
	s.prepare()
	return s.drive(ctx)
}

// check refuses a configuration that cannot run, and looks up the leader's robot.
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
	entry      *record.Tick // this tick's record; nil: no record
	step       int64        // ticks on which the follower followed
	driven     bool         // it followed on this tick
	events     *event.Queue
	lead       []float32
	leaderSeen rt.Instant
	leading    *leader.Leading // the joints of the leader that lead

	identity  *operator.Identity
	recording *recording.Recording
	record    *record.Recorder // its lanes; nil: no record
	simBus    *servosim.Bus    // nil on hardware
	world     *sim.Live        // nil on hardware, unless a simulated camera needs it
	cameras   []*capture.Camera
	blind     []bool // the cameras without a usable picture; owner: speak
	operator  net.Listener
	episodes  *episode.Episodes
	commands  *operator.Panel
	run       *drive.Run
	task      atomic.Pointer[string]

	paused  atomic.Bool   // by an operator: the follower holds
	state   atomic.Uint32 // of the newest tick, an index in record.RunStates
	pending atomic.Int32  // cameras without a first picture
	stuck   bool          // a thread did not end: do not close the resources that it may use
}

// open opens an arm. After the end of ctx it soon returns servo.ErrCanceled.
func (s *session) open(ctx context.Context, a device.Place) (*hotplug.Arm, error) {
	path, c, err := s.find(a)
	if err != nil {
		return nil, err
	}
	cfg := servo.ArmConfig{
		Path:        path,
		Robot:       a.Robot,
		Calibration: c,
		File:        a.File(),
		Clock:       s.clock,
		Canceled:    func() bool { return ctx.Err() != nil },
	}
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

// sayNotes prints the notes of an arm's opening, also after a reconnect.
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
		Period: s.period,
		Safety: s.cfg.Follower.Robot.Safety,
		Gate:   follow.NewGate(s.follower.Arm(), s.period),
		Exit:   follow.ExitModes[s.cfg.OnExit],
		Rescue: s.cfg.Rescue,
		Events: s.events,
		Clock:  s.clock,
	}, n)
	s.state.Store(drive.State(follow.Unarmed, false))
	s.run = drive.New(drive.Config{
		Arm:    s.arm,
		Bus:    s.follower,
		Path:   s.cfg.Follower.Bus,
		Robot:  s.cfg.Follower.Robot,
		OnExit: s.cfg.OnExit,
		Held:   drive.SayHeld(s.cfg.Out),
		Loop: rt.LoopConfig{
			Clock:  s.clock,
			Period: s.period,
			Mode:   s.cfg.RT,
			CPU:    s.cfg.CPU,
		},
		Duration: s.cfg.Duration,
		ArmError: device.Absent,
	})
	s.commands = s.panel()
}

func (s *session) drive(ctx context.Context) error {
	s.recording.Start()
	ending := s.run.Ending()
	for _, cam := range s.cameras {
		s.run.Go(func() error { cam.Run(s.clock, ending, &s.pending); return nil })
	}
	s.run.Go(func() error {
		operator.Serve(s.operator, func(line string) operator.Reply { return s.commands.Command(ctx, line) })
		return nil
	})
	for _, arm := range []*hotplug.Arm{s.leader, s.follower} {
		s.run.Go(func() error { arm.KeepOpen(ending); return nil })
	}
	s.run.Go(s.speak)
	fmt.Fprintf(s.cfg.Out, "The %s follows the %s. Move the leader slowly to the position of the follower; Ctrl-C "+
		"ends.\n", s.cfg.Follower.Robot.Name, s.cfg.Leader.Robot.Name)
	deaf := s.cfg.Listen(s.key)
	defer deaf()
	return s.end(s.run.Loop(ctx, s.tick, nil))
}

// speak prints the events of the tick, once more after its end.
func (s *session) speak() error {
	for ended := false; !ended; {
		ended = s.run.Ending().Load()
		s.events.Drain(s.say)
		s.reportCameras()
		s.stepEpisodes()
		s.clock.SleepUntil(s.clock.Now().Add(sayEvery))
	}
	return nil
}

func (s *session) stepEpisodes() {
	s.commands.Between(func() { s.episodes.Step(context.Background()) })
}

// say prints an event for the person at the leader and records it.
func (s *session) say(e event.Event) {
	joint := ""
	why := ""
	level := slog.LevelWarn
	switch e.Code {
	case event.LeaderHeld, event.LeaderLeads:
		joint = s.cfg.Leader.Robot.Joints(robot.Joints(e.A)) + ": "
		if e.Code == event.LeaderHeld {
			why = "; " + leader.Cause(e.B).String()
		}
	case event.LeaderBack:
		s.sayNotes(s.leader.Arm())
	case event.JointHeld:
		joint = s.cfg.Follower.Robot.Joints(robot.Joints(e.A)) + ": "
		if text := event.ComplaintText(e.B); text != "" {
			why = ": " + text
		}
	case event.JointFrozen, event.JointOverloaded, event.JointBlind, event.JointLimp, event.JointStalled,
		event.JointMoved:
		joint = s.cfg.Follower.Robot.Joints(robot.Joints(e.A)) + ": "
	case event.BusBack:
		s.sayNotes(s.follower.Arm())
		if e.B>>1 != 0 {
			joint = s.cfg.Follower.Robot.Joints(robot.Joints(e.B>>1)) + ": a motor had restarted; "
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

// tick is one period: it reads the leader in half of the reading time, and then the follower.
//
//rt:noalloc
func (s *session) tick(t rt.Tick) rt.Wait {
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
	s.run.Check()
	read := s.clock.Now()
	s.driven = false
	if present := t.Woke.Sub(s.leaderSeen) < stillGone; s.run.Step(t, present, s.paused.Load()) {
		s.follow(t.Woke, present)
	}
	s.commitRecord(t, read)
	return wait
}

// follow drives the follower to the leader's positions. While the leader is silent the follower
// holds, and then it starts slowly, since the leader may have moved.
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

// checkLeading reports the joints of the leader that no longer lead, and those that lead again; the
// follower then starts slowly.
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

// end releases the follower and prints a summary.
func (s *session) end(err error) error {
	err = s.run.End(err, func() { s.operator.Close() })
	s.stuck = s.run.Stuck()
	s.episodes.Close()
	err, hangs := s.recording.End(err)
	s.stuck = s.stuck || hangs
	l := s.leader.Stats()
	f := s.follower.Stats()
	stats := s.run.Stats()
	fmt.Fprintf(s.cfg.Out, "%d ticks, %d own and %d host overruns; leader p99 %v, %d lost; follower p99 %v, %d lost; "+
		"%d goals clipped in range, %d in speed\n",
		stats.Ticks, stats.OverrunsOwn, stats.OverrunsHost, l.Cycle.Quantile(0.99), l.Lost, f.Cycle.Quantile(0.99),
		f.Lost, s.arm.Gate().RangeClips, s.arm.Gate().StepClips)
	if r := s.recording.Stats(); r != nil {
		fmt.Fprintf(s.cfg.Out, "record: %s\n", recording.Line(r))
	}
	return err
}

func (s *session) close() {
	s.run.Close()
	if s.leader != nil {
		if !s.leader.Away() && len(s.leader.Arm().Triggers()) > 0 {
			_ = s.leader.TorqueOff() // a trigger's spring; it holds no load
		}
		s.leader.Close()
	}
	if s.follower != nil {
		s.follower.Close()
	}
	s.closeRecord()
}
