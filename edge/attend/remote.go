package attend

import (
	"context"
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/wire"
)

// joinLimit bounds the wait for the network of a leader on another machine.
const joinLimit = time.Minute

// remote is a teleoperation with a leader on another machine. The follower holds while its poses do
// not arrive, and then starts slowly.
type remote struct {
	session
	teleop TeleopConfig
	name   string // of the leader
	robot  robot.Robot
	net    wire.Session

	// Owner: tick thread.
	lead []float32 // the goals: the leader's positions, and a base's velocities
	held robot.Joints
}

func followRemote(ctx context.Context, cfg TeleopConfig, name, endpoint string) error {
	s := &remote{teleop: cfg, name: name}
	s.source = s
	if endpoint != "" {
		s.teleop.Net.Connect = []string{endpoint}
	}
	if err := s.begin(cfg.Config, teleoperated); err != nil {
		return err
	}
	var err error
	if s.robot, err = device.Leader(cfg.LeaderRobot, cfg.Arm.Robot); err != nil {
		return err
	}
	if cfg.Arm.Robot.Base != nil {
		s.steering = new(steering)
	}
	defer func() {
		if s.net != nil {
			s.net.Close()
		}
	}()
	return s.drive(ctx, cfg.FPS)
}

func (s *remote) open(ctx context.Context) (err error) {
	if s.net, err = leader.Reach(ctx, s.teleop.Net, joinLimit); err != nil {
		return err
	}
	s.far, err = leader.NewRemote(s.net, leader.RemoteConfig{
		Name:  s.name,
		Robot: s.robot,
		Base:  s.steering != nil,
		ID:    s.identity.ID,
		Clock: s.clock,
	})
	if err != nil {
		return err
	}
	s.lead = make([]float32, len(s.teleop.Arm.Robot.Motors))
	return s.openFollower(ctx)
}

func (s *remote) settings() map[string]string {
	return map[string]string{"leader": "zenoh:" + s.name, "leader_robot": s.robot.Name}
}

func (s *remote) greet() {
	s.run.Go(func() error { return s.far.Run(s.run.Ending()) })
	s.run.Go(s.watch)
	fmt.Fprintf(s.cfg.Out, "The %s follows the leader %s. Move the leader slowly to the position of the follower; "+
		"Ctrl-C "+
		"ends.\n", s.cfg.Arm.Robot.Name, s.name)
	s.greetBase()
}

// watch logs why no pose arrives.
func (s *remote) watch() error {
	last := ""
	for !s.run.Ending().Load() {
		s.clock.SleepUntil(s.clock.Now().Add(time.Second))
		switch why := s.far.Why(s.clock.Now()); {
		case why == last:
		case why == "":
			s.cfg.Log.Info("poses of the leader arrive", "leader", s.name,
				"rtt", s.far.RTT().Round(100*time.Microsecond))
			last = why
		default:
			s.cfg.Log.Warn("the follower holds", "why", why)
			last = why
		}
	}
	return nil
}

func (s *remote) summarize(sum *Summary) { sum.Remote = s.far.Stats(s.clock.Now()) }

//rt:noalloc
func (s *remote) read(t rt.Tick) {
	s.arm.ReadBy(t, t.Deadline.Add(s.period-follow.Reserve(s.period)))
}

// move drives the follower to the leader's newest pose.
//
//rt:noalloc
func (s *remote) move(t rt.Tick) {
	pose, paused := s.far.Pose(), s.paused.Load()
	present := pose.At != 0 && t.Woke.Sub(pose.At) < stillGone
	s.far.Drives(false)
	if present {
		s.notice(t.Woke, pose.Held)
	}
	switch {
	case !s.run.Step(t, present, paused):
	case !present || paused:
		s.arm.StartSlowly(t.Woke)
	default:
		copy(s.lead, pose.Joints)
		s.steering.overrule(t.Woke, s.lead[len(s.robot.Motors):])
		s.arm.KeepGoals(s.lead, s.held)
		s.arm.Drive(t.Woke, s.lead)
		s.act(s.lead, pose.At)
		s.far.Drives(true)
	}
}

// notice reports joints that no longer lead, and those that lead again; the follower then starts
// slowly.
//
//rt:noalloc
func (s *remote) notice(now rt.Instant, held robot.Joints) {
	if began := held &^ s.held; began != 0 {
		s.events.Emit(now, event.LeaderHeld, int64(began), int64(leader.Remotely))
	}
	if ended := s.held &^ held; ended != 0 {
		s.arm.StartSlowly(now)
		s.events.Emit(now, event.LeaderLeads, int64(ended), 0)
	}
	s.held = held
}
