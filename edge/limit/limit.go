// Package limit is the last gate before the bus: whatever a policy or a leader
// arm wants, a goal stays inside the robot's range, within one tick's travel of
// the goal before, and near where the joint really is.
package limit

import "math"

// Limiter keeps goals inside what the robot may do, and counts what it clips.
//
// Owner: tick thread.
type Limiter struct {
	Min, Max []float32 // [dof] robot units
	Step     []float32 // [dof] farthest travel per tick
	Far      []float32 // [dof] farthest a goal may be from the measured position; empty: anywhere
	Pace     float32   // share of Step that is allowed now; 0 counts as 1

	RangeClips, StepClips uint64
}

// slack is a hair: a policy that moves at exactly the limit is not clipped by
// float32 rounding.
const slack = 1e-3

// Apply moves goal towards action in place. present is where the joints are. A
// joint whose bit is set in frozen, and a value that is not finite, keeps its
// goal.
//
//rt:noalloc
func (l *Limiter) Apply(goal, action, present []float32, frozen uint32) {
	for j := range goal {
		if frozen&(1<<j) != 0 {
			continue
		}
		next, ranged, stepped := l.next(j, goal[j], action[j], 1)
		if j < len(l.Far) {
			if near := min(present[j]+l.Far[j], max(present[j]-l.Far[j], next)); near != next {
				next, stepped = near, true
			}
		}
		goal[j] = next
		if ranged {
			l.RangeClips++
		}
		if stepped {
			l.StepClips++
		}
	}
}

// Preview writes what Apply would make of rows of actions executed from goal on,
// each for so many ticks, without counting, as if the joints followed at once: a
// policy is conditioned on what the arm will do. rows is [n*dof] and is
// overwritten.
//
//rt:noalloc
func (l *Limiter) Preview(goal, rows []float32, ticks int) {
	dof := len(goal)
	before := goal
	for ; len(rows) >= dof; rows = rows[dof:] {
		for j := range before {
			rows[j], _, _ = l.next(j, before[j], rows[j], float32(ticks))
		}
		before = rows[:dof]
	}
}

// next returns where joint j may go from its goal within so many ticks when action
// is wanted.
//
//rt:noalloc
func (l *Limiter) next(j int, goal, action, ticks float32) (next float32, ranged, stepped bool) {
	if math.IsNaN(float64(action)) || math.IsInf(float64(action), 0) {
		return goal, true, false
	}
	next = action
	if next < l.Min[j] {
		next, ranged = l.Min[j], true
	} else if next > l.Max[j] {
		next, ranged = l.Max[j], true
	}
	step := l.Step[j] * ticks
	if l.Pace > 0 {
		step *= l.Pace
	}
	if d := next - goal; d > step+slack {
		next, stepped = goal+step, true
	} else if d < -step-slack {
		next, stepped = goal-step, true
	}
	return next, ranged, stepped
}
