package stage

import "fmt"

// Config says which stages there are. The zero value of a field means none.
type Config struct {
	Cutoff     float64 // Hz of the low-pass filter
	Order      int     // of the filter
	Gain       float64 // of the filter
	Multiplier int     // ticks per action; 0: 1
	Velocity   float64 // units per second
	Accel      float64 // units per second squared
}

// Chain is every stage in order: the filter sees each action of the policy, the
// interpolator makes ticks of it, the limits see each tick. Without any stage an
// action passes as it is.
//
// Owner: the tick thread.
type Chain struct {
	filter *Butterworth // nil: none
	ticks  *Interpolator
	limit  *RateLimit // nil: none
	row    []float32  // scratch
}

// NewChain returns the stages that c names for rows of dof joints, fps actions per
// second.
func NewChain(c Config, fps float64, dof int) (*Chain, error) {
	if c.Multiplier == 0 {
		c.Multiplier = 1
	}
	l := &Chain{row: make([]float32, dof)}
	var err error
	if l.ticks, err = NewInterpolator(c.Multiplier, dof); err != nil {
		return nil, err
	}
	switch {
	case c.Cutoff != 0:
		if l.filter, err = NewButterworth(ButterworthConfig{FPS: fps, Cutoff: c.Cutoff, Order: c.Order, Gain: c.Gain}, dof); err != nil {
			return nil, err
		}
	case c.Order != 0 || c.Gain != 0:
		return nil, fmt.Errorf("stage: a filter of order %d and gain %v without a cutoff", c.Order, c.Gain)
	}
	if c.Velocity != 0 || c.Accel != 0 {
		if l.limit, err = NewRateLimit(c.Velocity, c.Accel, fps*float64(c.Multiplier), dof); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Multiplier returns the ticks per action.
//
//rt:noalloc
func (l *Chain) Multiplier() int { return l.ticks.Multiplier() }

// NeedsAction says that this tick has nothing to run until Add brings an action.
//
//rt:noalloc
func (l *Chain) NeedsAction() bool { return l.ticks.NeedsAction() }

// Add takes the next action, [dof], and copies it.
//
//rt:noalloc
func (l *Chain) Add(action []float32) {
	copy(l.row, action)
	if l.filter != nil {
		l.filter.Apply(l.row)
	}
	l.ticks.Add(l.row)
}

// Next lends the row of this tick, [dof], nil when there is none: the arm is held,
// and the stages know.
//
//rt:noalloc
func (l *Chain) Next() []float32 {
	row := l.ticks.Next()
	switch {
	case l.limit == nil:
	case row == nil:
		l.limit.Rest()
	default:
		l.limit.Apply(row)
	}
	return row
}

// Preview does to rows, [n*dof], what Add and Next would make of them if they came
// next.
//
//rt:noalloc
func (l *Chain) Preview(rows []float32) {
	if l.filter != nil {
		l.filter.Preview(rows)
	}
	if l.limit != nil {
		l.limit.Preview(rows, l.ticks.Multiplier())
	}
}

// Rest says that the arm was held for this tick, whatever the stages would have
// made of it.
//
//rt:noalloc
func (l *Chain) Rest() {
	if l.limit != nil {
		l.limit.Rest()
	}
}

// Reset forgets the past: the arm stands at row, [dof].
//
//rt:noalloc
func (l *Chain) Reset(row []float32) {
	if l.filter != nil {
		l.filter.Reset()
	}
	l.ticks.Reset()
	if l.limit != nil {
		l.limit.Reset(row)
	}
}
