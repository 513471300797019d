package smoothing

import "fmt"

// maxMultiplier is the largest number of ticks per action.
const maxMultiplier = 64

// interpolator makes n ticks of each action, on the line from the previous action. The last of these ticks is exactly
// the action. The first action lasts one tick.
//
// Source: lerobot utils/action_interpolator.py.
type interpolator struct {
	n        int // ticks per action
	index    int // next of the buffered ticks
	count    int // number of buffered ticks
	started  bool
	from, to []float32 // [dof]
	out      []float32 // [dof]
}

// newInterpolator returns an interpolator for n ticks per action of dof joints.
func newInterpolator(n, dof int) (*interpolator, error) {
	if n < 1 || n > maxMultiplier {
		return nil, fmt.Errorf("smoothing: %d ticks per action, want 1 to %d", n, maxMultiplier)
	}
	return &interpolator{
		n:    n,
		from: make([]float32, dof),
		to:   make([]float32, dof),
		out:  make([]float32, dof),
	}, nil
}

//rt:noalloc
func (p *interpolator) needsAction() bool { return p.index >= p.count }

//rt:noalloc
func (p *interpolator) add(action []float32) {
	p.index, p.count = 0, 1
	if p.started {
		p.count = p.n
	}
	copy(p.from, p.to)
	copy(p.to, action)
	p.started = true
}

//rt:noalloc
func (p *interpolator) next() []float32 {
	if p.needsAction() {
		return nil
	}
	p.index++
	if p.index == p.count {
		copy(p.out, p.to) // the result of the formula below may differ from p.to in the last bit
		return p.out
	}
	part := float32(float64(p.index) / float64(p.count))
	for j := range p.out {
		p.out[j] = p.from[j] + float32(part*float32(p.to[j]-p.from[j]))
	}
	return p.out
}

// reset drops the last action, so that the next action lasts one tick.
//
//rt:noalloc
func (p *interpolator) reset() { p.index, p.count, p.started = 0, 0, false }
