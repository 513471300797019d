package follow

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Goal: a stalled joint that is made limp gets no goal in the same tick.
func TestStallLimpGetsNoGoal(t *testing.T) {
	r := armed(t, func(c *Config) { c.Safety.Stall = robot.Limp })
	r.bus.follows, r.bus.effort = false, 0.9
	n := 0
	for range 60 {
		r.tick(t, 40, 50)
		if r.bus.relaxed != 0 {
			if n++; r.last().joints&1 != 0 && n < 3 {
				t.Errorf("tick %d after its torque was taken: goals to %b", n, r.last().joints)
			}
		}
	}
	if n == 0 {
		t.Fatal("not limp")
	}
}

// Goal: the arm can still be driven after a joint outside its range has gone limp.
func TestRescueWithALimpJoint(t *testing.T) {
	r := rescued(t)
	r.bus.says.Limp = 1
	for range 1000 {
		r.tick(t)
		if !r.rescuing() {
			return
		}
		rttest.Do(t, r.rescueStep(r.now))
	}
	t.Error("rescuing for ever a joint that has no torque")
}

// Goal: a suspension after the loop has read the clocks, but before the joints are read, is noticed.
func TestSuspendBeforeRead(t *testing.T) {
	clock := rttest.NewClock(rt.Instant(time.Second))
	r := armed(t, func(c *Config) { c.Clock = clock })
	n := len(r.bus.sent)
	clock.Suspend(time.Hour)
	r.tick(t, 30, 80)
	if len(r.bus.sent) != n {
		t.Errorf("a goal left after an hour's sleep that the tick's start has not seen")
	}
}

// Goal: an arm that is armed again while paused is still parked at the end.
func TestPostponeOfAnArmedArm(t *testing.T) {
	r := armed(t, nil)
	r.Phase = Arming // the motors' bus watchdogs have fired
	r.cancelArming() // paused
	if r.Phase == Unarmed {
		t.Error("an arm under torque counts as untouched: SIGTERM lets it fall instead of parking it")
	}
}

// Goal: when another joint recovers from an encoder fault, the gripper keeps its grip.
func TestRearmDropsTheGrip(t *testing.T) {
	r := newRig(nil)
	r.bus.says.Encoder = 1
	r.StartArming()
	r.ticks(t, 20, 5, 50)
	if r.Phase != Armed || r.bus.armed != 2 {
		t.Fatal(r.Phase, r.bus.armed)
	}
	r.bus.follows = false
	r.bus.says.Overload = 2
	r.ticks(t, 20, 5, 20) // the gripper closes on an object at 50
	r.bus.armed = 0
	r.bus.says.Encoder = 0
	r.ticks(t, 3, 5, 20)
	if r.bus.armed&2 != 0 {
		t.Errorf("goal := present for joints %b, the one that holds something among them", r.bus.armed)
	}
}

// Goal: while a restarted joint also has an encoder fault, the other joints are not armed.
func TestRestartedAndBlind(t *testing.T) {
	r := armed(t, nil)
	r.bus.back = hotplug.Restarted
	r.bus.restarted = 1
	r.bus.says.Encoder = 1
	r.tick(t, 9, 54)
	r.bus.armed = 0
	r.StartArming()
	r.ticks(t, 5, 9, 54)
	if r.bus.armed != 0 {
		t.Errorf("armed %b without consent, waits %v", r.bus.armed, r.NeedsResume())
	}
}

// Goal: the slow start ends for a policy that moves constantly at half of the limit.
func TestSlowEnds(t *testing.T) {
	r := newRig(func(c *Config) { c.Safety.Slew = 0.3 })
	r.StartArming()
	r.ticks(t, 3, 5, 50)
	// Closed loop: each action is 0.9 ahead of the measured place. The limit is 2 a tick.
	dir := float32(1)
	for range 2000 {
		if r.bus.at[0] > 80 {
			dir = -1
		} else if r.bus.at[0] < 0 {
			dir = 1
		}
		r.tick(t, r.bus.at[0]+dir*0.9, 50)
	}
	if r.slow.active {
		t.Error("20 s of a policy that moves at 45 % of the limit and it is still slow")
	}
}

// Goal: the slow start does not end in a tick in which a joint far from its action is not driven.
func TestSlowStaleJoint(t *testing.T) {
	r := newRig(nil)
	r.StartArming()
	r.ticks(t, 12, 85, 50)
	r.bus.stale, r.bus.doubted = 1, 1
	r.tick(t, 85, 50)
	if !r.slow.active {
		t.Error("the start is over by a lost reply of the only joint that is far off")
	}
}

// Goal: an event names only its own joint.
func TestEventsNameTheNewJoint(t *testing.T) {
	r, events := watched(t)
	r.bus.says.Hold = 1
	r.tick(t, 5, 50)
	events.Drain(func(event.Event) {})
	r.bus.says.Hold = 3
	r.tick(t, 5, 50)
	events.Drain(func(e event.Event) {
		if e.Code == event.JointHeld && e.A != 2 {
			t.Errorf("the second joint is held: event for %b, and whoever prints it names the first", e.A)
		}
	})
}

// Goal: a gripper that pushes keeps its force when its goal register differs after a lost reply.
func TestStrayedGripper(t *testing.T) {
	r := armed(t, nil)
	r.bus.follows = false
	r.bus.says.Overload = 0
	r.ticks(t, 8, 5, 20) // the gripper closes on an object at 50
	r.bus.says.Overload = 2
	r.ticks(t, 5, 5, 20)
	before := r.Goal[1]
	r.bus.strayed = 2
	r.ticks(t, 2, 5, 20)
	if r.Goal[1] != before {
		t.Errorf("goal %v, was %v: it lets go", r.Goal[1], before)
	}
}

// Goal: a goal with a lead moves by at most one step in a tick, even after a damaged position.
func TestLeadKeepsTheStep(t *testing.T) {
	g := testGate()
	g.Lead = []float32{5, 5}
	if next := g.Pass(0, 5, 5, -9); next < 5-3-slack {
		t.Errorf("one damaged position, and the goal goes from 5 to %v, step is 3", next)
	}
}

// Goal: the goal of a wedged and overloaded joint does not go so far that the joint pushes as hard in the other
// direction. A joint that is not wedged follows its goal.
func TestReliefEndsAtTheJoint(t *testing.T) {
	r := armed(t, nil)
	r.bus.follows = false
	r.ticks(t, 30, 40, 50)
	r.bus.says.Overload = 1
	r.ticks(t, 60, -10, 50)
	if want := r.Place[0] - reliefPast; r.Goal[0] != want {
		t.Errorf("goal %v of a wedged joint at %v, want %v", r.Goal[0], r.Place[0], want)
	}
	r.bus.follows = true
	r.ticks(t, 60, -10, 50)
	rttest.Want(t, r.Goal[0], -10, "goal of a free joint")
}

// Goal: an arm that was unplugged during a rescue is rescued again, and not refused. Its motors do not keep the
// settings of the first rescue.
func TestRescueAgainAfterAReplug(t *testing.T) {
	r := rescued(t)
	r.bus.rescued, r.bus.back = 0, hotplug.Unplugged // another servo.Arm
	r.tick(t)
	r.StartArming()
	r.tick(t)
	if r.Phase != Armed || !r.rescuing() || r.bus.rescued != 1 {
		t.Errorf("phase %v, rescuing %v, rescued %d times", r.Phase, r.rescuing(), r.bus.rescued)
	}
}
