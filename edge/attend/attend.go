// Package attend runs an arm without a policy, for a person who attends it. A leader arm (teleop.go),
// keys (jog.go) or a recorded episode (replay.go, episode.go, calibration.go) move the arm. All three
// have a record, a page, operator's commands and a summary, as a policy's run has. Lead (lead.go)
// offers a leader arm over the network.
//
// A session is one run. It opens and closes everything that all sources of motion need (open.go),
// and reports the run (report.go). The session's source reads the arms and drives the follower on
// every tick.
package attend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
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
	"github.com/edge-rt/edge-rt/edge/page"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
)

// Config is the configuration that all sources of motion share.
type Config struct {
	Arm        device.Place // the follower
	Task       string       // task of the recorded motion
	Duration   time.Duration
	Episodes   episode.Plan // accepted by Plan.Check, whose result is in the field Record
	Seed       uint64       // seed of the simulated world
	Cameras    []capture.Config
	Encoding   capture.Encoding
	Record     record.Mode // content of the record; empty: off
	RecordDir  string      // folder of the record's files; empty: "records" in the robot's state folder
	RecordSize int64       // maximum bytes of the record's files
	page.Flags             // flags of the page
	RT         rt.Mode
	CPU        int
	OnExit     string // park, hold, off
	Rescue     bool   // move an arm outside its range into it slowly, instead of refusing it
	Log        *slog.Logger
	Out        io.Writer // text for the person, and the summary at the end
	Clock      rt.Clock  // nil: the kernel's clock

	// OpenJSON opens the file for the summary as JSON. It is called before the arm moves. nil: no
	// file.
	OpenJSON func() (io.WriteCloser, error)

	// Listen calls the function key with each key pressed at a terminal, until stop is called. nil: no terminal.
	Listen func(key func(string)) (stop func())

	// Again arranges that hurry is called when a person requests the end a second time. hurry ends the parking. nil:
	// a person cannot shorten the parking.
	Again func(hurry func())
}

const (
	reportEvery = 100 * time.Millisecond
	previewPoll = 10 * time.Millisecond
	eventSlots  = 64
)

// source decides where the arm goes. Owner of read and move: the tick.
type source interface {
	// open opens the follower and the devices of this source.
	open(ctx context.Context) error

	// read reads the arms.
	read(t rt.Tick)

	// move advances the follower's phase and drives it.
	move(t rt.Tick)

	// settings returns the source's part of the record's metadata.
	settings() map[string]string

	// greet shows the person how to begin.
	greet()

	// summarize adds the source's part to the summary.
	summarize(s *Summary)
}

// beside is an arm of a leader, with the function that reads it while the follower is read.
type beside struct {
	read func()
	arm  *hotplug.Arm
}

// session is one run.
type session struct {
	// Constant after prepare.
	cfg      Config
	source   source
	schedule string // name of the source
	clock    rt.Clock
	rate     float64 // ticks per second
	period   time.Duration
	places   []device.Place // places of the follower's parts
	arms     hotplug.Parts  // arms of the follower
	beside   []beside       // leaders that are read while the follower is read; empty for a robot of one part
	leaders  hotplug.Parts  // arms of the leader; nil: no leader
	sims     device.Sims    // the simulated arms
	json     io.WriteCloser // file of the summary; nil: none

	identity  *operator.Identity
	recording *recording.Recording
	record    *record.Recorder // recording's recorder; nil: no record
	cameras   []*capture.Camera
	encoders  []*capture.Encoder // encoders of the previews
	previews  []*capture.Preview // nil: no page
	page      *page.Page         // nil: no page
	exporter  *page.Page         // server of --metrics; nil: metrics are not served
	viewer    *drive.Viewer      // nil: no page
	operator  net.Listener
	episodes  *episode.Episodes
	commands  *operator.Panel
	steering  *steering // nil: the follower has no base that keys drive
	run       *drive.Run
	reporter  recording.Reporter // Owner: the thread that runs report
	jog       *leader.Jog        // nil: no key moves a joint
	far       leader.Remotes     // leaders on other machines

	// Owner: tick thread.
	arm    *follow.Parts
	events *event.Queue
	entry  *record.Tick // record of this tick; nil: no record
	step   int64        // number of actions so far
	driven bool         // an action ran in this tick
	seen   rt.Instant   // instant of the observation that led to the newest action
	last   rt.Instant   // the previous tick

	task    atomic.Pointer[string]
	paused  atomic.Bool    // an operator has paused the run: the follower holds
	state   atomic.Uint32  // state of the newest tick, an index in record.RunStates
	inState []atomic.Int64 // ns spent in each state; indexes as in record.RunStates
	heldAll atomic.Uint64  // ticks on which no joint was driven, because the motors complained or were limp
	pending atomic.Int32   // cameras without a first picture
	stuck   bool           // a thread did not end: do not close the resources that it may use
}

