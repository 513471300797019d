package attend

import (
	"context"
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// TeleopConfig configures edge-rt teleop.
type TeleopConfig struct {
	Config
	FPS         float64
	Leader      device.Place // Teleop sets its Robot
	LeaderRobot string       // name or file; empty: the follower's name with _leader
	Net         zenoh.Config // of a leader on another machine
}

const (
	teleoperated = "teleop" // name of the source
	stillGone    = 100 * time.Millisecond
)

// teleop is a run with a leader arm: the follower starts slowly, and holds while either arm does not
// answer. Its goals pass the same gate as a policy's. Both arms may be unplugged and come back.
type teleop struct {
	session
	place     device.Place   // of the leader
	leadersAt []device.Place // of its parts

	// Owner: tick thread.
	lead   []float32 // the goals: the leader's positions, and a base's velocities
	parts  []leadPart
	leadBy rt.Instant // deadline of the leader's read in this tick
	now    rt.Instant
}

// leadPart is one part of the leader.
type leadPart struct {
	arm     *hotplug.Arm
	first   int             // index of its first joint in the follower's
	lead    []float32       // its joints
	leading *leader.Leading // the joints that lead
	seen    rt.Instant      // newest complete reading
}

// Teleop drives a follower arm with a leader arm until ctx ends or the duration is over.
func Teleop(ctx context.Context, cfg TeleopConfig) error {
	if name, endpoint, ok, err := leader.ParseRemote(cfg.Leader.Bus); err != nil {
		return err
	} else if ok {
		return followRemote(ctx, cfg, name, endpoint)
	}
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
	var err error
	if s.place.Robot, err = device.Leader(cfg.LeaderRobot, cfg.Arm.Robot); err != nil {
		return err
	}
	if cfg.Arm.Robot.Base != nil {
		s.steering = new(steering)
	}
	if s.leadersAt, err = s.place.Each(); err != nil {
		return err
	}
	if err := device.CheckAllPorts(s.leadersAt, s.places); err != nil {
		return err
	}
	return s.drive(ctx, cfg.FPS)
}

func (s *teleop) open(ctx context.Context) error {
	cfgs, err := s.configureAll(ctx, s.places)
	if err != nil {
		return err
	}
	leaders, err := s.configureAll(ctx, s.leadersAt)
	if err != nil {
		return err
	}
	if err := s.openAll(cfgs, s.places, &s.arms); err != nil {
		return err
	}
	if err := s.openAll(leaders, s.leadersAt, &s.leaders); err != nil {
		return err
	}
	s.lead = make([]float32, len(s.cfg.Arm.Robot.Motors))
	for i, p := range s.place.Robot.Parts() {
		s.parts = append(s.parts, leadPart{
			arm:     s.leaders[i],
			first:   p.First,
			lead:    s.lead[p.First : p.First+len(p.Robot.Motors)],
			leading: leader.NewLeading(p.Robot),
		})
	}
	for i := range s.parts {
		p := &s.parts[i]
		s.beside = append(s.beside, beside{func() { s.readLeader(p) }, p.arm})
	}
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

func (s *teleop) summarize(sum *Summary) { sum.Leader = new(drive.SummaryOf(s.leaders.Stats())) }

// read reads the leader in half of the reading time, and then the follower. Those of several parts
// are read at the same time.
//
//rt:noalloc
func (s *teleop) read(t rt.Tick) {
	reading := s.period - follow.Reserve(s.period)
	s.now, s.leadBy = t.Woke, t.Deadline.Add(reading)
	if !s.arm.Several() {
		s.leadBy = t.Deadline.Add(reading / 2)
		s.readLeader(&s.parts[0])
	}
	s.arm.ReadBy(t, t.Deadline.Add(reading))
	s.seen = s.parts[0].seen
	for i := range s.parts {
		p := &s.parts[i]
		s.seen = min(s.seen, p.seen)
		if why, _ := p.arm.Reconnected(); why != 0 { // the next Read has its positions
			p.leading.Forget()
			s.events.Emit(t.Woke, event.LeaderBack, int64(why), 0)
		}
	}
}

//rt:noalloc
func (s *teleop) readLeader(p *leadPart) {
	if p.arm.Read(p.lead, s.leadBy) == 0 && p.arm.Reactions().Encoder == 0 {
		p.seen = s.now
		s.checkLeading(s.now, p)
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
		for i := range s.parts {
			p := &s.parts[i]
			s.arm.KeepGoals(s.lead, p.leading.Held()<<p.first)
		}
		s.arm.Drive(t.Woke, s.lead)
		s.act(s.lead, s.seen)
	}
}

// checkLeading reports the joints of the leader that no longer lead, and those that lead again; the
// follower then starts slowly.
//
//rt:noalloc
func (s *teleop) checkLeading(now rt.Instant, p *leadPart) {
	began, ended := p.leading.Check(now, p.arm)
	for cause, joints := range began {
		if joints != 0 {
			s.events.Emit(now, event.LeaderHeld, int64(joints)<<p.first, int64(cause))
		}
	}
	if ended != 0 {
		s.arm.StartSlowly(now)
		s.events.Emit(now, event.LeaderLeads, int64(ended)<<p.first, 0)
	}
}
