package attend

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
)

// ReplayConfig configures edge-rt replay.
type ReplayConfig struct {
	Config
	File   string
	Number uint32  // number of the episode; 0: the only one
	Speed  float64 // factor on the recorded speed, at most 1

	// OtherCalibration permits a replay although the record's numbers mean other positions on this
	// arm.
	OtherCalibration bool
}

const (
	replayed      = "replay" // name of the source
	approachPace  = 0.1      // share of the joints' velocity limits, on the way to the episode's first position
	approachReach = 3.0      // robot units; a smaller distance counts as reached
	approachExtra = 5 * time.Second
	stillLimit    = 10 * time.Second // time for which a joint may be silent or held before the replay ends
)

// replay is a run along a recorded episode. The arm follows the goals that the gate (the last
// limit before the bus) let pass during the recording, not the original actions, at the record's rate
// and through the same gate. First it moves slowly to the episode's first position.
type replay struct {
	session
	file    string
	speed   float64
	other   bool // ReplayConfig.OtherCalibration
	episode recordedEpisode
	catchUp []float32 // robot units per tick that a joint may travel while its goal trails the episode's goal

	// Owner: tick thread.
	place    float64   // position in the episode, in ticks
	row      []float32 // the episode's row at the position place
	before   []float32 // the row of the previous tick
	bounded  []float32 // row, with the travel of each goal in this tick limited by bound
	approach bool
	giveUp   rt.Instant  // deadline of the approach; 0: not started
	stillAt  rt.Instant  // start of a joint's silence or hold; 0: all joints are driven
	silent   event.Lacks // silences since the instant stillAt
	held     event.Lacks
	done     bool
}

// Replay replays an episode, until its end or the end of ctx.
func Replay(ctx context.Context, cfg ReplayConfig) error {
	s := &replay{file: cfg.File, speed: cfg.Speed, other: cfg.OtherCalibration}
	s.source = s
	if err := s.begin(cfg.Config, replayed); err != nil {
		return err
	}
	if !(s.speed > 0 && s.speed <= 1) {
		return exit.Errorf(exit.Usage,
			"--speed is %v, want more than 0 and at most 1: an arm is not moved faster than it was shown", s.speed)
	}
	if err := s.load(cfg.Number); err != nil {
		return err
	}
	return s.drive(ctx, s.episode.Rate)
}

// load reads the episode, before any device is opened.
func (s *replay) load(number uint32) error {
	if info, err := os.Stat(s.file); err == nil && info.IsDir() {
		return exit.Errorf(exit.Usage, "%s is a folder: name one record in it (*.mcap); lerobot-replay plays the "+
			"episodes of data sets", s.file)
	}
	in, err := record.Open(s.file)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	defer in.Close()
	if s.episode, err = load(in, s.cfg.Arm.Robot, number); err != nil {
		return exit.Errorf(exit.Of(err), "%s: %w", s.file, err)
	}
	return nil
}

// open opens the arm. It refuses a calibration unlike the record's, and a bus that cannot keep the record's rate.
func (s *replay) open(ctx context.Context) error {
	cfgs := make([]servo.ArmConfig, len(s.places))
	is := servo.Calibration{}
	for i, part := range s.cfg.Arm.Robot.Parts() {
		if err := s.identify(ctx, &cfgs[i], &s.places[i]); err != nil {
			return s.places[i].Named(err)
		}
		is.Join(part.Prefix(), cfgs[i].Calibration)
	}
	if err := s.compareCalibrations(is); err != nil {
		return err
	}
	check := s.busCheck()
	check.At, check.Cure = "the record's "+check.At, "or raise the servos' baud rate"
	check.Clock = nil
	if err := s.openAll(ctx, cfgs, s.places, &s.arms, check); err != nil {
		return err
	}
	s.prepareRows(s.steps())
	return nil
}

