package edge

import "math"

// limiter is the last gate before the bus: it keeps each goal inside the
// robot's range and within one tick's travel of the goal before.
//
// Owner: tick thread.
type limiter struct {
	min, max []float32 // [dof] robot units, constant after Open
	step     []float32 // [dof] farthest travel per tick, constant after Open

	rangeClips, stepClips uint64
}

// apply moves goal towards action in place, counting what it clips. A joint
// whose bit is set in frozen, and a value that is not finite, keeps its goal.
//
//rt:noalloc
func (l *limiter) apply(goal, action []float32, frozen uint32) {
	for j := range goal {
		if frozen&(1<<j) != 0 {
			continue
		}
		next, ranged, stepped := l.next(j, goal[j], action[j], l.step[j])
		goal[j] = next
		if ranged {
			l.rangeClips++
		}
		if stepped {
			l.stepClips++
		}
	}
}

// preview writes what apply would make of rows of actions executed from goal
// on, without counting: the policy is conditioned on what the arm will do.
// rows is [n*dof] and is overwritten.
//
//rt:noalloc
func (l *limiter) preview(goal, rows []float32) {
	dof := len(goal)
	before := goal
	for ; len(rows) >= dof; rows = rows[dof:] {
		for j := range before {
			rows[j], _, _ = l.next(j, before[j], rows[j], l.step[j])
		}
		before = rows[:dof]
	}
}

// next returns where joint j may go from its goal when action is wanted.
//
//rt:noalloc
func (l *limiter) next(j int, goal, action, step float32) (next float32, ranged, stepped bool) {
	if math.IsNaN(float64(action)) || math.IsInf(float64(action), 0) {
		return goal, true, false
	}
	next = action
	if next < l.min[j] {
		next, ranged = l.min[j], true
	} else if next > l.max[j] {
		next, ranged = l.max[j], true
	}
	// A hair of slack: a policy that moves at exactly the limit is not clipped
	// by float32 rounding.
	const slack = 1e-3
	if d := next - goal; d > step+slack {
		next, stepped = goal+step, true
	} else if d < -step-slack {
		next, stepped = goal-step, true
	}
	return next, ranged, stepped
}
