package edge

import (
	"testing"

	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// newPair gives a rig two parts of one joint each, and a leader of both.
func newPair(t *testing.T, coupling robot.Coupling) (r *rig, l *fakeLeader, buses [2]*fakeBus) {
	t.Helper()
	r = newRig(t)
	two := rttest.Must(robot.ByName("bi_so101"))(t)
	two.Safety.Parts = coupling
	r.arm = follow.Of(two, func(i int, _ robot.Robot) *follow.Follower {
		how := r.how
		how.Clock, how.Gate = r.Clock, follow.Gate{Min: []float32{-90}, Max: []float32{90}, Step: []float32{3}}
		buses[i] = new(fakeBus)
		return follow.New(buses[i], how, 1)
	})
	r.controlConfig.arm = r.arm
	r.drive = drive.New(drive.Config{Arm: r.arm, Loop: rt.LoopConfig{Clock: r.Clock, Period: testPeriod}})
	r.core.Gate = r.arm.Gate()
	l = r.lead(false, 0, 0)
	r.serve(60, 3, 10)
	return r, l, buses
}

// Goal: a person takes one of two parts over. With robot.Together, the other part holds, and no
// request leaves. With robot.Apart, the policy drives the other part, with new requests.
// The person's part follows only the leader. After the person has given it back, the policy drives
// both parts.
func TestTakeoverOfOnePart(t *testing.T) {
	for _, tt := range []struct {
		coupling robot.Coupling
		right    float32 // goal of the other part, for which the policy's actions are 30
		asks     bool
	}{
		{robot.Together, 10, false},
		{robot.Apart, 30, true},
	} {
		r, l, buses := newPair(t, tt.coupling)
		r.operator.taken.Store(1)
		r.operator.correct.Store(true)
		r.led(1, l)
		l.pose.Joints = []float32{-40, -40}
		asked := r.requests()
		buses[1].at[0]++ // a push of the other part: while that part holds, it gets no goal and stays at the new place
		for range 60 {
			l.pose.At = r.Now()
			r.serve(1, 0, 0)
			if key := r.session.key; r.requests() > asked {
				r.answerEpisode(key, 30, r.session.episode)
			}
		}
		if r.holder() != correcting || r.arm.Goal[0] != -40 || r.arm.Goal[1] != tt.right {
			t.Errorf("%v: %v with the goals %v, want left at its leader's -40 and right at %v", tt.coupling, r.holder(),
				r.arm.Goal, tt.right)
		}
		rttest.Want(t, r.takeover.action[1], tt.right, "%v: the action on record has right at", tt.coupling)
		if asks := r.requests() > asked; asks != tt.asks {
			t.Errorf("%v: requests while a person has left: %v, want %v", tt.coupling, asks, tt.asks)
		}
		if r.run.state == stateDead {
			t.Errorf("%v: the run gave up", tt.coupling)
		}
		if at := buses[1].at[0]; tt.coupling == robot.Together && at != tt.right+1 {
			t.Errorf("right is at %v, want no goal for it", at)
		}
		r.giveBack(l)
		r.answerEpisode(r.request(), 20, r.session.episode)
		r.led(40, l)
		if r.arm.Goal[0] != 20 || r.arm.Goal[1] != 20 {
			t.Errorf("%v: given back, the goals are %v, want the policy's 20", tt.coupling, r.arm.Goal)
		}
	}
}

// Goal: a take-over stops a base within two ticks, whatever its limit of acceleration.
func TestATakeoverStopsTheBase(t *testing.T) {
	r := newRig(t)
	r.follow(func(c *follow.Config) { c.Gate.Wheels = 2 })
	r.serve(60, 3, 30)
	if r.arm.Goal[1] != 30 {
		t.Fatalf("goals %v, want the base at 30", r.arm.Goal)
	}
	l := r.lead(false, 30, 0)
	r.operator.correct.Store(true)
	if r.led(2, l); r.holder() != correcting || r.arm.Goal[1] != 0 {
		t.Errorf("%v, goals %v, want a base that stands", r.holder(), r.arm.Goal)
	}
}

// Goal: while the leader of a part is silent, this part holds; with robot.Apart, the policy drives
// the other part.
func TestASilentLeaderHoldsItsPart(t *testing.T) {
	r, l, _ := newPair(t, robot.Apart)
	r.operator.taken.Store(1)
	r.operator.correct.Store(true)
	r.led(1, l)
	l.pose.Joints = []float32{-40, 0}
	r.step(20)
	for range 40 { // the policy's answers come after the leader's silence has begun
		r.step(1)
		r.answerEpisode(r.session.key, 30, r.session.episode)
	}
	if r.arm.Goal[0] == -40 || r.arm.Goal[1] != 30 {
		t.Errorf("goals %v, want right at 30 and left on its way", r.arm.Goal)
	}
}

// Goal: a part that was away is armed again, even if the other part has stayed armed. In a correction the leader's next
// pose arms the part. In a run without a policy the next tick arms it.
func TestAPartThatReturnsIsArmed(t *testing.T) {
	for name, tick := range map[string]func(*rig, *fakeLeader){
		"a correction": func(r *rig, l *fakeLeader) { r.led(1, l) },
		"no policy": func(r *rig, _ *fakeLeader) {
			now := r.Now()
			r.arm.Read(rt.Tick{Deadline: now, Woke: now})
			r.drive.Step(rt.Tick{Deadline: now, Woke: now}, true, false)
			r.SleepUntil(now.Add(testPeriod))
		},
	} {
		for _, coupling := range []robot.Coupling{robot.Together, robot.Apart} {
			r, l, buses := newPair(t, coupling)
			r.operator.correct.Store(true)
			r.led(5, l)
			buses[0].back, buses[0].torque = hotplug.Unplugged, false
			for range 5 {
				tick(r, l)
			}
			if !buses[0].torque || r.arm.Phase != follow.Armed || r.arm.Rearming() {
				t.Errorf("%s, %s: torque %v, phase %v, want the part armed", name, coupling, buses[0].torque,
					r.arm.Phase)
			}
		}
	}
}

// Goal: a push hands over every part with a leader, whichever part the last command was about.
func TestAPushConcernsEveryPart(t *testing.T) {
	r, l, _ := newPair(t, robot.Apart)
	r.operator.taken.Store(1)
	r.led(1, l)
	l.pose.Pushes++
	r.led(1, l)
	if led := r.takeover.led; r.holder() != correcting || led != 3 || r.stats.led.Load() != 3 {
		t.Errorf("%v, joints %b, want a correction of both parts", r.holder(), led)
	}
}

// Goal: with --leader jog a take-over moves a joint while its key is pressed, at a tenth of its velocity, and otherwise
// holds. When the person gives the arm back, the policy drives again.
func TestJogTakesOver(t *testing.T) {
	r := newRig(t)
	keys := leader.NewJog([]string{"pan", "lift"}, r.Clock)
	r.leadWith(leader.NewJogged(keys, r.arm.Gate().Step))
	r.serve(60, 1, 10)
	r.operator.correct.Store(true)
	r.step(10)
	if r.holder() != correcting || r.arm.Goal[0] != 10 {
		t.Fatalf("%v, goals %v, want the arm to stay", r.holder(), r.arm.Goal)
	}
	keys.Press(1, -1)
	r.step(100)
	want := 10 - 3*leader.JogPace*float32(leader.JogLease/testPeriod)
	if d := r.arm.Goal[1] - want; r.arm.Goal[0] != 10 || d > 0.31 || d < -0.31 {
		t.Errorf("goals %v, want joint 1 at %v", r.arm.Goal, want)
	}
	r.operator.correct.Store(false)
	r.answerEpisode(r.request(), 20, r.session.episode)
	r.step(60)
	rttest.Want(t, r.arm.Goal[1], 20, "goals")
	rttest.NoAllocs(t, "Want allocates %v times", 50, func() {
		r.takeover.leader.Want(r.Now(), 1, false, r.arm.Goal)
	})
}

// Goal: a take-over of an unknown part, or of one without a leader, is refused with the flag to give.
func TestPartsThatCannotBeTaken(t *testing.T) {
	r, _, _ := newPair(t, robot.Together)
	two, _ := robot.ByName("bi_so101")
	e := &Edge{control: r.control, robot: two, clock: r.Clock}
	r.takeover.parts = 1<<12 - 1
	rttest.Want(t, len(e.partsToTake()), 2, "buttons for (one for each arm)")
	r.takeover.parts = 63
	if parts := e.partsToTake(); parts != nil {
		t.Errorf("buttons for %q, want only Take over", parts)
	}
	for part, says := range map[string]string{"top": "left, right", "right": "--leader right=PORT"} {
		rttest.Fails(t, e.choose(part), says)
	}
	rttest.Want(t, e.partsOf(1<<7), "right", "parts of joint 7")
}
