package servosim

import (
	"math"
	"time"

	"edgert/rt"
)

// freeTurn is how much of its encoder's range a shaft without a plant turns in a
// second.
const freeTurn = 0.75

// freeShafts is the built-in plant: shafts that start in the middle, turn at a
// constant speed towards their goal, and stay where they are without torque.
//
// Guarded by Bus.mu, like everything that calls it.
type freeShafts struct{ shafts []shaft }

// shaft moves from place at instant since.
type shaft struct {
	place, goal float64
	speed       float64 // counts per second
	since       rt.Instant
	torque      bool
}

func newFreeShafts(models []*model) *freeShafts {
	f := &freeShafts{shafts: make([]shaft, len(models))}
	for i, m := range models {
		middle := float64(m.table.counts) / 2
		f.shafts[i].place, f.shafts[i].goal = middle, middle
		f.shafts[i].speed = freeTurn * float64(m.table.counts)
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
	return round(f.shafts[joint].place)
}

//rt:noalloc
func (f *freeShafts) Speed(now rt.Instant, joint int) float64 {
	s := &f.shafts[joint]
	s.settle(now)
	if !s.torque || s.place == s.goal {
		return 0
	}
	return math.Copysign(s.speed, s.goal-s.place)
}

//rt:noalloc
func round(v float64) int { return int(math.Floor(v + 0.5)) }

//rt:noalloc
func (s *shaft) settle(now rt.Instant) {
	if s.torque && now > s.since {
		reach := s.speed * float64(now.Sub(s.since)) / float64(time.Second)
		s.place += min(max(s.goal-s.place, -reach), reach)
	}
	s.since = max(s.since, now)
}
