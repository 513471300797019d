package teleop

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/sim"
)

// simCameraFPS is the rate of a simulated camera: that of the world.
const simCameraFPS = 60

// openRecord claims the follower's name, listens for an operator and makes the recorder.
func (s *session) openRecord() (err error) {
	if s.identity, err = operator.Claim(s.cfg.Follower.ID); err != nil {
		return exit.With(exit.Config, err)
	}
	if s.identity.ID != s.identity.Asked {
		s.cfg.Log.Warn("another edge on this host has this name, so this one has another", "name", s.identity.Asked,
			"now", s.identity.ID)
	}
	s.recording, err = recording.Open(recording.Config{
		Mode:   s.cfg.Record,
		Dir:    cmp.Or(s.cfg.RecordDir, filepath.Join(s.identity.Dir, recording.Folder)),
		Size:   s.cfg.RecordSize,
		ID:     s.identity.ID,
		Robot:  s.cfg.Follower.Robot.Name,
		Joints: len(s.cfg.Follower.Robot.Motors),
		Clock:  s.clock,
		Log:    s.cfg.Log,
		Failed: func(why error) { s.episodes.Failing(why) },
	})
	s.record = s.recording.Lanes()
	s.episodes = s.newEpisodes()
	if err != nil {
		return err
	}
	s.operator, err = operator.Listen(s.identity)
	return err
}

// find returns an arm's port and calibration. It creates the simulated arm.
func (s *session) find(a device.Place) (path string, c servo.Calibration, err error) {
	if a.Bus != device.Sim {
		c, err = a.Load()
		return a.Bus, c, err
	}
	if s.simBus, s.world, err = device.OpenSim(a.Robot, s.cfg.Seed, s.clock); err != nil {
		return "", nil, err
	}
	if c = device.SimCalibration(a.Robot); a.Calibration != "" {
		c, err = a.Load()
	}
	return s.simBus.Path(), c, err
}

// openCameras opens every camera of the record. A missing camera ends the start, since a
// demonstration without its pictures would be useless.
func (s *session) openCameras() error {
	if s.recording == nil && len(s.cfg.Cameras) > 0 {
		s.cfg.Log.Warn("nothing is recorded, so the cameras stay closed")
		return nil
	}
	for _, c := range s.cfg.Cameras {
		c.Name = s.cfg.Follower.Robot.CameraName(c.Name)
		if slices.ContainsFunc(s.cameras, func(other *capture.Camera) bool { return other.Name == c.Name }) {
			return exit.Errorf(exit.Usage, "--camera %s is given twice", c.Name)
		}
		source, picked, err := capture.Open(&c, capture.Options{
			Clock:   s.clock,
			World:   s.simWorld,
			SimFPS:  simCameraFPS,
			Decoded: s.cfg.Encoding.Reencode,
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
		s.cfg.Log.Info("camera "+c.Name, "picked", picked)
	}
	s.pending.Store(int32(len(s.cameras)))
	return s.describeRecord()
}

// simWorld returns the simulated arm's world, or a static world without one.
func (s *session) simWorld() *sim.Live {
	if s.world == nil {
		s.world = device.World(s.cfg.Seed, s.clock)
	}
	return s.world
}

// describeRecord sets the record's metadata.
func (s *session) describeRecord() error {
	c := &s.cfg
	var cameras []string
	for _, cam := range s.cameras {
		cameras = append(cameras, cam.Name)
	}
	return s.recording.Describe(s.identity, c.Follower.Robot, c.Follower.Bus, map[string]string{
		"leader": c.Leader.Bus, "leader_robot": c.Leader.Robot.Name, "cameras": strings.Join(cameras, ","),
		"fps": strconv.FormatFloat(c.FPS, 'g', -1, 64), "interpolation_multiplier": "1",
		"schedule": "teleop", "task": c.Task,
		"jpeg_quality": strconv.Itoa(c.Encoding.Quality), "on_exit": c.OnExit, "record": string(c.Record),
		recording.Calibration: s.follower.Calibration().Text(),
	})
}

// recordAction notes the leader's positions as this tick's action.
//
//rt:noalloc
func (s *session) recordAction() {
	s.step++
	s.driven = true
	if e := s.entry; e != nil {
		e.Action.Set(s.lead)
		e.Step, e.Source = s.step, s.leaderSeen
	}
}

// commitRecord hands over this tick's record. read is the instant at which the joints had been
// read.
//
//rt:noalloc
func (s *session) commitRecord(t rt.Tick, read rt.Instant) {
	s.state.Store(drive.State(s.arm.Phase, s.driven))
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

// closeRecord closes everything that openRecord, find and openCameras have opened.
func (s *session) closeRecord() {
	if !s.stuck {
		s.recording.Close()
		for _, cam := range s.cameras {
			cam.Source.Close()
		}
	}
	if s.simBus != nil {
		s.simBus.Close()
	}
	if s.operator != nil {
		s.operator.Close()
	}
	if s.identity != nil {
		s.identity.Release()
	}
}

// reportCameras warns the person at the leader of a camera without usable pictures, since the
// demonstration would be useless meanwhile.
func (s *session) reportCameras() {
	if s.blind == nil {
		s.blind = make([]bool, len(s.cameras))
	}
	for i, cam := range s.cameras {
		err := cam.Err()
		if s.blind[i] == (err != nil) {
			continue
		}
		code := event.CameraSilent
		level := uint32(record.LevelWarning)
		text := fmt.Sprintf("camera %s gives no usable picture: %v", cam.Name, err)
		if s.blind[i] = err != nil; err == nil {
			code = event.CameraBack
			level = record.LevelInfo
			text = fmt.Sprintf("camera %s gives pictures again", cam.Name)
		}
		s.recording.Note(code, level, int64(i), 0, text)
		fmt.Fprintln(s.cfg.Out, text)
	}
}
