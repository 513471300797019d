package servosim

import (
	"time"

	"edgert/rt"
)

// freeSpeed is how fast a shaft without a plant turns, in counts per second.
const freeSpeed = 3072

// freeShafts is the built-in plant: shafts that start in the middle, turn at a
// constant speed towards their goal, and stay where they are without torque.
//
// Guarded by Bus.mu, like everything that calls it.
type freeShafts struct{ shafts []shaft }

// shaft moves from place at instant since.
type shaft struct {
	place, goal float64
	since       rt.Instant
	torque      bool
}

func newFreeShafts(n int) *freeShafts {
	f := &freeShafts{shafts: make([]shaft, n)}
	for i := range f.shafts {
		f.shafts[i].place, f.shafts[i].goal = centre, centre
	}
	return f
}

//rt:noalloc
func (f *freeShafts) Goal(now rt.Instant, joint int, raw int) {
	f.shafts[joint].settle(now)
	f.shafts[joint].goal = float64(raw)
}

//rt:noalloc
func (f *freeShafts) Torque(now rt.Instant, joint int, on bool) {
	f.shafts[joint].settle(now)
	f.shafts[joint].torque = on
}

//rt:noalloc
func (f *freeShafts) Present(now rt.Instant, joint int) int {
	f.shafts[joint].settle(now)
	return int(f.shafts[joint].place + 0.5)
}

//rt:noalloc
func (s *shaft) settle(now rt.Instant) {
	if s.torque && now > s.since {
		reach := freeSpeed * float64(now.Sub(s.since)) / float64(time.Second)
		s.place += min(max(s.goal-s.place, -reach), reach)
	}
	s.since = max(s.since, now)
}
