package attend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/page"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/webpage/metric"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim"
)

// simCameraFPS is the rate of a simulated camera: the rate of the simulated world.
const simCameraFPS = 60

// open opens the page, the record, the arms and the cameras, and prepares the tick.
func (s *session) open(ctx context.Context) (err error) {
	if s.page, err = page.Open(s.cfg.Flags, s.clock, s.cfg.Log); err != nil {
		return err
	}
	if s.exporter, err = page.OpenMetrics(s.cfg.Flags, s.clock, s.cfg.Log); err != nil {
		return err
	}
	if err = s.openRecord(); err != nil {
		return err
	}
	if err = s.source.open(ctx); err != nil {
		return err
	}
	if err = s.openCameras(ctx); err != nil {
		return err
	}
	s.prepare()
	if s.operator, err = operator.Listen(s.identity); err != nil {
		return err
	}
	s.show()
	return s.describe()
}

// openRecord claims the follower's name and makes the recorder.
func (s *session) openRecord() (err error) {
	c := &s.cfg
	if s.identity, err = operator.Claim(c.Arm.ID); err != nil {
		return exit.With(exit.Config, err)
	}
	if s.identity.ID != s.identity.Asked {
		c.Log.Warn("another edge on this host has this name, so this one has another", "name", s.identity.Asked, "now",
			s.identity.ID)
	}
	s.recording, err = recording.Open(recording.Config{
		Mode:    c.Record,
		Dir:     cmp.Or(c.RecordDir, filepath.Join(s.identity.Dir, recording.Folder)),
		Size:    c.RecordSize,
		ID:      s.identity.ID,
		Robot:   c.Arm.Robot.Name,
		Joints:  len(c.Arm.Robot.Motors),
		Clock:   s.clock,
		Log:     c.Log,
		Watched: s.page != nil,
		Failed:  func(why error) { s.episodes.Failing(why) },
	})
	s.record = s.recording.Lanes()
	s.episodes = s.newEpisodes()
	return err
}

// armConfig returns the configuration of an arm. If the flags name no calibration, cfg has none, and openArm identifies
// the calibration from the motors' registers. When ctx ends, the opening of the arm soon returns servo.ErrCanceled.
func (s *session) armConfig(ctx context.Context, a *device.Place) (cfg servo.ArmConfig, err error) {
	port := a.Bus
	if port == device.Sim {
		if port, err = s.sims.Open(a.Robot, a.Part); err != nil {
			return cfg, err
		}
	}
	cfg, err = a.Config(port, s.clock)
	cfg.Canceled = func() bool { return ctx.Err() != nil }
	return cfg, err
}

// openArm opens part i of places and adds it to arms. If cfg has no calibration, the motors identify
// it.
func (s *session) openArm(cfg servo.ArmConfig, places []device.Place, i int, arms *hotplug.Parts) (*servo.Arm, error) {
	a := &places[i]
	arm, err := a.Open(&cfg)
	if err != nil {
		return nil, device.Swapped(places, i, cfg, err)
	}
	*arms = append(*arms, hotplug.New(arm, cfg, s.clock))
	s.logTaken(a)
	for _, note := range arm.Notes() {
		s.cfg.Log.Warn(note, "arm", arm.Robot())
	}
	return arm, device.Swapped(places, i, cfg, nil)
}

// configureAll returns the configurations of a robot's arms.
func (s *session) configureAll(ctx context.Context, places []device.Place) (cfgs []servo.ArmConfig, err error) {
	cfgs = make([]servo.ArmConfig, len(places))
	for i := range places {
		if cfgs[i], err = s.armConfig(ctx, &places[i]); err != nil {
			return nil, places[i].Named(err)
		}
	}
	return cfgs, nil
}