// identify fills in the configuration of a part's arm, with its calibration.
func (s *replay) identify(ctx context.Context, cfg *servo.ArmConfig, place *device.Place) (err error) {
	if *cfg, err = s.armConfig(ctx, place); err == nil && cfg.Calibration == nil {
		cfg.Calibration, cfg.File, err = place.Find(cfg)
		s.logTaken(place)
	}
	return err
}

// steps returns the maximum travel of each joint in a tick, in robot units.
func (s *replay) steps() (all []float32) {
	for _, arm := range s.arms {
		all = append(all, follow.NewGate(arm.Arm(), s.period).Step...)
	}
	return all
}

func (s *replay) prepareRows(steps []float32) {
	n := len(s.cfg.Arm.Robot.Motors)
	s.approach = true
	for _, row := range []*[]float32{&s.row, &s.before, &s.bounded, &s.catchUp} {
		*row = make([]float32, n)
	}
	s.episode.peak(steps, s.catchUp)
	for j, step := range steps {
		s.catchUp[j] = min(s.catchUp[j]*float32(s.speed), step*approachPace)
	}
}

func (s *replay) settings() map[string]string {
	return map[string]string{
		"replays":         filepath.Base(s.file),
		"replays_episode": strconv.FormatUint(uint64(s.episode.Number), 10),
		"speed":           strconv.FormatFloat(s.speed, 'g', -1, 64),
	}
}

func (s *replay) greet() {
	e := &s.episode
	fmt.Fprintf(s.cfg.Out, "Episode %d, %.1f s at %v ticks per second. The %s moves slowly to its first position; "+
		"Ctrl-C ends.\n", e.Number, e.length().Seconds()/s.speed, e.Rate, s.cfg.Arm.Robot.Name)
	if e.Torn {
		fmt.Fprintln(s.cfg.Out, "No record here has the end of the episode.")
	}
}

func (s *replay) summarize(sum *Summary) {
	seconds := func(ticks float64) float64 {
		return drive.Seconds(time.Duration(ticks / s.episode.Rate / s.speed * float64(time.Second)))
	}
	ran := s.place
	if s.done {
		ran = float64(s.episode.len())
	}
	sum.Replayed = &Replayed{
		File:    filepath.Base(s.file),
		Episode: s.episode.Number,
		Speed:   s.speed,
		Seconds: seconds(ran),
		Whole:   seconds(float64(s.episode.len())),
		Done:    s.done,
	}
}

//rt:noalloc
func (s *replay) read(t rt.Tick) { s.arm.Read(t) }

// move drives the arm along the episode. After a pause, and after it was armed again, the arm moves
// slowly to the present position in the episode.
func (s *replay) move(t rt.Tick) {
	paused := s.paused.Load()
	s.watchStill(t.Woke, paused)
	if s.arm.Phase == follow.Unarmed || paused {
		s.approach, s.giveUp = true, 0
	}
	if s.run.Step(t, true, paused) && s.stillAt == 0 && !paused { // the replay drives all joints or none
		s.follow(t.Woke)
	}
}

// watchStill ends the replay of an arm that has been silent or held for stillLimit. A pause does not
// count: the operator may be looking at the joint.
func (s *replay) watchStill(now rt.Instant, paused bool) {
	silent := s.arm.Frozen()
	held := s.arm.Held() &^ silent
	still := silent|held != 0 || s.arm.Silent()
	if !still || paused || s.run.Leaving() {
		s.stillAt = 0
		return
	}
	if s.stillAt == 0 {
		s.stillAt = now
		s.approach = true
		s.giveUp = 0 // the next approach sets its own deadline
		s.silent.Reset(now)
		s.held.Reset(now)
	}
	s.silent.Add(now, event.Lacking{Joints: silent, Bus: s.arm.Silent()})
	s.held.Add(now, event.Lacking{Joints: held})
	if now.Sub(s.stillAt) > stillLimit {
		s.run.GiveUp(s.stillError())
	}
}

