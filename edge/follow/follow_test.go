package follow

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

const testPeriod = 10 * time.Millisecond

// motors is a bus with two joints, which keeps the goals and commands sent to it.
type motors struct {
	at        [2]float32
	stale     robot.Joints
	doubted   robot.Joints
	jumped    robot.Joints
	strayed   robot.Joints
	says      servo.Reactions
	back      hotplug.Cause
	restarted robot.Joints
	outside   robot.Joints
	effort    float64
	fault     servo.Fault
	measured  int
	pushes    float32
	loadRead  bool
	renewed   robot.Joints
	fatal     error
	relaxed   robot.Joints
	armed     robot.Joints // joints of the last ArmStep
	sent      []sent
	rescued   int
	follows   bool // joints reach their goals
}

type sent struct {
	goal   [2]float32
	joints robot.Joints
}

func (m *motors) SetPeriod(time.Duration)                       {}
func (m *motors) Read(dst []float32, _ rt.Instant) robot.Joints { copy(dst, m.at[:]); return m.stale }
func (m *motors) Positions(dst []float32)                       { copy(dst, m.at[:]) }
func (m *motors) Goals(dst []float32)                           { copy(dst, m.at[:]) }
func (m *motors) Write(goal []float32, joints robot.Joints) {
	m.sent = append(m.sent, sent{[2]float32(goal), joints})
	for j := range goal {
		if m.follows && joints.Has(j) {
			m.at[j] = goal[j]
		}
	}
}
func (m *motors) ArmStep(_ rt.Instant, joints robot.Joints) (bool, error) {
	if m.outside&joints != 0 && m.rescued == 0 {
		return false, servo.ErrOutOfRange
	}
	m.armed = joints
	return true, nil
}
func (m *motors) Reconnected() (hotplug.Cause, robot.Joints) {
	why, r := m.back, m.restarted
	m.back, m.restarted = 0, 0
	return why, r
}
func (m *motors) Reactions() servo.Reactions        { return m.says }
func (m *motors) DisableTorque(joints robot.Joints) { m.relaxed |= joints }
func (m *motors) Recheck()                          { m.doubted = 3 }
func (m *motors) Unchecked() robot.Joints           { return m.doubted }
func (m *motors) Jumped() robot.Joints              { j := m.jumped; m.jumped = 0; return j }
func (m *motors) GoalMismatch() robot.Joints        { s := m.strayed; m.strayed = 0; return s }
func (m *motors) Effort(int, rt.Instant) float64    { return m.effort }
func (m *motors) Prioritize(robot.Joints)           {}
func (m *motors) Complaint(int) (servo.Fault, int)  { return m.fault, m.measured }
func (m *motors) RenewTorque(joints robot.Joints)   { m.renewed |= joints }
func (m *motors) Push(j int, _ rt.Instant) (float32, bool) {
	return m.pushes, m.loadRead
}
func (m *motors) MovedWhileArming() robot.Joints { return 0 }
func (m *motors) OutOfRange() robot.Joints       { return m.outside }
func (m *motors) Rescue() error                  { m.rescued++; return nil }
func (m *motors) EndRescue() error               { m.rescued--; return nil }
func (m *motors) BusWatchdogFired() bool         { return false }
func (m *motors) BusWait() rt.Wait               { return rt.Wait{} }
func (m *motors) Wheel(int) (goal, present int)  { return 0, 0 }
func (m *motors) Fatal() error                   { return m.fatal }

// ticked is a Follower whose ticks the test runs one by one.
type ticked struct {
	*Follower
	now rt.Instant
}

// rig is a Follower of two joints.
type rig struct {
	ticked
	bus *motors
}

