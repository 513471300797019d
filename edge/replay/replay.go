// Package replay moves an arm like a recorded episode. It follows the goals that the gate let pass
// during the recording, not the original actions, through the same gate and core as a policy's
// goals (package follow), at the record's rate. First the arm moves slowly to the episode's first
// position.
//
// episode.go reads the record, calibration.go compares the arm's calibration with the record's,
// replay.go drives the arm. A replay is recorded like a run.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// Config configures edge-rt replay.
type Config struct {
	File   string
	Number uint32  // of the episode; 0: the only one
	Speed  float64 // relative to the record's, at most 1
	Arm    device.Place
	RT     rt.Mode
	CPU    int
	OnExit string // park, hold, off
	Rescue bool   // walk an arm outside its range in slowly, instead of refusing it

	// OtherCalibration permits a replay although the record's numbers mean other positions on this
	// arm.
	OtherCalibration bool

	Seed       uint64 // of the simulated world
	Record     record.Mode
	RecordDir  string
	RecordSize int64
	Log        *slog.Logger
	Out        io.Writer
	Clock      rt.Clock // nil: the kernel's
}

const (
	approachPace  = 0.1 // relative to the joints' velocity limits, on the way to the episode's first position
	approachReach = 3.0 // robot units; a smaller distance counts as reached
	approachExtra = 5 * time.Second
	stillLimit    = 10 * time.Second // of a silent or held joint, before the replay ends
	sayEvery      = 100 * time.Millisecond
)

// session is one replay.
type session struct {
	// Constant after prepare.
	cfg       Config
	clock     rt.Clock
	period    time.Duration
	episode   Episode
	bus       *hotplug.Arm
	simBus    *servosim.Bus // nil on hardware
	identity  *operator.Identity
	recording *recording.Recording
	record    *record.Recorder // its lanes; nil: no record
	run       *drive.Run
	velocity  []float32 // of each joint, units per second
	catchUp   []float32 // of each joint, its travel per tick while its goal trails the episode's

	calibration servo.Calibration
	file        string // of calibration; empty for the simulated arm

	// Owner: tick thread.
	arm      *follow.Follower
	events   *event.Queue
	entry    *record.Tick
	place    float64   // position in the episode, in ticks
	step     int64     // number of actions so far
	row      []float32 // the episode's row at place
	before   []float32 // the row of the previous tick
	bounded  []float32 // row, limited to the recorded travel from the current goals
	approach bool
	giveUp   rt.Instant  // deadline of the approach; 0: not started
	stillAt  rt.Instant  // start of a joint's silence or hold; 0: all joints are driven
	silent   event.Lacks // since stillAt
	held     event.Lacks
	done     bool
}

