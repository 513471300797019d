package follow

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Goal: a joint that is overloaded at its goal gives way in the direction of its motor's load.
func TestOverloadAtItsGoalFollowsItsLoad(t *testing.T) {
	for _, tt := range []struct {
		name   string
		pushes float32
		wants  [2]float32 // actions of the second joint, which is at 50 and does not move
		goals  [2]float32
	}{
		{"it pushes up", 1, [2]float32{90, 10}, [2]float32{50, 50 - reliefPast}},
		{"it pushes down", -1, [2]float32{90, 10}, [2]float32{50 + reliefPast, 50}},
		{"it does not push", 0, [2]float32{90, 10}, [2]float32{50 + reliefPast, 50 - reliefPast}},
	} {
		for i, want := range tt.wants {
			r := armed(t, nil)
			r.ticks(t, 5, 5, 50)
			r.bus.says.Overload, r.bus.follows = 2, false
			r.ticks(t, 20, 5, want)
			rttest.Want(t, r.Goal[1], 50, "%s: goal before its load was read (to stay at 50)", tt.name)
			r.bus.loadRead, r.bus.pushes = true, tt.pushes
			r.ticks(t, 20, 5, want)
			if r.Goal[1] != tt.goals[i] {
				t.Errorf("%s: goal %v for an action of %v, want %v", tt.name, r.Goal[1], want, tt.goals[i])
			}
		}
	}
}

// Goal: despite an overload error, a joint without load follows goals near its place; when it meets an obstacle, it
// does not push further.
func TestAnOverloadWithoutALoadMoves(t *testing.T) {
	r := armed(t, nil)
	r.ticks(t, 5, 5, 50)
	r.bus.says.Overload, r.bus.loadRead = 2, true
	r.ticks(t, 40, 5, 80)
	rttest.Want(t, r.Goal[1], 80, "goal")
	r.bus.follows, r.bus.pushes = false, 1
	r.ticks(t, 20, 5, 100)
	if r.Goal[1] > 80+reliefPast {
		t.Errorf("goal %v of a joint that is stopped at 80", r.Goal[1])
	}
}

// Goal: an operator takes the load off a joint that pushes, and off no other joint.
func TestUnload(t *testing.T) {
	ask := func(r *rig, joints robot.Joints) robot.Joints {
		r.unloading.answer.Store(-1)
		r.unloading.asked.Store(uint32(joints))
		r.tick(t)
		return robot.Joints(r.unloading.answer.Load())
	}
	r := armed(t, nil)
	r.bus.follows = false
	r.ticks(t, 8, 5, 20) // the gripper closes on an object at 50
	r.bus.says.Overload = 2
	r.ticks(t, 5, 5, 20)
	pressed := r.Goal[1]
	if got := ask(r, 1); got != 0 || r.bus.renewed != 0 || r.Goal[1] != pressed {
		t.Errorf("unloaded %b, torque of %b renewed, goal %v: it was the first joint that was meant", got,
			r.bus.renewed, r.Goal[1])
	}
	if got := ask(r, ^robot.Joints(0)); got != 2 || r.bus.renewed != 2 || r.last().goal[1] != 50 ||
		r.last().joints != 2 {
		t.Errorf("unloaded %b, torque of %b renewed, sent %+v; want the second at its place, 50", got, r.bus.renewed,
			r.last())
	}
	r.bus.says.Overload = 0
	r.ticks(t, 30, 5, 80)
	if r.Goal[1] <= 52 {
		t.Errorf("goal %v: it does not go on", r.Goal[1])
	}
	r.bus.says.Overload = 2
	r.tick(t, 5, 80)
	r.bus.stale = 3
	r.ticks(t, 40, 5, 80)
	rttest.Want(t, ask(r, 3), 0, "unloaded of an arm that is silent")
}

// Goal: the error of a refused request names the joint, and a request that the tick does not answer is an error.
func TestUnloadIsRefused(t *testing.T) {
	arm := rttest.Must(robot.ByName("so101"))(t)
	r := armed(t, func(c *Config) { c.Clock = rttest.NewClock(rt.Instant(time.Second)) })
	for name, says := range map[string]string{"elbow": "no joint \"elbow\": a so101 has shoulder_pan",
		"gripper": "does not answer", "": "does not answer"} {
		rttest.Fails(t, rttest.Err(One(r.Follower).Unload(arm, name)), says)
	}
}
