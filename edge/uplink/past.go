package uplink

import (
	"math"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
)

// newestStep is above the key and the instant of every step. As an argument of past.take it selects all steps, and in
// film.take the newest picture.
const newestStep = math.MaxInt64

// past holds the last action steps with their pictures. Each picture is copied once, however many
// steps share it.
//
// Owner: the sender thread.
type past struct {
	// Constant.
	from *Steps
	max  int // largest number of steps in the history

	films  []film     // each camera's
	kept   []step     // [max], a ring
	newest int        // index of the newest step in kept
	n      int        // steps since the beginning of the history, at most max
	key    int64      // key of the newest step
	begin  actionStep // first step of a history, made from an observation
	states []float32  // [max-1][dof], lent to an observation
}

// step is one action step.
type step struct {
	state    []float32
	pictures []int // slot in film.slots of each camera's picture
}

// film holds the last pictures of one camera. A step takes at most one new picture, and one picture may wait for the
// next step, so one slot more than steps is enough.
type film struct {
	source *capture.Encoder
	slots  []picture // [max+1], a ring
	used   int       // picture of the last step
	newest int       // equal to used, or the slot of a picture that waits for the next step
}

type picture struct {
	at    rt.Instant // 0: no picture yet
	image wire.Image
}

// newPast allocates room for the steps of one observation, with dof joints and the cameras' largest
// pictures.
func newPast(from *Steps, dof int, cameras []*capture.Encoder) *past {
	max := from.N
	p := &past{
		from:   from,
		max:    max,
		kept:   make([]step, max),
		states: make([]float32, 0, (max-1)*dof),
	}
	for i := range p.kept {
		p.kept[i] = step{make([]float32, dof), make([]int, len(cameras))}
	}
	for _, source := range cameras {
		f := film{source: source, slots: make([]picture, max+1)}
		for i := range f.slots {
			f.slots[i].image.Data = make([]byte, 0, source.MaxBytes())
		}
		p.films = append(p.films, f)
	}
	return p
}

// take takes the tick's steps up to the step with this key. Pictures from before the instant since do not count: if a
// camera has no newer picture at a step, the history ends there.
//
//rt:noalloc
func (p *past) take(key int64, since rt.Instant) {
	for s := p.from.ring.Peek(); s != nil && s.Key <= key; s = p.from.ring.Peek() {
		p.takeStep(s, since)
		p.from.ring.Release()
	}
}

// reach takes the steps up to the step of an observation, which has this key. If the tick had no room for this step, or
// if first marks the policy's first observation, the history begins with this observation. reach returns false when a
// camera has no picture from the instant since or later.
//
//rt:noalloc
func (p *past) reach(key int64, at rt.Instant, state []float32, since rt.Instant, first bool) bool {
	p.take(key, since)
	if p.key != key || first {
		p.begin = actionStep{
			Key:    key,
			Begins: true,
			At:     at,
			State:  state,
		}
		p.takeStep(&p.begin, since)
	}
	return p.n > 0
}

//rt:noalloc
func (p *past) takeStep(s *actionStep, since rt.Instant) {
	if s.Begins {
		p.n = 0
	}
	p.key = s.Key
	p.newest = (p.newest + 1) % p.max
	k := &p.kept[p.newest]
	for i := range p.films {
		var ok bool
		if k.pictures[i], ok = p.films[i].take(s.At, since, p.n == 0); !ok {
			p.n = 0
			return
		}
	}
	copy(k.state, s.State)
	p.n = min(p.n+1, p.max)
}

// take returns the slot of the picture for a step: the camera's newest picture, unless it was taken after the step.
// Such a picture waits for the next step, and this step gets the previous picture. So all pictures of a camera are one
// step late if they come shortly after each tick. The first step of a history gets the newest picture in any case.
//
//rt:noalloc
func (f *film) take(step, since rt.Instant, first bool) (slot int, ok bool) {
	var m wire.Image
	at, _ := f.source.Picture(&m)
	if at == 0 || at < since {
		return 0, false
	}
	if first {
		step = newestStep
	}
	waits := f.newest != f.used
	switch held := f.slots[f.newest].at; {
	case at == held:
		if at <= step {
			f.used = f.newest
		}
		return f.used, true
	case at <= step: // skips a waiting picture
	case waits && held <= step:
		f.used = f.newest
	case waits:
		return f.used, true // the waiting picture comes first
	}
	f.newest = (f.newest + 1) % len(f.slots)
	p := &f.slots[f.newest]
	m.Data = append(p.image.Data[:0], m.Data...)
	p.at, p.image = at, m
	if at <= step {
		f.used = f.newest
	}
	return f.used, true
}

// picture returns a camera's picture at the newest step, and the instant at which it was taken. The
// picture is lent until the next take.
//
//rt:noalloc
func (p *past) picture(camera int) (m wire.Image, at rt.Instant) {
	held := &p.films[camera].slots[p.back(0).pictures[camera]]
	return held.image, held.at
}

// fill fills in the past states and pictures of an observation, so that it covers the last steps, the newest step
// included. They are lent until the next take.
//
//rt:noalloc
func (p *past) fill(o *wire.Observation, steps int) {
	o.PastStates, o.PastImages = wire.Matrix{}, o.PastImages[:0]
	if steps = min(steps, p.max); steps < 2 {
		return
	}
	p.states = p.states[:0]
	for back := steps - 1; back > 0; back-- {
		p.states = append(p.states, p.back(back).state...)
	}
	o.PastStates = wire.Matrix{Rows: steps - 1, Cols: len(p.back(0).state), Data: p.states}
	for i := range p.films {
		slots := p.films[i].slots
		for back := steps - 1; back > 0; back-- {
			at := p.back(back).pictures[i]
			m := wire.Image{Name: slots[at].image.Name}
			if at != p.back(back - 1).pictures[i] {
				m = slots[at].image
			}
			o.PastImages = append(o.PastImages, m)
		}
	}
}

// back lends the n-th step before the newest step, or the first step of the history if there are fewer steps.
//
//rt:noalloc
func (p *past) back(n int) *step {
	return &p.kept[(p.newest-min(n, p.n-1)+p.max)%p.max]
}