// Run replays an episode, until its end or the end of ctx.
func Run(ctx context.Context, cfg Config) (err error) {
	if err := cfg.check(); err != nil {
		return err
	}
	s := &session{cfg: cfg, clock: cfg.Clock}
	if s.clock == nil {
		s.clock = rt.KernelClock()
	}
	if s.cfg.Log == nil {
		s.cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := s.load(); err != nil {
		return err
	}
	defer s.close()
	for _, step := range []func(context.Context) error{s.loadCalibration, s.openRecord, s.compareCalibrations,
		s.openArm} {
		if err = step(ctx); err != nil {
			break
		}
	}
	switch {
	case errors.Is(err, servo.ErrCanceled):
		return nil // nothing was under torque
	case err != nil:
		return err
	}
	s.prepare()
	return s.drive(ctx)
}

func (c *Config) check() error {
	switch {
	case c.Arm.Bus == "":
		return exit.Errorf(exit.Usage, "--bus is missing: give the arm's serial port, or sim; edge-rt ports finds it")
	case c.Arm.Robot.Leader:
		return exit.Errorf(exit.Usage, "--robot %s is a leader, which a person moves: give the follower's",
			c.Arm.Robot.Name)
	case !(c.Speed > 0 && c.Speed <= 1):
		return exit.Errorf(exit.Usage,
			"--speed is %v, want more than 0 and at most 1: an arm is not moved faster than it was shown", c.Speed)
	}
	return follow.CheckExit(c.OnExit)
}

// load reads the episode, before any device is opened.
func (s *session) load() error {
	in, err := os.Open(s.cfg.File)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	defer in.Close()
	if s.episode, err = Load(in, s.cfg.Arm.Robot, s.cfg.Number); err != nil {
		return exit.With(exit.Of(err), fmt.Errorf("%s: %w", s.cfg.File, err))
	}
	s.period = time.Duration(float64(time.Second) / s.episode.Rate)
	return nil
}

// openRecord claims the arm's name and makes the recorder.
func (s *session) openRecord(context.Context) (err error) {
	if s.identity, err = operator.Claim(s.cfg.Arm.ID); err != nil {
		return exit.With(exit.Config, err)
	}
	c, r := &s.cfg, s.cfg.Arm.Robot
	s.recording, err = recording.Open(recording.Config{
		Mode:   c.Record,
		Dir:    cmp.Or(c.RecordDir, filepath.Join(s.identity.Dir, recording.Folder)),
		Size:   c.RecordSize,
		ID:     s.identity.ID,
		Robot:  r.Name,
		Joints: len(r.Motors),
		Clock:  s.clock,
		Log:    c.Log,
	})
	if s.record = s.recording.Lanes(); err != nil {
		return err
	}
	return s.recording.Describe(s.identity, r, c.Arm.Bus, map[string]string{
		"schedule": "replay", "fps": strconv.FormatFloat(s.episode.Rate, 'g', -1, 64),
		"interpolation_multiplier": "1", "on_exit": c.OnExit, "record": string(c.Record),
		"replays":             filepath.Base(c.File),
		"replays_episode":     strconv.FormatUint(uint64(s.episode.Number), 10),
		"speed":               strconv.FormatFloat(c.Speed, 'g', -1, 64),
		recording.Calibration: s.calibration.Text(),
	})
}

// openArm opens the arm, and refuses a bus that does not keep the record's rate.
func (s *session) openArm(ctx context.Context) (err error) {
	cfg := s.armConfig(ctx)
	cfg.Calibration, cfg.File = s.calibration, s.file
	if s.cfg.Arm.Bus == device.Sim {
		if s.simBus, _, err = device.OpenSim(cfg.Robot, s.cfg.Seed, s.clock); err != nil {
			return err
		}
		cfg.Path = s.simBus.Path()
	}
	arm, err := device.OpenArm(*cfg)
	if err != nil {
		return err
	}
	s.sayNotes(arm)
	s.bus = hotplug.New(arm, *cfg, s.clock)
	check := drive.BusCheck{
		Period:    s.period,
		At:        fmt.Sprintf("the record's %v ticks per second", s.episode.Rate),
		Cure:      "or raise the servos' baud rate",
		Simulated: s.simBus != nil,
		Log:       s.cfg.Log,
	}
	return check.Measure(ctx, arm)
}

func (s *session) prepare() {
	n := len(s.cfg.Arm.Robot.Motors)
	s.events, s.approach = event.NewQueue(64), true
	for _, row := range []*[]float32{&s.row, &s.before, &s.bounded, &s.catchUp} {
		*row = make([]float32, n)
	}
	s.bus.SetPeriod(s.period)
	gate := follow.NewGate(s.bus.Arm(), s.period)
	s.episode.Peak(gate.Step, s.catchUp)
	for j, step := range gate.Step {
		s.velocity = append(s.velocity, step/float32(s.period.Seconds()))
		s.catchUp[j] = min(s.catchUp[j]*float32(s.cfg.Speed), step*approachPace)
	}
	s.arm = follow.New(s.bus, follow.Config{
		Period: s.period,
		Safety: s.cfg.Arm.Robot.Safety,
		Gate:   gate,
		Exit:   follow.ExitModes[s.cfg.OnExit],
		Rescue: s.cfg.Rescue,
		Events: s.events,
		Clock:  s.clock,
	}, n)
	s.run = drive.New(drive.Config{
		Arm:    s.arm,
		Bus:    s.bus,
		Path:   s.cfg.Arm.Bus,
		Robot:  s.cfg.Arm.Robot,
		OnExit: s.cfg.OnExit,
		Held:   drive.SayHeld(s.cfg.Out),
		Loop: rt.LoopConfig{
			Clock:  s.clock,
			Period: s.period,
			Mode:   s.cfg.RT,
			CPU:    s.cfg.CPU,
		},
		ArmError: device.Absent,
	})
}

func (s *session) drive(ctx context.Context) error {
	s.recording.Start()
	s.run.Go(func() error { s.bus.KeepOpen(s.run.Ending()); return nil })
	s.run.Go(s.speak)
	e := &s.episode
	fmt.Fprintf(s.cfg.Out, "Episode %d, %.1f s at %v ticks per second. The %s moves slowly to its first position; "+
		"Ctrl-C ends.\n",
		e.Number, e.Length().Seconds()/s.cfg.Speed, e.Rate, s.cfg.Arm.Robot.Name)
	if e.Torn {
		fmt.Fprintln(s.cfg.Out, "The record has no end: the episode may have gone on.")
	}
	return s.end(s.run.Loop(ctx, s.tick, nil))
}

// sayNotes prints the notes of the arm's opening, also after a reconnect.
func (s *session) sayNotes(arm *servo.Arm) {
	for _, note := range arm.Notes() {
		fmt.Fprintln(s.cfg.Out, note)
	}
}

// speak prints the events of the tick, once more after its end.
func (s *session) speak() error {
	for ended := false; !ended; {
		ended = s.run.Ending().Load()
		s.events.Drain(func(e event.Event) {
			level := slog.LevelInfo
			if e.Code.Fault() {
				level = slog.LevelWarn
				fmt.Fprintln(s.cfg.Out, e.Code.String())
			}
			if e.Code == event.BusBack {
				s.sayNotes(s.bus.Arm())
			}
			s.recording.Event(e, level, nil)
		})
		s.clock.SleepUntil(s.clock.Now().Add(sayEvery))
	}
	return nil
}

// tick is one period.
//
//rt:noalloc
func (s *session) tick(t rt.Tick) rt.Wait {
	s.entry = recording.Begin(s.record, t)
	s.arm.Read(t)
	s.run.Check()
	s.watchStill(t.Woke)
	if s.arm.Phase == follow.Unarmed {
		s.approach, s.giveUp = true, 0 // it is armed at its current position, also after a reconnect
	}
	if s.run.Step(t, true, false) && s.stillAt == 0 { // while one joint is not driven, no joint is
		s.follow(t.Woke)
	}
	if e := s.entry; e != nil {
		recording.Arm(e, s.arm)
		e.BusSilent = s.arm.Silent()
		e.RunState = drive.State(s.arm.Phase, e.Action.N > 0)
		s.entry = nil
		s.record.Ticks.Commit()
	}
	return s.bus.BusWait()
}

// watchStill ends the replay of an arm that has been silent or held for stillLimit.
func (s *session) watchStill(now rt.Instant) {
	silent := s.arm.Frozen()
	held := s.arm.Held() &^ silent
	still := silent|held != 0 || s.arm.Silent()
	if !still || s.run.Leaving() {
		s.stillAt = 0
		return
	}
	if s.stillAt == 0 {
		s.stillAt = now
		s.approach = true
		s.giveUp = 0 // afterwards the arm moves slowly to its goal
		s.silent.Reset(now)
		s.held.Reset(now)
	}
	s.silent.Add(now, event.Lacking{Joints: silent, Bus: s.arm.Silent()})
	s.held.Add(now, event.Lacking{Joints: held})
	if now.Sub(s.stillAt) > stillLimit {
		s.run.GiveUp(s.stillError())
	}
}

// stillError returns the reason why nothing moved: the fault that lasted longer.
func (s *session) stillError() error {
	joints := s.cfg.Arm.Robot.Joints
	if s.held.Lasted(event.LackJoints) > s.silent.Lasted(event.LackJoints) {
		return exit.Errorf(exit.Fault, "%s: held for %v, as its motor complains", joints(s.held.Joints()), stillLimit)
	}
	return exit.Errorf(exit.Absent, "%s: silent for %v; check the arm's cables and power", joints(s.silent.Joints()),
		stillLimit)
}

// follow moves the arm to the episode's first position, and then through the episode.
func (s *session) follow(now rt.Instant) {
	s.episode.At(s.place, s.row)
	if s.approach {
		far := s.distance()
		if s.giveUp == 0 {
			s.giveUp = now.Add(far + approachExtra)
		}
		there := s.near()
		if !there && now > s.giveUp {
			s.run.GiveUp(exit.Errorf(exit.Fault, "the arm does not reach the position of the episode: something "+
				"blocks it, or its load is too high"))
			return
		}
		s.arm.DriveAt(now, s.row, approachPace)
		copy(s.before, s.row)
		s.approach = !there // from the next tick on
		return
	}
	s.bound()
	s.arm.Drive(now, s.bounded)
	s.note(now)
	if s.place >= float64(s.episode.Len()-1) {
		s.done = true
		s.run.Leave(drive.Itself)
		return
	}
	s.advance()
}

// bound limits each goal's travel in this tick to the recorded travel at the replay's speed. A
// joint whose goal trails the episode's, such as a blocked one, catches up slowly.
//
//rt:noalloc
func (s *session) bound() {
	for j, want := range s.row {
		travel := max(want-s.before[j], s.before[j]-want, s.catchUp[j])
		s.bounded[j] = min(s.arm.Goal[j]+travel, max(s.arm.Goal[j]-travel, want))
	}
	copy(s.before, s.row)
}

// advance moves on in the episode. Where the recorded arm was not driven from one row to the next,
// this arm moves there slowly, as to the episode's first position.
//
//rt:noalloc
func (s *session) advance() {
	row, step := math.Floor(s.place), s.arm.Gate().Step
	if s.place == row && s.episode.Jumps(int(row), step) {
		s.place = row + 1
		s.approach = true
		s.giveUp = 0
		return
	}
	if s.place += s.cfg.Speed; s.place > row+1 && s.episode.Jumps(int(row)+1, step) {
		s.place = row + 1
	}
}

// distance returns the travel time of the farthest joint at the pace of the approach.
func (s *session) distance() (far time.Duration) {
	g := s.arm.Gate()
	for j := range s.row {
		want := min(g.Max[j], max(g.Min[j], s.row[j]))
		if d := math.Abs(float64(want - s.arm.Place[j])); s.velocity[j] > 0 && !math.IsNaN(d) {
			far = max(far, time.Duration(d/(float64(s.velocity[j])*approachPace)*float64(time.Second)))
		}
	}
	return far
}

// near reports whether every joint is at the episode's position, or at the end of its range if that
// is nearer.
func (s *session) near() bool {
	g := s.arm.Gate()
	for j := range s.row {
		want := min(g.Max[j], max(g.Min[j], s.row[j]))
		if d := want - s.arm.Place[j]; d > approachReach || d < -approachReach {
			return false
		}
		if d, least := want-s.arm.Goal[j], g.Step[j]*approachPace; d > least || d < -least {
			return false
		}
	}
	return true
}

// note records this tick's action. The approach is no action of the episode.
//
//rt:noalloc
func (s *session) note(now rt.Instant) {
	s.step++
	if e := s.entry; e != nil {
		e.Action.Set(s.row)
		e.Step = s.step
		e.Source = now
		e.Episode = s.episode.Number
	}
}

// end releases the arm and prints a summary.
func (s *session) end(err error) error {
	err = s.run.End(err, nil)
	err, _ = s.recording.End(err)
	stats, gate := s.run.Stats(), s.arm.Gate()
	how, ran := "stopped", s.place
	if s.done {
		how, ran = "replayed", float64(s.episode.Len())
	}
	fmt.Fprintf(s.cfg.Out, "%s: %.1f of %.1f s; %d ticks, %d own and %d host overruns; %d goals clipped in range, %d "+
		"in speed\n", how,
		ran/s.episode.Rate/s.cfg.Speed, s.episode.Length().Seconds()/s.cfg.Speed, stats.Ticks, stats.OverrunsOwn,
		stats.OverrunsHost, gate.RangeClips, gate.StepClips)
	if r := s.recording.Stats(); r != nil {
		fmt.Fprintf(s.cfg.Out, "record: %s\n", recording.Line(r))
	}
	return err
}

func (s *session) close() {
	s.run.Close()
	if s.bus != nil {
		s.bus.Close()
	}
	if s.simBus != nil {
		s.simBus.Close()
	}
	s.recording.Close()
	if s.identity != nil {
		s.identity.Release()
	}
}
