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
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// TeleopConfig configures edge-rt teleop.
type TeleopConfig struct {
	Config
	FPS         float64
	Leader      device.Place // Teleop sets its Robot, to fit the follower
	LeaderRobot string       // name or file of the leader's description; empty: the follower's name with _leader
	Net         zenoh.Config // network of the leaders on other machines
}

const (
	teleoperated = "teleop" // name of the source
	stillGone    = 100 * time.Millisecond
	joinLimit    = time.Minute // maximum time to join the network of a leader on another machine
)

// teleop is a run with leader arms: the follower starts slowly, and holds while a leader or the
// follower does not answer. Its goals pass the gate (follow.Gate), as a policy's do. All arms may be unplugged and
// come back. A part without a leader holds.
type teleop struct {
	session
	place device.Place          // place of the leader
	here  []device.Place        // the leader's parts at this machine
	away  []leader.RemoteConfig // the leader's parts on other machines
	net   zenoh.Config

	// Owner: tick thread.
	lead   []float32    // goals of the follower: the leader's positions, and the velocities of a base
	base   []float32    // the velocities in lead
	led    robot.Joints // the follower's joints that a leader or the keys drive
	parts  []leadPart
	silent robot.Joints // joints of the parts that hold because a leader is silent
	quiet  robot.Joints // joints of the parts whose leaders are silent
	leadBy rt.Instant   // deadline of the leader's read in this tick
	now    rt.Instant
}

// leadPart is the leader of one part of the follower, or of the whole follower.
type leadPart struct {
	joints robot.Joints   // the follower's
	lead   []float32      // joints of the leader
	seen   rt.Instant     // newest complete reading
	held   robot.Joints   // joints of the leader that do not lead now
	far    *leader.Remote // leader on another machine; nil: the leader is at this machine

	// The next fields are for a leader at this machine.
	arm     *hotplug.Arm
	leading *leader.Leading
}

// Teleop drives a follower arm with a leader arm until ctx ends or the duration is over.
func Teleop(ctx context.Context, cfg TeleopConfig) error {
	s := &teleop{place: cfg.Leader, net: cfg.Net}
	s.source = s
	if err := s.begin(cfg.Config, teleoperated); err != nil {
		return err
	}
	if s.place.Bus == "" {
		return exit.Errorf(exit.Usage,
			"--leader is missing: give the leader's serial port (edge-rt ports finds it), or "+
				"--jog to move single joints with keys")
	}
	follower := cfg.Arm.Robot
	var err error
	if s.place.Robot, err = device.Leader(cfg.LeaderRobot, follower); err != nil {
		return err
	}
	if follower.Base != nil {
		s.steering = new(steering)
	}
	if s.here, s.away, err = leader.Split(s.place, follower); err != nil {
		return err
	}
	if err := device.CheckAllPorts(s.here, s.places); err != nil {
		return err
	}
	defer func() { s.far.Close() }()
	return s.drive(ctx, cfg.FPS)
}

func (s *teleop) open(ctx context.Context) (err error) {
	for i := range s.away {
		s.away[i].ID, s.away[i].Clock = s.identity.ID, s.clock
	}
	if s.far, err = leader.Dial(ctx, s.away, s.net, joinLimit, s.cfg.Log); err != nil {
		return err
	}
	cfgs, err := s.configureAll(ctx, s.places)
	if err != nil {
		return err
	}
	leaders, err := s.configureAll(ctx, s.here)
	if err != nil {
		return err
	}
	check := s.busCheck()
	if len(s.places) == 1 && len(s.here) == 1 { // a tick reads one after the other; the longest reads rarely coincide
		check.Period = s.period * 3 / 4
		check.At += " of leader and follower"
	}
	if err := s.openAll(ctx, cfgs, s.places, &s.arms, check); err != nil {
		return device.Exchanged(s.places, s.here, s.clock, err)
	}
	if err := s.openAll(ctx, leaders, s.here, &s.leaders, check); err != nil {
		return fmt.Errorf("the leader: %w", err)
	}
	s.join()
	return nil
}

