package follow

import (
	"math"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/referee"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// driven is one joint and the three wheels of a base. Each wheel turns at the goal of one axis, unless the test fixes
// the wheel's velocity.
type driven struct {
	motors
	goal   [4]float32
	writes int
	joints robot.Joints // joints of the last write
	fixed  map[int]int  // counts per second of wheels that do not follow
	watch  func(goal [4]float32)
}

const rawPer = 1000 // counts per second of one unit of an axis

func (d *driven) Read(dst []float32, _ rt.Instant) robot.Joints {
	d.Positions(dst)
	return d.stale
}
func (d *driven) Positions(dst []float32) {
	copy(dst, d.goal[:])
	for j := 1; j < 4; j++ {
		_, present := d.Wheel(j)
		dst[j] = float32(present) / rawPer
	}
}
func (d *driven) Goals(dst []float32) { copy(dst, []float32{d.goal[0], 0, 0, 0}) }
func (d *driven) Write(goal []float32, joints robot.Joints) {
	d.writes, d.joints = d.writes+1, joints
	for j, v := range goal {
		if joints.Has(j) {
			d.goal[j] = v
		}
	}
	if d.watch != nil {
		d.watch(d.goal)
	}
}
func (d *driven) Wheel(j int) (goal, present int) {
	goal = int(d.goal[j] * rawPer)
	if at, ok := d.fixed[j]; ok {
		return goal, at
	}
	return goal, goal
}
func (d *driven) still() bool { return d.goal[1] == 0 && d.goal[2] == 0 && d.goal[3] == 0 }

type baseRig struct {
	ticked
	bus *driven
}

const onBase robot.Joints = 0b1110

func newBaseRig(t *testing.T, change func(*Config)) *baseRig {
	t.Helper()
	cfg := rigConfig(Gate{
		Min:    []float32{-10, -1, -1, -1},
		Max:    []float32{90, 1, 1, 1},
		Step:   []float32{2, 0.1, 0.1, 0.1},
		Wheels: onBase,
	}, change)
	bus := &driven{fixed: map[int]int{}}
	r := &baseRig{ticked{New(bus, cfg, 4), rt.Instant(time.Second)}, bus}
	r.StartArming()
	r.ticks(t, 20, 5, 0, 0, 0)
	if r.Phase != Armed || r.slow.active {
		t.Fatalf("phase %v, slow %v", r.Phase, r.slow.active)
	}
	return r
}

// moving returns a rig whose base drives.
func moving(t *testing.T, change func(*Config)) *baseRig {
	t.Helper()
	r := newBaseRig(t, change)
	r.ticks(t, 20, 5, 0.8, -0.5, 0.3)
	if r.bus.goal != [4]float32{5, 0.8, -0.5, 0.3} {
		t.Fatalf("goals %v", r.bus.goal)
	}
	return r
}

// Goal: whenever a joint of the arm holds, the base gets the goal 0 within two ticks.
func TestABaseStopsWhereAJointHolds(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(r *baseRig)
	}{
		{"no action", func(r *baseRig) { r.ticks(t, 2) }},
		{"the run ends and parks", func(r *baseRig) { r.finish(r.now); r.ticks(t, 1) }},
		{"the run ends without parking", func(r *baseRig) { r.cfg.Exit = ExitHold; r.finish(r.now) }},
		{"one wheel is silent", func(r *baseRig) { r.bus.stale = 1 << 2; r.ticks(t, 2, 5, 0.8, -0.5, 0.3) }},
		{"all motors are silent", func(r *baseRig) { r.bus.stale = 15; r.ticks(t, 2, 5, 0.8, -0.5, 0.3) }},
		{"a wheel is overloaded", func(r *baseRig) {
			r.bus.says = servo.Reactions{Overload: 1 << 1}
			r.ticks(t, 2, 5, 0.8, -0.5, 0.3)
		}},
		{"a wheel is hot", func(r *baseRig) {
			r.bus.says = servo.Reactions{Hold: 1 << 3}
			r.ticks(t, 2, 5, 0.8, -0.5, 0.3)
		}},
		{"keep the goals", func(r *baseRig) {
			action := []float32{5, 1, 1, 1}
			One(r.Follower).KeepGoals(action, onBase)
			r.ticks(t, 10, action...)
		}},
		{"back to the arming pose", func(r *baseRig) { r.ticks(t, 1); r.returnStep() }},
		{"a rescue", func(r *baseRig) { r.ticks(t, 1); rttest.Do(t, r.rescueStep(r.now)) }},
	} {
		r := moving(t, nil)
		if tt.do(r); !r.bus.still() || r.bus.joints&onBase == 0 {
			t.Errorf("%s: goals %v, the last for joints %b, want 0 for the wheels", tt.name, r.bus.goal, r.bus.joints)
		}
	}
}

