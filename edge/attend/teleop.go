package attend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
)

// TeleopConfig configures edge-rt teleop.
type TeleopConfig struct {
	Config
	FPS         float64
	Leader      device.Place // Teleop sets its Robot
	LeaderRobot string       // name or file; empty: the follower's name with _leader
}

const (
	teleoperated = "teleop" // name of the source
	stillGone    = 100 * time.Millisecond
	measured     = 50 // measured cycles, to learn the adapter's latency
)

// teleop is a run with a leader arm: the follower starts slowly, and holds while either arm does not
// answer. Its goals pass the same gate as a policy's. Both arms may be unplugged and come back.
type teleop struct {
	session
	place device.Place // of the leader

	// Owner: tick thread.
	lead    []float32       // the goals: the leader's positions, and a base's velocities
	leading *leader.Leading // the joints of the leader that lead
}

// Teleop drives a follower arm with a leader arm until ctx ends or the duration is over.
func Teleop(ctx context.Context, cfg TeleopConfig) error {
	s := &teleop{place: cfg.Leader}
	s.source = s
	if err := s.begin(cfg.Config, teleoperated); err != nil {
		return err
	}
	if s.place.Bus == "" {
		return exit.Errorf(exit.Usage,
			"--leader is missing: give the leader's serial port (edge-rt ports finds it), or "+
				"--jog to move single joints with keys")
	}
	if err := device.CheckPorts(s.place.Bus, cfg.Arm.Bus); err != nil {
		return err
	}
	var err error
	if s.place.Robot, err = device.Leader(cfg.LeaderRobot, cfg.Arm.Robot); err != nil {
		return err
	}
	if cfg.Arm.Robot.Base != nil {
		s.steering = new(steering)
	}
	return s.drive(ctx, cfg.FPS)
}

func (s *teleop) open(ctx context.Context) (err error) {
	places := []*device.Place{&s.cfg.Arm, &s.place}
	var cfgs [2]servo.ArmConfig
	for i, a := range places {
		if cfgs[i], err = s.armConfig(ctx, a); err == nil {
			err = s.calibrate(&cfgs[i], a)
		}
		if err != nil {
			return err
		}
	}
	for i, a := range places {
		arm, err := s.openArm(cfgs[i], a)
		if err != nil {
			return err
		}
		if _, err := arm.MeasureCycles(measured); err != nil {
			return exit.With(exit.Absent, err)
		}
		if err := arm.HoldTriggers(); err != nil {
			return errors.Join(exit.With(exit.Absent, err), arm.TorqueOff())
		}
	}
	s.lead, s.leading = make([]float32, len(s.cfg.Arm.Robot.Motors)), leader.NewLeading(s.place.Robot)
	return nil
}

func (s *teleop) settings() map[string]string {
	return map[string]string{"leader": s.place.Bus, "leader_robot": s.place.Robot.Name}
}

func (s *teleop) greet() {
	fmt.Fprintf(s.cfg.Out, "The %s follows the %s. Move the leader slowly to the position of the follower; Ctrl-C "+
		"ends.\n", s.cfg.Arm.Robot.Name, s.place.Robot.Name)
	s.greetBase()
}

func (s *teleop) summarize(sum *Summary) { sum.Leader = new(drive.SummaryOf(s.arms[1].Stats())) }

// read reads the leader in half of the reading time, and then the follower.
//
//rt:noalloc
func (s *teleop) read(t rt.Tick) {
	reading := s.period - follow.Reserve(s.period)
	lead := s.arms[1]
	if lead.Read(s.lead[:len(s.place.Robot.Motors)], t.Deadline.Add(reading/2)) == 0 && lead.Reactions().Encoder == 0 {
		s.seen = t.Woke
		s.checkLeading(t.Woke)
	}
	s.arm.ReadBy(t, t.Deadline.Add(reading))
	if why, _ := lead.Reconnected(); why != 0 { // the next Read has its positions
		s.leading.Forget()
		s.events.Emit(t.Woke, event.LeaderBack, int64(why), 0)
	}
}

// move drives the follower to the leader's positions. While the leader is silent the follower holds,
// and then it starts slowly, since the leader may have moved.
//
//rt:noalloc
func (s *teleop) move(t rt.Tick) {
	present, paused := t.Woke.Sub(s.seen) < stillGone, s.paused.Load()
	switch {
	case !s.run.Step(t, present, paused):
	case !present || paused:
		s.arm.StartSlowly(t.Woke)
	default:
		s.steering.steer(t.Woke, s.lead[len(s.place.Robot.Motors):])
		s.arm.KeepGoals(s.lead, s.leading.Held())
		s.arm.Drive(t.Woke, s.lead)
		s.act(s.lead, s.seen)
	}
}

// checkLeading reports the joints of the leader that no longer lead, and those that lead again; the
// follower then starts slowly.
//
//rt:noalloc
func (s *teleop) checkLeading(now rt.Instant) {
	began, ended := s.leading.Check(now, s.arms[1])
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