// join connects each leader with the follower's joints that it leads.
func (s *teleop) join() {
	follower := s.cfg.Arm.Robot
	s.lead = make([]float32, len(follower.Motors))
	s.base = s.lead[len(s.place.Robot.Motors):]
	s.led = follower.Wheels() // keys drive the wheels
	s.parts = make([]leadPart, len(s.here)+len(s.away))
	lay := func(p *leadPart, part string) []float32 {
		p.joints = leader.PartJoints(follower, part)
		s.led |= p.joints
		first := p.joints.First()
		return s.lead[first : first+p.joints.Len()]
	}
	for i := range s.here {
		p := &s.parts[i]
		p.arm, p.leading = s.leaders[i], leader.NewLeading(s.here[i].Robot)
		p.lead = lay(p, s.here[i].Part)[:len(s.here[i].Robot.Motors)] // the leader gets the pose without the wheels
		s.beside = append(s.beside, beside{func() { s.readLeader(p) }, p.arm})
	}
	for i, far := range s.far {
		p := &s.parts[len(s.here)+i]
		p.far = far
		p.lead = lay(p, s.away[i].Part)
	}
}

func (s *teleop) settings() map[string]string {
	return map[string]string{"leader": s.place.Bus, "leader_robot": s.place.Robot.Name}
}

func (s *teleop) greet() {
	if s.far != nil {
		s.run.Go(s.watch)
	}
	for _, far := range s.far {
		s.run.Go(func() error { return far.Run(s.run.Ending()) })
	}
	fmt.Fprintf(s.cfg.Out, "The %s follows the %s at %s. Move the leader slowly to the position of the follower; "+
		"Ctrl-C ends.\n", s.cfg.Arm.Robot.Name, s.place.Robot.Name, s.place.Bus)
	for _, p := range s.cfg.Arm.Robot.Parts() {
		if p.Joints()&s.led == 0 {
			fmt.Fprintf(s.cfg.Out, "%s has no leader, and holds.\n", p.Name)
		}
	}
	s.greetBase()
}

// watch logs the reason while no poses of the leaders on other machines arrive.
func (s *teleop) watch() error {
	last := ""
	for !s.run.Ending().Load() {
		s.clock.SleepUntil(s.clock.Now().Add(time.Second))
		switch why := s.far.Why(s.clock.Now()); {
		case why == last:
		case why == "":
			s.cfg.Log.Info("poses of the leader arrive", "leader", s.far.Stats(s.clock.Now()).Name,
				"rtt", s.far.RTT().Round(100*time.Microsecond))
			last = why
		default:
			s.cfg.Log.Warn("the follower holds", "why", why)
			last = why
		}
	}
	return nil
}

func (s *teleop) summarize(sum *Summary) {
	if s.leaders != nil {
		sum.Leader = new(drive.SummaryOf(s.leaders.Stats()))
	}
	sum.Remote = s.far.Stats(s.clock.Now())
}

// read reads the leader in half of the reading time, and then the follower. A robot of several parts
// reads all leaders and followers at the same time.
//
//rt:noalloc
func (s *teleop) read(t rt.Tick) {
	reading := s.period - follow.Reserve(s.period)
	s.now, s.leadBy = t.Woke, t.Deadline.Add(reading)
	clear(s.base) // the base stands still, unless a key drives it
	if !s.arm.Several() && s.leaders != nil {
		s.leadBy = t.Deadline.Add(reading / 2)
		s.readLeader(&s.parts[0])
	}
	s.arm.ReadBy(t, t.Deadline.Add(reading))
	s.seen = t.Woke
	oldest, was := t.Woke, s.quiet
	s.quiet = 0
	for i := range s.parts {
		p := &s.parts[i]
		if p.far != nil {
			s.take(p)
		} else if why, _ := p.arm.Reconnected(); why != 0 { // the next Read returns the positions of the reopened arm
			p.leading.Forget()
			s.tell(p, was, event.LeaderBack, false)
		}
		oldest = min(oldest, p.seen)
		if t.Woke.Sub(p.seen) >= stillGone {
			s.quiet |= p.joints
			s.tell(p, was, event.LeaderSilent, false)
		} else {
			s.seen = min(s.seen, p.seen)
			s.tell(p, was, event.LeaderBack, true)
		}
	}
	s.silent = s.quiet
	if s.silent != 0 && (!s.arm.Apart() || s.led&^s.silent == 0) {
		s.silent, s.seen = s.led, oldest
	}
}