// busCheck returns the check whether a bus can keep the rate of --fps.
func (s *session) busCheck() drive.BusCheck {
	return drive.BusCheck{
		Period:    s.period,
		At:        fmt.Sprintf("%v ticks per second", s.rate),
		Cure:      "raise the servos' baud rate, or lower --fps",
		Simulated: s.sims.Len() > 0,
		Log:       s.cfg.Log,
		Clock:     s.clock,
	}
}

// openAll opens a robot's arms, checks their buses, and holds their triggers.
func (s *session) openAll(ctx context.Context, cfgs []servo.ArmConfig, places []device.Place, arms *hotplug.Parts,
	check drive.BusCheck) error {
	for i := range places {
		arm, err := s.openArm(cfgs[i], places, i, arms)
		if err != nil {
			return err
		}
		if err := check.Measure(ctx, arm); err != nil {
			return places[i].Named(err)
		}
		if err := arm.HoldTriggers(); err != nil {
			return errors.Join(exit.With(exit.Absent, err), arm.TorqueOff())
		}
	}
	return nil
}

// openFollower opens the follower of a run without a leader arm.
func (s *session) openFollower(ctx context.Context) error {
	cfgs, err := s.configureAll(ctx, s.places)
	if err != nil {
		return err
	}
	return s.openAll(ctx, cfgs, s.places, &s.arms, s.busCheck())
}

// logTaken logs which calibration the motors have identified.
func (s *session) logTaken(a *device.Place) {
	if a.Taken != "" {
		s.cfg.Log.Info(a.Taken)
		a.Taken = ""
	}
}

// openCameras opens every camera, unless there is neither a record nor a page. A missing camera
// ends the start, since a record without its pictures would be useless.
func (s *session) openCameras(ctx context.Context) error {
	if s.recording == nil && s.page == nil && len(s.cfg.Cameras) > 0 {
		s.cfg.Log.Warn("nothing is recorded and there is no page, so the cameras stay closed")
		return nil
	}
	for _, c := range s.cfg.Cameras {
		source, picked, err := capture.Open(&c, capture.Options{
			Clock:    s.clock,
			World:    func() *sim.Live { return s.sims.World(c.Name) },
			SimFPS:   simCameraFPS,
			Decoded:  s.cfg.Encoding.Reencode,
			Canceled: func() bool { return ctx.Err() != nil },
		})
		if err != nil {
			return err
		}
		cam := capture.New(c.Name, source, c.MaxAge)
		if c.Live != nil {
			cam.SetLive(*c.Live)
		}
		s.cameras = append(s.cameras, cam)
		if err := s.recording.Tap(cam, c, s.cfg.Encoding); err != nil {
			return err
		}
		if err := s.preview(cam, &c); err != nil {
			return err
		}
		s.cfg.Log.Info("camera "+c.Name, "picked", picked)
	}
	s.pending.Store(int32(len(s.cameras)))
	return nil
}

// preview makes the page's view of a camera.
func (s *session) preview(cam *capture.Camera, c *capture.Config) error {
	if s.page == nil {
		return nil
	}
	encoder, err := capture.NewEncoder(cam, c, s.cfg.Encoding)
	if err != nil {
		return err
	}
	s.encoders = append(s.encoders, encoder)
	p, err := capture.NewPreview(encoder)
	if err != nil {
		return err
	}
	p.Alone = true
	s.previews = append(s.previews, p)
	return nil
}