// rigConfig returns the configuration of a rig with this gate. The function change, if not nil, modifies it.
func rigConfig(gate Gate, change func(*Config)) Config {
	cfg := Config{
		Period: testPeriod,
		Safety: robot.Safety{
			AfterReplug: robot.Resume,
			AfterReset:  robot.Operator,
			Slew:        0.5,
			SlewFor:     5 * testPeriod,
			Stall:       robot.Hold,
			StallFor:    10 * testPeriod,
		},
		Gate: gate,
	}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

func newRig(change func(*Config)) *rig {
	bus := &motors{at: [2]float32{5, 50}, follows: true}
	cfg := rigConfig(Gate{Min: []float32{-10, 0}, Max: []float32{90, 100}, Step: []float32{2, 4}}, change)
	return &rig{ticked{New(bus, cfg, 2), rt.Instant(time.Second)}, bus}
}

// rescued returns an armed rig with a joint outside its range, which is being rescued.
func rescued(t *testing.T) *rig {
	t.Helper()
	r := newRig(func(c *Config) { c.Rescue = true })
	r.bus.at[0], r.bus.outside = 95, 1
	r.StartArming()
	r.tick(t)
	if r.Phase != Armed || !r.rescuing() || r.bus.rescued != 1 {
		t.Fatalf("phase %v, rescuing %v", r.Phase, r.rescuing())
	}
	return r
}

// begin begins the next tick, and reads the joints.
func (r *ticked) begin() rt.Tick {
	r.now = r.now.Add(testPeriod)
	tick := rt.Tick{Deadline: r.now, Woke: r.now}
	r.ReadBy(tick, r.now.Add(testPeriod))
	return tick
}

// tick runs one tick of a policy with this action.
func (r *ticked) tick(t testing.TB, want ...float32) {
	t.Helper()
	tick := r.begin()
	switch r.Phase {
	case Arming:
		rttest.Must(r.ArmStep(tick))(t)
	case Armed:
		if want != nil {
			r.DriveAt(r.now, want, 1)
		}
	case Parking:
		r.parkStep(r.now, false)
	}
}

func (r *ticked) ticks(t testing.TB, n int, want ...float32) {
	t.Helper()
	for range n {
		r.tick(t, want...)
	}
}

// armed returns a rig after its slow start.
func armed(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	r := newRig(change)
	r.StartArming()
	r.ticks(t, 20, 5, 50)
	if r.Phase != Armed || r.slow.active {
		t.Fatalf("phase %v, slow %v", r.Phase, r.slow.active)
	}
	return r
}

// watched returns an armed rig, and its events.
func watched(t *testing.T) (*rig, *event.Queue) {
	t.Helper()
	events := event.NewQueue(64)
	return armed(t, func(c *Config) { c.Events = events }), events
}

func (r *rig) last() sent { return r.bus.sent[len(r.bus.sent)-1] }

func TestNothingIsSentToASilentArm(t *testing.T) {
	r := armed(t, nil)
	r.ticks(t, 10, 30, 80)
	n := len(r.bus.sent)
	r.bus.stale = 3
	r.ticks(t, 30, 30, 80)
	if len(r.bus.sent) != n || !r.silent() {
		t.Errorf("%d goals to a silent arm, silent %v", len(r.bus.sent)-n, r.silent())
	}
	// All joints may have goals again, but the arm still counts as silent.
	r = armed(t, func(c *Config) { c.Gate.Step = []float32{2, 4} })
	r.joints[0], r.joints[1] = Torque|Answering|Verified, Torque|Answering|Verified
	r.may[0] = mayGoal
	r.may[1] = mayGoal
	r.silence.bus = true
	n = len(r.bus.sent)
	r.DriveAt(r.now, []float32{30, 80}, 1)
	if len(r.bus.sent) != n {
		t.Error("goals leave while the arm is silent")
	}
}

// Goal: an event names each joint whose motor falls silent or has restarted, once.
func TestWhoIsSilentAndWhoRestartedIsTold(t *testing.T) {
	r, events := watched(t)
	r.bus.stale = 2
	r.ticks(t, 30, 7, 52)
	r.bus.stale = 0
	r.bus.back = hotplug.Restarted
	r.bus.restarted = 2
	r.tick(t, 7, 52)
	var silent, back []int64
	events.Drain(func(e event.Event) {
		switch e.Code {
		case event.JointFrozen:
			silent = append(silent, e.A)
		case event.BusBack:
			back = append(back, e.B)
		}
	})
	if !slices.Equal(silent, []int64{2}) || !slices.Equal(back, []int64{2<<1 | 1}) {
		t.Errorf("silent %b, back %b, want the second joint once in each, which waits", silent, back)
	}
}

// Goal: after a silence the goals go on slowly from the goals that the motors have kept, whatever places are read. For
// a motor that holds another goal, the goals go on from its place.
func TestAfterASilence(t *testing.T) {
	for _, strayed := range []robot.Joints{0, 3} {
		r := armed(t, nil)
		r.ticks(t, 30, 60, 80)
		r.bus.stale = 3
		r.ticks(t, 30, 60, 80)
		r.bus.stale = 0
		r.bus.strayed = strayed
		r.bus.at = [2]float32{10, 20}
		n := len(r.bus.sent)
		r.tick(t, 90, 100)
		from := [2]float32{60, 80}
		if strayed != 0 {
			from = [2]float32{10, 20}
		}
		if len(r.bus.sent) != n+1 {
			t.Fatalf("strayed %b: %d goals, want one", strayed, len(r.bus.sent)-n)
		}
		for j, goal := range r.bus.sent[n].goal {
			if d := goal - from[j]; d < 0 || d > r.gate.Step[j]/2+slack {
				t.Errorf("strayed %b: goals %v, want them within half a step of %v", strayed, r.bus.sent[n].goal, from)
			}
		}
	}
}

// Goal: a joint whose motor holds another goal gets no goal until its place is known.
func TestAnotherGoalWaitsForThePlace(t *testing.T) {
	r := armed(t, nil)
	r.ticks(t, 30, 60, 80)
	r.bus.strayed = 1
	r.bus.stale = 1
	r.bus.at = [2]float32{-10, 80}
	r.tick(t, 60, 80)
	if r.Goal[0] != 60 || r.last().joints != 2 {
		t.Errorf("goal %v, goals to %b, want it to keep 60 and get none", r.Goal[0], r.last().joints)
	}
	r.bus.stale, r.bus.at[0] = 0, 40
	r.tick(t, 60, 80)
	if d := r.last().goal[0] - 40; d < 0 || d > 1+slack {
		t.Errorf("goal %v, want it within half a step of 40", r.last().goal[0])
	}
}

// Goal: a motor whose reply was lost gets no goal until its values were compared. If it holds another goal, its next
// goal starts at its place.
func TestAMotorThatWasSilent(t *testing.T) {
	r := armed(t, nil)
	r.bus.stale, r.bus.doubted = 1, 1
	r.tick(t, 7, 52)
	rttest.Want(t, r.last().joints, 2, "goals to joints while the first is silent")
	r.bus.stale = 0
	r.tick(t, 7, 52)
	rttest.Want(t, r.last().joints, 2, "goals to joints before the first was compared")
	r.bus.doubted = 0
	r.bus.strayed = 1
	r.bus.at[0] = -3
	r.tick(t, 7, 52)
	if r.last().joints != 3 || r.last().goal[0] > -3+2+slack {
		t.Errorf("%+v, want both, the first within a step of -3, where it is", r.last())
	}
}

func TestARestartWaitsForConsent(t *testing.T) {
	for _, policy := range []robot.Return{robot.Operator, robot.Resume} {
		r := armed(t, func(c *Config) { c.Safety.AfterReset = policy })
		n := len(r.bus.sent)
		r.bus.back, r.bus.restarted = hotplug.Restarted, 2
		r.tick(t, 9, 54)
		r.bus.armed = 0
		r.StartArming() // as at the next chunk
		r.ticks(t, 5, 9, 54)
		waits := policy == robot.Operator
		if r.NeedsResume() != waits || (r.bus.armed == 0) != waits || waits && len(r.bus.sent) != n {
			t.Errorf("%s: waits %v, armed %b, %d goals", policy, r.NeedsResume(), r.bus.armed, len(r.bus.sent)-n)
		}
		r.Resume()
		r.ticks(t, 5, 9, 54)
		if r.Phase != Armed || r.bus.armed != 3 {
			t.Errorf("%s: phase %v, armed %b after the consent", policy, r.Phase, r.bus.armed)
		}
	}
}

// Goal: a limp joint stays limp, even after a replug. The other joints are armed.
func TestLimpStaysLimp(t *testing.T) {
	r := armed(t, nil)
	r.bus.says.Limp = 1
	r.ticks(t, 5, 9, 54)
	rttest.Want(t, r.last().joints, 2, "goals to joints")
	r.bus.says = servo.Reactions{}
	r.bus.relaxed = 0
	r.bus.back = hotplug.Unplugged
	r.tick(t, 9, 54)
	rttest.Want(t, r.bus.relaxed, 1, "joints that must be limp after the replug")
	r.StartArming()
	r.ticks(t, 5, 9, 54)
	if r.bus.armed != 2 || r.last().joints != 2 || r.Phase != Armed {
		t.Errorf("armed %b, goals to %b, phase %v: want the second joint alone", r.bus.armed, r.last().joints, r.Phase)
	}
}

// Goal: the goals of parking pass the same gate, and joints that may not be driven get no goal.
func TestParking(t *testing.T) {
	r := armed(t, nil)
	r.ticks(t, 60, 60, 80)
	r.bus.says.Encoder = 1
	r.tick(t, 60, 80)
	before := r.bus.at[0]
	n := len(r.bus.sent)
	r.finish(r.now)
	r.ticks(t, 300)
	if r.Phase != Done {
		t.Fatalf("phase %v, want Done", r.Phase)
	}
	at := float32(80)
	for _, s := range r.bus.sent[n:] {
		if s.joints != 2 {
			t.Fatalf("parking sends joints %b, want the second only", s.joints)
		}
		if d := at - s.goal[1]; d > 4*parkSpeed+slack {
			t.Fatalf("a step of %v while parking", d)
		}
		at = s.goal[1]
	}
	if r.bus.at[0] != before || r.bus.at[1] > 50+parkTolerance {
		t.Errorf("parked at %v, want %v and near 50", r.bus.at, before)
	}
}

func TestOutsideTheRange(t *testing.T) {
	r := newRig(nil)
	r.bus.at[0], r.bus.outside = 95, 1
	r.StartArming()
	touched, err := r.ArmStep(r.begin())
	if touched || !errors.Is(err, servo.ErrOutOfRange) || exit.Of(err) != exit.Fault {
		t.Errorf("arming outside the range: touched %v, %v; want it refused untouched, with code 6", touched, err)
	}
	r = rescued(t)
	last := float32(95)
	for n := 0; r.rescuing(); n++ {
		if n > 2000 {
			t.Fatalf("still at %v", r.bus.at)
		}
		r.tick(t)
		rttest.Do(t, r.rescueStep(r.now))
		if d := last - r.bus.at[0]; d < 0 || d > 2*rescuePace+slack {
			t.Fatalf("a step of %v on the way in", d)
		}
		if last = r.bus.at[0]; last <= 90 {
			r.bus.outside = 0
		}
	}
	if r.bus.rescued != 0 {
		t.Error("the servos keep their slow speed")
	}
}

// Goal: a joint with high effort and without motion is reported and held, but follows a goal that relieves it.
func TestStall(t *testing.T) {
	r := armed(t, nil)
	r.bus.follows, r.bus.effort = false, 0.9
	r.ticks(t, 60, 40, 50)
	if r.joints[0]&Overloaded == 0 || r.joints[1]&Overloaded != 0 {
		t.Fatalf("joints %v, want the first stalled", r.joints)
	}
	before := r.Goal[0]
	r.ticks(t, 5, 80, 50)
	if r.Goal[0] != before {
		t.Errorf("goal %v after %v: it pushes on", r.Goal[0], before)
	}
	r.bus.follows = true
	r.ticks(t, 5, -5, 50)
	if r.Goal[0] >= before {
		t.Errorf("goal %v after %v: it does not give way", r.Goal[0], before)
	}
	r.ticks(t, 60, 40, 50)
	if r.joints[0]&Overloaded != 0 || r.Goal[0] != 40 {
		t.Errorf("joint %v, goal %v, want it free again", r.joints[0], r.Goal[0])
	}
}

// Goal: a joint that moves, is near its goal, or has little effort does not stall.
func TestNoStall(t *testing.T) {
	r := armed(t, nil)
	r.bus.effort = 0.9
	r.ticks(t, 100, 80, 50) // the joint follows its goal
	r.bus.follows, r.bus.effort = false, 0.5
	r.ticks(t, 100, 20, 50) // the joint is slow, but without effort
	if r.joints[0]&Overloaded != 0 {
		t.Errorf("joint %v, want no stall", r.joints[0])
	}
	for _, reaction := range []robot.Reaction{robot.Ignore, robot.Limp, robot.Stop} {
		r := armed(t, func(c *Config) { c.Safety.Stall = reaction })
		r.bus.follows, r.bus.effort = false, 0.9
		r.ticks(t, 60, 40, 50)
		if limp, stop := r.bus.relaxed != 0, r.Fatal() != nil; limp != (reaction == robot.Limp) ||
			stop != (reaction == robot.Stop) {
			t.Errorf("%s: limp %v, stop %v", reaction, limp, stop)
		}
	}
}

func TestTickNoAlloc(t *testing.T) {
	r := armed(t, nil)
	r.bus.sent = make([]sent, 0, 4096)
	want := []float32{30, 70}
	rttest.NoAllocs(t, "a tick allocates %v times, want 0", 500, func() { r.tick(t, want...) })
}

// jumps returns the events of jumps in a queue, and empties it.
func jumps(q *event.Queue) (told []event.Event) {
	q.Drain(func(e event.Event) {
		if e.Code == event.JointJumped {
			told = append(told, e)
		}
	})
	return told
}

// Goal: a joint under torque whose position jumps and stays there is reported at most once in a second, with its
// travel. A jump of a limp joint, of a motor that may have restarted or of a faulty encoder is not reported.
func TestAJumpIsReported(t *testing.T) {
	r, events := watched(t)
	jumps(events)
	r.bus.follows = false
	from := r.bus.at[0]
	for n := range 30 {
		r.bus.at[0], r.bus.jumped = from+88*float32(1-n%2), 1
		r.tick(t, from, 50)
	}
	told := jumps(events)
	if len(told) != 1 || told[0].A != 1 {
		t.Fatalf("told %+v, want one event of joint 0", told)
	}
	if a, b := event.WayOf(told[0].B); a != from || b != from+88 {
		t.Errorf("from %v to %v, want %v to %v", a, b, from, from+88)
	}
	with := func(c *Config) { c.Events = events }
	limp, unchecked, blind := newRig(with), armed(t, with), armed(t, with)
	unchecked.bus.doubted = 1
	blind.bus.says.Encoder = 1
	blind.tick(t, from, 50)
	for i, r := range []*rig{limp, unchecked, blind} {
		r.bus.jumped = 1
		if r.tick(t, from, 50); len(jumps(events)) > 0 {
			t.Errorf("rig %d reports a jump", i)
		}
	}
}