// Goal: a wheel may miss the goal 0, so every tick sends that goal again. One lost reply does not stop the base.
func TestAStoppedBaseIsToldAgain(t *testing.T) {
	r := moving(t, nil)
	r.ticks(t, 2)
	n := r.bus.writes
	r.ticks(t, 5)
	if got := r.bus.writes - n; got != 5 || r.bus.joints != onBase {
		t.Errorf("%d writes in 5 ticks, the last for joints %b", got, r.bus.joints)
	}
	r = moving(t, nil)
	r.bus.stale = 1 << 2
	r.ticks(t, 1, 5, 0.8, -0.5, 0.3)
	r.bus.stale = 0
	r.ticks(t, 1, 5, 0.8, -0.5, 0.3)
	if r.bus.still() || r.bus.goal[1] != 0.8 {
		t.Errorf("goals %v after one lost reply", r.bus.goal)
	}
}

// Goal: the gate limits a base's velocity and its change, and slow driving limits the velocity. The base does not wait
// for the arm to catch up.
func TestTheGateOfABase(t *testing.T) {
	r := newBaseRig(t, nil)
	r.ticks(t, 1, 5, 1, 0, 0)
	if got := r.bus.goal[1]; math.Abs(float64(got-0.1)) > 1e-6 {
		t.Errorf("after one tick %v, want the step 0.1", got)
	}
	r.ticks(t, 20, 5, 3, -3, float32(math.NaN()))
	rttest.Want(t, r.bus.goal, [4]float32{5, 1, -1, 0}, "goals (the limits, and no change by a NaN)")
	r.startSlowly(r.now)
	r.slow.until = r.now.Add(time.Hour)
	r.ticks(t, 20, 5, 3, -0.2, 0)
	rttest.Want(t, r.bus.goal, [4]float32{5, 0.5, -0.2, 0}, "goals (half of the speed)")
	if r.Gate().RangeClips == 0 || r.Gate().StepClips == 0 {
		t.Errorf("%d and %d clips", r.Gate().RangeClips, r.Gate().StepClips)
	}
}

// Goal: a LeKiwi's wheels break no rule of the referee while the policy's velocities jump, even at their largest
// velocity.
func TestABaseBeforeItsReferee(t *testing.T) {
	kiwi := rttest.Must(robot.ByName("lekiwi"))(t).Base
	wheels, most := kiwi.Kinematics(4096), [robot.Axes]float32{}
	r := newBaseRig(t, func(c *Config) {
		for j := range most {
			most[j] = float32(kiwi.Speed[j])
			c.Gate.Min[j+1], c.Gate.Max[j+1] = -most[j], most[j]
			c.Gate.Step[j+1] = float32(kiwi.Acceleration[j] * testPeriod.Seconds())
		}
		c.Gate.Base = &wheels
	})
	judge := referee.Config{Period: testPeriod}
	for id := range uint8(robot.Axes) {
		judge.Joints = append(judge.Joints, referee.Joint{
			ID:       id + 7,
			Name:     "wheel",
			Velocity: float64(kiwi.MaxRaw),
			// acceleration of the left wheel: ((cos 30 + sin 30) * 1 + 0.125 * 5.236) / 0.05 rad/s2
			Acceleration: 26342,
			Wheel:        true,
		})
	}
	judged := referee.New(judge)
	judged.FirstChunk(r.now)
	was := [robot.Axes]int{}
	r.bus.watch = func(goal [4]float32) {
		raw, _ := wheels.Wheels([robot.Axes]float64{float64(goal[1]), float64(goal[2]), float64(goal[3])})
		for i := range raw {
			e := servosim.Event{At: r.now, ID: uint8(i + 7), Addr: 46, Data: []byte{0, 0}}
			e.Before = servosim.Snapshot{Torque: true, Answers: true, EncoderOK: true, Boots: 1, Spin: was[i]}
			e.After = e.Before
			e.After.Spin = raw[i]
			judged.Watch(&e)
		}
		was = raw
	}
	for way := range 64 {
		action := []float32{5, 0, 0, 0}
		for j := range most {
			// each axis drives backward, rests, drives forward, or is too fast
			action[j+1] = most[j] * float32(way>>(2*j)%4-1)
		}
		r.ticks(t, 7, action...)
	}
	if v := judged.Verdict(); len(v.Kept) > 0 || v.Goals < 500 {
		t.Errorf("%d goals, %v", v.Goals, v.Kept)
	}
}