// begin checks the common configuration.
func (s *session) begin(cfg Config, schedule string) (err error) {
	s.cfg, s.schedule = cfg, schedule
	s.clock, s.cfg.Log = cmp.Or(cfg.Clock, rt.KernelClock()), cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s.sims = device.Sims{Seed: cfg.Seed, Clock: s.clock}
	s.inState = make([]atomic.Int64, len(record.RunStates))
	s.task.Store(&s.cfg.Task)
	switch c := &s.cfg; {
	case c.Arm.Bus == "":
		return exit.Errorf(exit.Usage,
			"--bus is missing: give the follower's serial port, or sim; edge-rt ports finds it")
	case c.Arm.Robot.Leader:
		return exit.Errorf(exit.Usage, "--robot %s is a leader, which a person moves: give the follower's",
			c.Arm.Robot.Name)
	case c.Task != "":
		if err := operator.CheckTask("--task", c.Task); err != nil {
			return err
		}
	}
	if err := cmp.Or(drive.CheckCPU(s.cfg.CPU), follow.CheckExit(s.cfg.OnExit)); err != nil {
		return err
	}
	if s.cfg.Cameras, err = capture.Named(s.cfg.Cameras, s.cfg.Arm.Robot.CameraName); err != nil {
		return err
	}
	if s.places, err = s.cfg.Arm.Each(); err != nil {
		return err
	}
	return s.cfg.Flags.Check(s.cfg.Log)
}

// drive opens the arm and drives it at rate ticks per second until ctx ends, the duration is over
// or the source ends.
func (s *session) drive(ctx context.Context, rate float64) error {
	s.rate, s.period = rate, time.Duration(float64(time.Second)/rate)
	defer s.close()
	if s.cfg.OpenJSON != nil {
		var err error
		if s.json, err = s.cfg.OpenJSON(); err != nil {
			return err
		}
	}
	if err := s.open(ctx); err != nil {
		if errors.Is(err, servo.ErrCanceled) || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = nil // a canceled opening has put only a leader's triggers under torque, and is no error
		}
		end := Summary{
			Status: drive.Status{InState: map[string]float64{}},
			Totals: drive.Totals{
				Frames: map[string]drive.Frames{},
				Exit:   drive.EndingOf(err, "stopped before the arm was opened"),
			},
		}
		return errors.Join(err, s.writeJSON(&end))
	}
	s.recording.Start()
	ending := s.run.Ending()
	for _, cam := range s.cameras {
		s.run.Go(func() error { cam.Run(s.clock, ending, &s.pending); return nil })
	}
	slices.Concat(s.arms, s.leaders).KeepOpen(ending, s.run.Go, s.cfg.Log)
	operator.Serve(s.operator, s.run.Go, func(line string) operator.Reply { return s.commands.Command(ctx, line) })
	s.run.Go(s.report)
	if s.previews != nil {
		s.run.Go(s.refreshPreviews)
	}
	s.source.greet()
	if s.cfg.Again != nil {
		s.cfg.Again(s.run.Hurry)
	}
	if s.cfg.Listen != nil {
		stop := s.cfg.Listen(s.key)
		defer stop()
	}
	return s.end(s.run.Loop(ctx, s.tick, nil))
}

// tick runs one period.
//
//rt:noalloc
func (s *session) tick(t rt.Tick) rt.Wait {
	s.entry, s.driven = recording.Begin(s.record, t), false
	if o := t.Overrun; o.Own {
		s.events.Emit(t.Woke, event.TickOverrun, int64(o.CPU+o.IOWait), int64(o.Stolen))
	}
	if t.Suspended > 0 {
		s.events.Emit(t.Woke, event.Suspended, int64(t.Suspended), 0)
	}
	s.source.read(t)
	wait := s.arm.Waited()
	for _, leader := range s.leaders {
		wait.Add(leader.BusWait())
	}
	s.run.Check()
	read := s.clock.Now()
	s.source.move(t)
	s.finish(t, read)
	return wait
}

// act notes this tick's action. seen is the instant of the observation that led to the action.
//
//rt:noalloc
func (s *session) act(action []float32, seen rt.Instant) {
	s.step++
	s.driven, s.seen = true, seen
	if e := s.entry; e != nil {
		e.Action.Set(action)
		e.Step, e.Source = s.step, seen
	}
}

// finish publishes this tick, and hands over its record. The parameter read is the instant just after the joints were
// read.
//
//rt:noalloc
func (s *session) finish(t rt.Tick, read rt.Instant) {
	if s.last != 0 {
		s.inState[s.state.Load()].Add(int64(t.Woke.Sub(s.last)))
	}
	s.last = t.Woke
	s.state.Store(drive.State(s.arm.Phase, s.driven))
	if s.arm.AllHeld() != 0 {
		s.heldAll.Add(1)
	}
	s.viewer.Publish(t, s.arm, s.seen)
	e := s.entry
	if e == nil {
		return
	}
	recording.Arm(e, s.arm)
	e.Read, e.Act = int64(read.Sub(t.Woke)), int64(s.clock.Now().Sub(read))
	e.BusSilent, e.Paused = s.arm.Silent(), s.paused.Load()
	e.RunState = s.state.Load()
	s.entry = nil
	s.record.Ticks.Commit()
}

// end releases the follower and prints the summary.
func (s *session) end(err error) error {
	err = s.run.End(err, func() { s.operator.Close() })
	s.stuck = s.run.Stuck()
	s.episodes.Close()
	err, hangs := s.recording.End(err)
	s.stuck = s.stuck || hangs
	sum := s.summary(err)
	printed := sum.WriteTable(s.cfg.Out)
	if errors.Is(printed, syscall.EPIPE) { // the program that reads the summary from a pipe has ended
		printed = nil
	}
	return s.run.Aside(err, errors.Join(printed, s.writeJSON(sum)))
}

func (s *session) writeJSON(sum *Summary) error {
	if s.json == nil {
		return nil
	}
	if err := errors.Join(drive.WriteJSON(plain.Writer(s.json), sum), s.json.Close()); err != nil {
		return fmt.Errorf("--json: %w", err)
	}
	return nil
}
