package stage

import "fmt"

// MaxMultiplier is the most ticks per action.
const MaxMultiplier = 64

// Interpolator runs the arm at N ticks for each action of the policy: the ticks
// between two actions get what lies on the line from one to the next. The first
// action, with nothing before it, lasts one tick.
//
// The last tick of an action is the action itself, to the bit.
//
// Source: lerobot utils/action_interpolator.py.
type Interpolator struct {
	n        int // ticks per action
	index    int // next of the buffered ticks
	count    int // buffered
	started  bool
	emitted  bool
	from, to []float32 // [dof]
	out      []float32 // [dof]
}

// NewInterpolator returns an interpolator for n ticks per action of dof joints; 1
// passes each action on as it is.
func NewInterpolator(n, dof int) (*Interpolator, error) {
	if n < 1 || n > MaxMultiplier {
		return nil, fmt.Errorf("stage: %d ticks per action, want 1 to %d", n, MaxMultiplier)
	}
	return &Interpolator{n: n, from: make([]float32, dof), to: make([]float32, dof), out: make([]float32, dof)}, nil
}

// Multiplier returns the ticks per action.
//
//rt:noalloc
func (p *Interpolator) Multiplier() int { return p.n }

// NeedsAction says that the next tick has nothing: Add the next action.
//
//rt:noalloc
func (p *Interpolator) NeedsAction() bool { return p.index >= p.count }

// Add takes the next action, [dof], and copies it.
//
//rt:noalloc
func (p *Interpolator) Add(action []float32) {
	p.index, p.count = 0, 1
	if p.started {
		p.count = p.n
	}
	copy(p.from, p.to)
	copy(p.to, action)
	p.started = true
}

// Next lends the row of this tick, [dof], nil when the action is used up.
//
//rt:noalloc
func (p *Interpolator) Next() []float32 {
	if p.NeedsAction() {
		p.emitted = false
		return nil
	}
	p.index++
	p.emitted = p.index == p.count
	if p.emitted {
		copy(p.out, p.to) // not from + 1 * (to - from), which may be one bit off
		return p.out
	}
	part := float32(float64(p.index) / float64(p.count))
	for j := range p.out {
		p.out[j] = p.from[j] + float32(part*float32(p.to[j]-p.from[j]))
	}
	return p.out
}

// Emitted says whether the last row was an action of the policy: what a recording
// keeps.
//
//rt:noalloc
func (p *Interpolator) Emitted() bool { return p.emitted }

// Reset forgets the last action: the next one is not interpolated towards.
//
//rt:noalloc
func (p *Interpolator) Reset() { p.index, p.count, p.started, p.emitted = 0, 0, false, false }
