package follow

import (
	"math"
	"time"

	"edgert/servo"
)

// Gate is what every goal passes on its way to a motor: a finite number, inside the
// joint's range, within one tick's travel of the goal before, and near where the
// joint really is. It counts what it clips. Nothing behind it moves a joint further.
//
// A joint that stands outside its range may stay there and may come in; its range
// begins where its goal is until it is inside.
//
// Owner: tick thread.
type Gate struct {
	Min, Max []float32 // [dof] robot units
	Step     []float32 // [dof] farthest travel per tick
	Lead     []float32 // [dof] farthest a goal may be from the measured position; empty: anywhere
	Pace     float32   // share of Step that is allowed now; 0 counts as 1

	RangeClips, StepClips uint64
	ranged, stepped       uint32 // joints clipped since Clipped, one bit each
}

// leadTime is how far goals may run ahead of a joint, as time at its velocity limit. A
// servo moves by its position error; a blocked joint's goal goes no further.
const leadTime = 250 * time.Millisecond

// NewGate is the gate of an arm at a tick's period.
func NewGate(arm *servo.Arm, period time.Duration) (g Gate) {
	step, far := arm.Limits(period.Seconds())
	g.Step = step
	for j, step := range g.Step {
		low, high := arm.Range(j)
		g.Min, g.Max = append(g.Min, float32(low)), append(g.Max, float32(high))
		lead := max(step, step*float32(leadTime.Seconds()/period.Seconds()))
		g.Lead = append(g.Lead, min(lead, far[j]))
	}
	return g
}

// slack keeps float32 rounding from clipping a policy that moves at the limit.
const slack = 1e-3

// Pass returns the goal of joint j, at place, for this tick's action.
//
//rt:noalloc
func (g *Gate) Pass(j int, goal, action, place float32) float32 {
	wanted := action
	if !notFinite(action) && j < len(g.Lead) {
		// Still at the velocity limit, even if a damaged reply makes the place jump.
		action = min(place+g.Lead[j], max(place-g.Lead[j], action))
	}
	next, ranged, stepped := g.next(j, goal, action, 1)
	stepped = stepped || action != wanted && !notFinite(action)
	if ranged {
		g.RangeClips++
		g.ranged |= 1 << j
	}
	if stepped {
		g.StepClips++
		g.stepped |= 1 << j
	}
	return next
}

// Settle returns the goal of a joint, at place, whose motor holds another goal than the last
// one: where it is, which moves nothing. Pass goes on from there.
//
//rt:noalloc
func (g *Gate) Settle(goal, place float32) float32 {
	if notFinite(place) {
		return goal
	}
	return place
}

// Clipped returns the joints whose goals were clipped since it was called last, one bit
// each.
//
//rt:noalloc
func (g *Gate) Clipped() (ranged, stepped uint32) {
	ranged, stepped = g.ranged, g.stepped
	g.ranged, g.stepped = 0, 0
	return ranged, stepped
}

// Preview writes what Pass would make of rows [n*dof], each for ticks, from goal on, with
// joints that follow at once, without counting. It overwrites rows.
//
//rt:noalloc
func (g *Gate) Preview(goal, rows []float32, ticks int) {
	dof := len(goal)
	before := goal
	for ; len(rows) >= dof; rows = rows[dof:] {
		for j := range before {
			rows[j], _, _ = g.next(j, before[j], rows[j], float32(ticks))
		}
		before = rows[:dof]
	}
}

// next returns where joint j may go from its goal within so many ticks.
//
//rt:noalloc
func (g *Gate) next(j int, goal, action, ticks float32) (next float32, ranged, stepped bool) {
	if notFinite(action) {
		return goal, true, false
	}
	next = action
	if low := min(g.Min[j], goal); next < low {
		next, ranged = low, true
	} else if high := max(g.Max[j], goal); next > high {
		next, ranged = high, true
	}
	step := g.Step[j] * ticks
	if g.Pace > 0 {
		step *= g.Pace
	}
	if d := next - goal; d > step+slack {
		next, stepped = goal+step, true
	} else if d < -step-slack {
		next, stepped = goal-step, true
	}
	return next, ranged, stepped
}

//rt:noalloc
func notFinite(v float32) bool { return math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) }