// tell emits an event, what, about a leader at this machine. If the parameter silent is true, tell does so only if the
// leader was silent in the previous tick; otherwise only if it was not. quiet holds the joints whose leaders were
// silent in the previous tick. The method watch reports leaders on other machines.
//
//rt:noalloc
func (s *teleop) tell(p *leadPart, quiet robot.Joints, what event.Code, silent bool) {
	joints := p.joints
	if p.far != nil || (quiet&joints != 0) != silent {
		return
	}
	if !s.arm.Several() {
		joints = 0
	}
	s.events.Emit(s.now, what, int64(joints), 0)
}

//rt:noalloc
func (s *teleop) readLeader(p *leadPart) {
	if p.arm.Read(p.lead, s.leadBy) == 0 && p.arm.Reactions().Encoder == 0 {
		p.seen = s.now
		began, ended := p.leading.Check(s.now, p.arm)
		for cause, joints := range began {
			s.letGo(p, joints, leader.Cause(cause))
		}
		s.leadAgain(p, ended)
		p.held = p.leading.Held()
	}
}

// take copies the newest pose of a leader on another machine, unless the pose is too old.
//
//rt:noalloc
func (s *teleop) take(p *leadPart) {
	pose := p.far.Pose()
	if p.seen = pose.At; s.now.Sub(pose.At) >= stillGone {
		return
	}
	copy(p.lead, pose.Joints)
	s.letGo(p, pose.Held&^p.held, leader.Remotely)
	s.leadAgain(p, p.held&^pose.Held)
	p.held = pose.Held
}

// move drives the follower to the leader's positions. While the leader is silent the follower holds,
// and then it starts slowly, since the leader may have moved. If one of several leaders is silent,
// the whole follower holds, or, with robot.Apart, only this leader's part.
//
//rt:noalloc
func (s *teleop) move(t rt.Tick) {
	led, paused := s.led&^s.silent, s.paused.Load()
	drives := false
	switch {
	case !s.run.Step(t, led != 0, paused), s.arm.Silent(): // a silent follower follows no action
	case led == 0 || paused:
		s.arm.StartSlowly(t.Woke)
	default:
		drives = true
		s.steering.overrule(t.Woke, s.base)
		s.arm.KeepGoals(s.lead, ^led)
		for i := range s.parts {
			p := &s.parts[i]
			s.arm.KeepGoals(s.lead, p.held<<p.joints.First())
		}
		s.arm.StartOnlySlowly(t.Woke, s.silent)
		s.arm.Lead(t.Woke, s.lead, led)
		s.act(s.lead, s.seen)
	}
	for _, far := range s.far {
		far.Drives(drives)
	}
}

// letGo reports joints of a leader that no longer lead.
//
//rt:noalloc
func (s *teleop) letGo(p *leadPart, joints robot.Joints, why leader.Cause) {
	if joints != 0 {
		s.events.Emit(s.now, event.LeaderHeld, int64(joints)<<p.joints.First(), int64(why))
	}
}

// leadAgain reports joints of a leader that lead again; the follower then starts slowly.
//
//rt:noalloc
func (s *teleop) leadAgain(p *leadPart, joints robot.Joints) {
	if joints != 0 {
		s.arm.StartSlowly(s.now)
		s.events.Emit(s.now, event.LeaderLeads, int64(joints)<<p.joints.First(), 0)
	}
}
