package attend

import (
	"context"
	"fmt"

	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/rt"
)

// jogging is a run without a leader: a person moves single joints with keys, or buttons of the page.
// The arm is armed where it is, and holds while no key moves it.
type jogging struct {
	session
	action []float32 // owner: tick thread
}

// Jog lets a person move single joints until ctx ends or the duration is over. Its schedule has the
// name teleop, since a person drives.
func Jog(ctx context.Context, cfg Config, fps float64) error {
	s := &jogging{}
	s.source = s
	if err := s.begin(cfg, teleoperated); err != nil {
		return err
	}
	s.jog, s.action = leader.NewJog(cfg.Arm.Robot.JointNames(), s.clock), make([]float32, len(cfg.Arm.Robot.Motors))
	if cfg.Arm.Robot.Base != nil {
		s.steering = new(steering)
	}
	return s.drive(ctx, fps)
}

func (s *jogging) open(ctx context.Context) error { return s.openFollower(ctx) }

func (s *jogging) settings() map[string]string { return map[string]string{"leader": "jog"} }

func (s *jogging) greet() {
	fmt.Fprintf(s.cfg.Out, "The %s is switched on where it is.\n%s\n", s.cfg.Arm.Robot.Name, s.jog.Help())
	s.greetBase()
}

func (s *jogging) summarize(*Summary) {}

//rt:noalloc
func (s *jogging) read(t rt.Tick) {
	s.arm.ReadBy(t, t.Deadline.Add(s.period-follow.Reserve(s.period)))
}

// move drives the follower by one step of the pressed keys.
//
//rt:noalloc
func (s *jogging) move(t rt.Tick) {
	paused := s.paused.Load()
	switch {
	case !s.run.Step(t, !paused, paused), s.arm.Silent(): // a silent arm follows no action
	case paused:
		s.arm.StartSlowly(t.Woke)
	default:
		s.jog.Next(t.Woke, s.arm.Goal, s.arm.Gate().Step, s.action[:len(s.jog.Names())])
		s.steering.steer(t.Woke, s.action[len(s.jog.Names()):])
		s.arm.Drive(t.Woke, s.action)
		s.act(s.action, t.Woke)
	}
}