// Goal: if a wheel holds another goal than ours, the base begins at 0.
func TestAWheelWithAnotherGoal(t *testing.T) {
	r := moving(t, nil)
	r.bus.strayed = 1 << 2
	if r.ticks(t, 1, 5, 0.8, -0.5, 0.3); r.bus.goal[1] > 0.11 || r.bus.goal[2] < -0.11 || r.bus.goal[3] > 0.11 {
		t.Errorf("goals %v, want one step from 0", r.bus.goal)
	}
}

// Goal: a base whose adapter was unplugged, or whose wheel has restarted, begins at 0.
func TestABaseThatWasAway(t *testing.T) {
	r := moving(t, nil)
	r.bus.back = hotplug.Unplugged
	r.bus.goal[1] = 0
	r.bus.goal[2] = 0
	r.bus.goal[3] = 0 // OpenArm sets this goal to 0, too
	r.ticks(t, 1, 5, 0.8, 0, 0)
	if r.Phase != Unarmed || r.Goal[1] != 0 {
		t.Errorf("phase %v, goals %v", r.Phase, r.Goal)
	}
	n := r.bus.writes
	if r.ticks(t, 3); r.bus.writes != n {
		t.Error("a limp wheel got a goal, which switches its torque on")
	}
}

// Goal: a wheel that does not turn stops the base until the action leads away from the obstacle. A wheel that turns at
// another velocity than its goal is reported.
func TestAWheelThatDoesNotFollow(t *testing.T) {
	events := event.NewQueue(64)
	told := func() (codes []event.Code, joints []int64) {
		events.Drain(func(e event.Event) {
			if e.Code == event.JointStalled || e.Code == event.WheelSlips {
				codes, joints = append(codes, e.Code), append(joints, e.A)
			}
		})
		return codes, joints
	}
	r := moving(t, func(c *Config) { c.Events = events })
	r.bus.fixed[1] = 0
	r.ticks(t, 14, 5, 0.8, 0, 0)
	if codes, joints := told(); len(codes) != 1 || codes[0] != event.JointStalled || joints[0] != 1<<1 ||
		!r.bus.still() {
		t.Fatalf("events %v of %v, goals %v", codes, joints, r.bus.goal)
	}
	if r.ticks(t, 30, 5, 0.8, 0, 0); !r.bus.still() {
		t.Errorf("goals %v against the obstacle", r.bus.goal)
	}
	delete(r.bus.fixed, 1)
	if r.ticks(t, 12, 5, -0.8, 0, 0); r.bus.goal[1] > -0.7 {
		t.Errorf("goals %v away from the obstacle", r.bus.goal)
	}
	told()
	r.bus.fixed[3] = 700
	r.ticks(t, 30, 5, -0.8, 0, 0)
	if codes, joints := told(); len(codes) != 1 || codes[0] != event.WheelSlips || joints[0] != 1<<3 || r.bus.still() {
		t.Errorf("events %v of %v, goals %v", codes, joints, r.bus.goal)
	}
	if stalls, slips := r.base.stallCount, r.base.slipCount; stalls != 1 || slips != 1 {
		t.Errorf("%d stalls, %d slips", stalls, slips)
	}
}

func TestABaseAllocatesNothing(t *testing.T) {
	r := moving(t, nil)
	tick := rt.Tick{Deadline: r.now, Woke: r.now}
	action := []float32{5, 0.5, 0, 0}
	rttest.NoAllocs(t, "%v allocations", 50, func() {
		r.ReadBy(tick, r.now.Add(testPeriod))
		r.DriveAt(tick.Woke, action, 1)
		r.ReadBy(tick, r.now.Add(testPeriod))
		r.ReadBy(tick, r.now.Add(testPeriod))
	})
}