// prepare allocates the memory of the tick.
func (s *session) prepare() {
	c := &s.cfg
	s.events = event.NewQueue(eventSlots)
	s.arm = follow.Of(c.Arm.Robot, func(i int, part robot.Robot) *follow.Follower {
		return follow.New(s.arms[i], follow.Config{
			Period: s.period,
			Safety: part.Safety,
			Gate:   follow.NewGate(s.arms[i].Arm(), s.period),
			Exit:   follow.ExitModes[c.OnExit],
			Rescue: c.Rescue,
			Events: s.events,
			Clock:  s.clock,
		}, len(part.Motors))
	})
	for _, b := range s.beside {
		if s.arm.Several() {
			s.arm.Beside(b.read, b.arm)
		}
	}
	s.state.Store(drive.State(follow.Unarmed, false))
	s.run = drive.New(drive.Config{
		Arm:    s.arm,
		Bus:    s.arms,
		Parts:  s.arms.Several(),
		Path:   c.Arm.Bus,
		Robot:  c.Arm.Robot,
		OnExit: c.OnExit,
		Held:   drive.SayHeld(c.Out),
		Loop: rt.LoopConfig{
			Clock:  s.clock,
			Period: s.period,
			Mode:   c.RT,
			CPU:    c.CPU,
		},
		Duration: c.Duration,
		ArmError: device.Absent,
	})
	s.reporter = recording.Reporter{
		Log:       c.Log,
		Recording: s.recording,
		Follower:  s.arms,
		Leader:    s.leaders,
		Next:      "it is armed at its present pose, and goes on slowly",
		Resume:    "check the motors' supply, then start again",
	}
	s.reporter.Names(c.Arm.Robot)
	s.commands = s.panel()
}

// describe sets the record's metadata.
func (s *session) describe() error {
	c := &s.cfg
	var cameras []string
	for _, cam := range s.cameras {
		cameras = append(cameras, cam.Name)
	}
	run := map[string]string{
		"cameras": strings.Join(cameras, ","), "fps": strconv.FormatFloat(s.rate, 'g', -1, 64),
		"interpolation_multiplier": "1", "schedule": s.schedule, "task": c.Task,
		"jpeg_quality": strconv.Itoa(c.Encoding.Quality), "on_exit": c.OnExit, "record": string(c.Record),
		recording.Calibration: s.arms.Calibration(c.Arm.Robot).Text(),
	}
	maps.Copy(run, s.source.settings())
	return s.recording.Describe(s.identity, c.Arm.Robot, c.Arm.Bus, run)
}

// metrics returns the answer to /metrics.
func (s *session) metrics() http.Handler {
	return metric.Handler(func() *metric.Set {
		set := new(metric.Set)
		s.run.AddMetrics(set, func() drive.Metered {
			live := s.live()
			m := drive.Metered{Status: &live.Status, Live: &live.Live, Cycle: s.run.Sum(s.arms.Stats()).Cycle}
			m.Hottest, m.Lowest = s.arms.Extremes()
			return m
		})
		return set
	})
}

// show begins to show the run on the page, and to serve its metrics.
func (s *session) show() {
	if s.page == nil && s.exporter == nil {
		return
	}
	s.viewer = drive.NewViewer(s.cfg.Arm.Robot)
	run := page.Run{
		Healthy: func() (bool, string) { return s.viewer.Healthy(s.clock.Now()) },
		Ticks:   func() uint64 { return s.run.Stats().Ticks },
		Metrics: s.metrics(),
	}
	s.exporter.Watch(run)
	if s.page == nil {
		return
	}
	s.page.Watch(page.Run{
		Status:   func() any { return s.live() },
		Healthy:  run.Healthy,
		Jog:      s.jog,
		Panel:    s.commands,
		Instance: s.identity.Instance,
		Timeline: page.Lines(s.record, s.cfg.Arm.Robot, s.period, s.clock),
		Ticks:    run.Ticks,
		Metrics:  run.Metrics,
		Previews: s.previews,
	})
}

// close closes everything that open has opened.
func (s *session) close() {
	s.run.Close()
	for _, arm := range s.leaders {
		arm.ReleaseTriggers()
		arm.Close()
	}
	s.arms.Close()
	s.page.Close()
	s.exporter.Close()
	if !s.stuck {
		for _, p := range s.previews {
			p.Close()
		}
		for _, v := range s.encoders {
			v.Close()
		}
		s.recording.Close()
		for _, cam := range s.cameras {
			cam.Source.Close()
		}
	}
	s.sims.Close()
	if s.operator != nil {
		s.operator.Close()
	}
	if s.identity != nil {
		s.identity.Release()
	}
}
