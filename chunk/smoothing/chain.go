// Package smoothing contains the optional stages between the schedule and the last gate before the bus: a low-pass
// filter per joint (butterworth.go), LeRobot's action interpolator (interpolator.go), limits of velocity and
// acceleration (rate.go). A Chain runs them in this order. A stage changes a row in place and allocates nothing after
// its construction. It can preview its result for the rows that run next, so that the policy can be conditioned on the
// arm's real motion.
package smoothing

import (
	"cmp"
	"fmt"
)

// Config selects the stages: there is no filter if Cutoff is 0, and there are no limits if both Velocity and Accel are
// 0.
type Config struct {
	Cutoff     float64 // Hz of the low-pass filter, where the amplitude has fallen to 0.71
	Order      int     // the filter's order, 1 to 4; 0: 2
	Gain       float64 // share of each step towards the filtered value, above 0 and below 2; 0: 1
	Multiplier int     // ticks per action; 0: 1
	Velocity   float64 // units per second
	Accel      float64 // units per second squared
}

// Chain runs all stages in order: the filter gets each action of the policy, the interpolator turns it into ticks, and
// the limits get each tick. Without any stage an action passes unchanged.
type Chain struct {
	filter *butterworth // nil: no filter
	ticks  *interpolator
	limit  *rateLimit // nil: no limit
	row    []float32  // scratch
}

// NewChain returns the stages that c selects, for rows of dof joints and fps actions per second.
func NewChain(c Config, fps float64, dof int) (*Chain, error) {
	multiplier := cmp.Or(c.Multiplier, 1)
	l := &Chain{row: make([]float32, dof)}
	var err error
	if l.ticks, err = newInterpolator(multiplier, dof); err != nil {
		return nil, err
	}
	switch {
	case c.Cutoff != 0:
		if l.filter, err = newButterworth(c, fps, dof); err != nil {
			return nil, err
		}
	case c.Order != 0 || c.Gain != 0:
		return nil, fmt.Errorf("smoothing: a filter of order %d and gain %v without a cutoff", c.Order, c.Gain)
	}
	if c.Velocity != 0 || c.Accel != 0 {
		if l.limit, err = newRateLimit(c.Velocity, c.Accel, fps*float64(multiplier), dof); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Multiplier returns the ticks per action.
//
//rt:noalloc
func (l *Chain) Multiplier() int { return l.ticks.n }

// NeedsAction reports whether this tick has no row until Add adds an action.
//
//rt:noalloc
func (l *Chain) NeedsAction() bool { return l.ticks.needsAction() }

// Add copies the next action, [dof].
//
//rt:noalloc
func (l *Chain) Add(action []float32) {
	copy(l.row, action)
	if l.filter != nil {
		l.filter.apply(l.row)
	}
	l.ticks.add(l.row)
}

// Next returns the row of this tick, [dof], valid until the next call; nil: there is none, and the arm is held.
//
//rt:noalloc
func (l *Chain) Next() []float32 {
	row := l.ticks.next()
	switch {
	case l.limit == nil:
	case row == nil:
		l.limit.rest()
	default:
		l.limit.apply(row)
	}
	return row
}

// Preview replaces rows of actions, [n*dof], by the rows that the filter and the limits would return if the actions
// were added next. It changes no state.
//
//rt:noalloc
func (l *Chain) Preview(rows []float32) {
	if l.filter != nil {
		l.filter.preview(rows)
	}
	if l.limit != nil {
		l.limit.preview(rows, l.ticks.n)
	}
}

// Rest marks a tick in which the arm was held.
//
//rt:noalloc
func (l *Chain) Rest() {
	if l.limit != nil {
		l.limit.rest()
	}
}

// Reset clears the stages' state. The limits begin at the given row, [dof], where the arm is.
//
//rt:noalloc
func (l *Chain) Reset(row []float32) {
	if l.filter != nil {
		l.filter.reset()
	}
	l.ticks.reset()
	if l.limit != nil {
		l.limit.reset(row)
	}
}
