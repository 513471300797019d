package follow

import (
	"cmp"
	"math"
	"time"

	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Gate limits every goal on its way to a motor: the goal is a finite number, inside the joint's range, within one
// tick's travel of the previous goal, and near the joint's measured place. It counts the goals that it clips. No code
// after the gate moves a joint further.
//
// A joint outside its range may stay there and may come in: until its goal is inside, the gate extends its range to the
// last goal.
//
// Owner: tick thread.
type Gate struct {
	Min, Max []float32 // [dof] robot units
	Step     []float32 // [dof] farthest travel per tick
	Lead     []float32 // [dof] farthest distance of a goal from the measured position; empty: no limit
	Pace     float32   // permitted share of Step, and of a base's velocity; 0 means 1
	// wheels of a base: their Min and Max are velocities, and their Step is a change of velocity
	Wheels robot.Joints
	Base   *robot.Kinematics // limits the velocities of wheels; nil: no limit

	RangeClips, StepClips uint64
	ranged, stepped       robot.Joints // joints clipped since the last call of clipped
}

// leadTime bounds the distance of a goal from its joint: a joint at the velocity limit moves by this distance in
// leadTime. A servo moves because its goal is ahead of its position, but the goal of a blocked joint must not go
// further ahead.
const leadTime = 250 * time.Millisecond

// NewGate returns the gate of an arm at this period of ticks.
func NewGate(arm *servo.Arm, period time.Duration) (g Gate) {
	step, far := arm.Limits(period.Seconds())
	g.Step, g.Wheels = step, arm.Wheels()
	g.Base = arm.Base()
	for j, step := range g.Step {
		low, high := arm.Range(j)
		g.Min, g.Max = append(g.Min, float32(low)), append(g.Max, float32(high))
		lead := max(step, step*float32(leadTime.Seconds()/period.Seconds()))
		if g.Wheels.Has(j) {
			lead = float32(math.Inf(1))
		}
		g.Lead = append(g.Lead, min(lead, far[j]))
	}
	return g
}

// join adds the limits of another part's joints.
func (g *Gate) join(o *Gate) {
	g.Wheels |= o.Wheels << len(g.Min)
	g.Base = cmp.Or(g.Base, o.Base)
	g.Min, g.Max = append(g.Min, o.Min...), append(g.Max, o.Max...)
	g.Step, g.Lead = append(g.Step, o.Step...), append(g.Lead, o.Lead...)
}

// slack keeps float32 rounding from clipping a policy that moves at the limit. It is a share of a step,
// since a base's step is only a few hundredths of m/s.
const slack = 1e-3

// Pass returns this tick's goal of joint j: from its last goal towards the action, near its measured place.
//
//rt:noalloc
func (g *Gate) Pass(j int, goal, action, place float32) float32 {
	wanted := action
	if !notFinite(action) && j < len(g.Lead) {
		// g.next limits the velocity afterwards, even if a damaged reply makes the place jump.
		action = min(place+g.Lead[j], max(place-g.Lead[j], action))
	}
	next, ranged, stepped := g.next(j, goal, action, 1)
	g.count(j, ranged, stepped || action != wanted && !notFinite(action))
	return next
}

//rt:noalloc
func (g *Gate) count(j int, ranged, stepped bool) {
	if ranged {
		g.RangeClips++
		g.ranged |= 1 << j
	}
	if stepped {
		g.StepClips++
		g.stepped |= 1 << j
	}
}

// PassBase replaces the goals of a base by the goals for this tick's action. A base has one goal for each wheel.
//
//rt:noalloc
func (g *Gate) PassBase(goal, action []float32) {
	next, ranged, stepped := g.spin(goal, action, 1)
	for i := range goal {
		g.count(g.Wheels.First()+i, ranged.Has(i), stepped.Has(i))
	}
	copy(goal, next[:])
}

// spin returns the goals of a base after this number of ticks, and its clipped axes. The goals change on a straight
// line from the last goals to velocities that all wheels can reach. So the wheels need no further limit on the way.
// Such a limit would change an axis by more than its step.
//
//rt:noalloc
func (g *Gate) spin(goal, action []float32, ticks float32) (next [robot.Axes]float32, ranged, stepped robot.Joints) {
	first := g.Wheels.First()
	for i := range goal {
		var clipped bool
		if next[i], clipped, _ = g.next(first+i, goal[i], action[i], float32(math.Inf(1))); clipped {
			ranged |= 1 << i
		}
	}
	if g.Base != nil {
		fits := g.Base.Share([robot.Axes]float64{float64(next[0]), float64(next[1]), float64(next[2])})
		for i := range next {
			next[i] *= float32(fits)
		}
	}
	share := float32(1)
	for i := range goal {
		v := next[i]
		if d, step := max(v-goal[i], goal[i]-v), g.Step[first+i]*ticks; d > step*(1+slack) {
			stepped |= 1 << i
			share = min(share, step/d)
		}
	}
	for i := range goal {
		next[i] -= (1 - share) * (next[i] - goal[i])
	}
	return next, ranged, stepped
}

// settle returns the new goal of a joint whose last goal is not valid any more: its place, so that the joint does not
// move. It returns the last goal if the place is not finite.
//
//rt:noalloc
func (g *Gate) settle(goal, place float32) float32 {
	if notFinite(place) {
		return goal
	}
	return place
}

// clipped returns the joints whose goals were clipped since the last call.
//
//rt:noalloc
func (g *Gate) clipped() (ranged, stepped robot.Joints) {
	ranged, stepped = g.ranged, g.stepped
	g.ranged, g.stepped = 0, 0
	return ranged, stepped
}

// preview overwrites rows, [n*dof], with the goals that Pass would return, starting at goal. Each row lasts this number
// of ticks, and preview assumes that joints follow at once. It does not count clips.
//
//rt:noalloc
func (g *Gate) preview(goal, rows []float32, ticks int) {
	dof := len(goal)
	before := goal
	for ; len(rows) >= dof; rows = rows[dof:] {
		for j := range before {
			if !g.Wheels.Has(j) {
				rows[j], _, _ = g.next(j, before[j], rows[j], float32(ticks))
			}
		}
		if first := g.Wheels.First(); g.Wheels != 0 {
			base, _, _ := g.spin(before[first:], rows[first:dof], float32(ticks))
			copy(rows[first:], base[:])
		}
		before = rows[:dof]
	}
}

// next returns the goal of joint j after this number of ticks.
//
//rt:noalloc
func (g *Gate) next(j int, goal, action, ticks float32) (next float32, ranged, stepped bool) {
	if notFinite(action) {
		return goal, true, false
	}
	pace, step := g.Pace, g.Step[j]*ticks
	if pace <= 0 {
		pace = 1
	}
	low, high := min(g.Min[j], goal), max(g.Max[j], goal)
	if g.Wheels.Has(j) {
		low, high = g.Min[j]*pace, g.Max[j]*pace
	} else {
		step *= pace
	}
	next = action
	if next < low {
		next, ranged = low, true
	} else if next > high {
		next, ranged = high, true
	}
	if d := next - goal; d > step*(1+slack) {
		next, stepped = goal+step, true
	} else if d < -step*(1+slack) {
		next, stepped = goal-step, true
	}
	return next, ranged, stepped
}

//rt:noalloc
func notFinite(v float32) bool { return math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) }