// stillError returns the reason why the arm was still: silent joints or held joints, whichever
// lasted longer.
func (s *replay) stillError() error {
	joints := s.cfg.Arm.Robot.Joints
	if s.held.Lasted(event.LackJoints) > s.silent.Lasted(event.LackJoints) {
		return exit.Errorf(exit.Fault, "%s: held for %v, as its motor complains", joints(s.held.Joints()), stillLimit)
	}
	return exit.Errorf(exit.Absent, "%s: silent for %v; check the arm's cables and power", joints(s.silent.Joints()),
		stillLimit)
}

// follow moves the arm to the episode's first position, and then through the episode.
func (s *replay) follow(now rt.Instant) {
	s.episode.at(s.place, s.row)
	s.paceBase()
	if s.approach {
		far, there := s.left()
		if s.giveUp == 0 {
			s.giveUp = now.Add(far + approachExtra)
		}
		if !there && now > s.giveUp {
			s.run.GiveUp(exit.Errorf(exit.Fault, "the arm does not reach the position of the episode: something "+
				"blocks it, or its load is too high"))
			return
		}
		s.arm.DriveAt(now, s.row, approachPace)
		copy(s.before, s.row)
		s.approach = !there // if the arm has arrived, the episode goes on with the next tick
		return
	}
	s.bound()
	s.arm.Drive(now, s.bounded)
	s.act(s.row, now)
	if s.entry != nil {
		s.entry.Episode = s.episode.Number
	}
	if s.place >= float64(s.episode.len()-1) {
		s.done = true
		s.run.Leave(drive.Itself)
		return
	}
	s.advance()
}

// paceBase scales the velocities of a base with the replay's speed, so that the base drives the recorded
// path. The base stops while the arm moves to a position of the episode.
//
//rt:noalloc
func (s *replay) paceBase() {
	pace := float32(s.speed)
	if s.approach {
		pace = 0
	}
	for j := range s.row {
		if s.episode.Wheels.Has(j) {
			s.row[j] *= pace
		}
	}
}

// bound limits each goal's travel in this tick to the recorded travel at the replay's speed. A
// joint whose goal trails the episode's, such as a blocked one, catches up slowly.
//
//rt:noalloc
func (s *replay) bound() {
	for j, want := range s.row {
		if s.episode.Wheels.Has(j) {
			s.bounded[j] = want // the gate limits the acceleration of a wheel
			continue
		}
		travel := max(want-s.before[j], s.before[j]-want, s.catchUp[j])
		s.bounded[j] = min(s.arm.Goal[j]+travel, max(s.arm.Goal[j]-travel, want))
	}
	copy(s.before, s.row)
}

// advance moves s.place on in the episode, at the replay's speed. If the recorded arm was not
// driven from one row to the next, this arm moves to the next row slowly, as to the first position.
//
//rt:noalloc
func (s *replay) advance() {
	row, step := math.Floor(s.place), s.arm.Gate().Step
	if s.place == row && s.episode.jumps(int(row), step) {
		s.place = row + 1
		s.approach = true
		s.giveUp = 0
		return
	}
	if s.place += s.speed; s.place > row+1 && s.episode.jumps(int(row)+1, step) {
		s.place = row + 1
	}
}

// left returns in far the time in which the farthest joint reaches the episode's position at the pace of the approach.
// The result there reports whether every joint has reached its position, or the end of its range if the position is
// outside the range.
//
//rt:noalloc
func (s *replay) left() (far time.Duration, there bool) {
	g := s.arm.Gate()
	there = true
	for j := range s.row {
		want := min(g.Max[j], max(g.Min[j], s.row[j]))
		off := max(want-s.arm.Place[j], s.arm.Place[j]-want)
		trails := max(want-s.arm.Goal[j], s.arm.Goal[j]-want)
		step := g.Step[j] * approachPace
		there = there && !(off > approachReach) && !(trails > step)
		if off > 0 && step > 0 {
			far = max(far, time.Duration(off/step*float32(s.period)))
		}
	}
	return far, there
}
