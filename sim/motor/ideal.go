package motor

import (
	"math"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// turnPerSecond is the share of its encoder's range that an ideal shaft turns in a second.
const turnPerSecond = 0.75

// Ideal is a chain of shafts. Under torque a shaft turns at a constant speed towards its goal;
// without torque it sinks or stays.
type Ideal struct{ shafts []idealShaft }

// idealShaft is a shaft that moves from place, its position at the instant since.
type idealShaft struct {
	place, goal float64
	speed       float64 // counts per second
	since       rt.Instant
	torque      bool
	rest, sink  float64 // count at which the shaft comes to rest, and counts per second towards it, without torque
}

// NewIdeal returns shafts in the middle of their range.
func NewIdeal(joints []Joint) *Ideal {
	f := new(Ideal)
	for _, j := range joints {
		f.shafts = append(f.shafts, NewIdealAt(1, j.Counts/2, turnPerSecond*float64(j.Counts)).shafts...)
	}
	return f
}

// NewIdealAt returns n shafts at the count raw, which turn to their goals at the given speed in counts per second.
func NewIdealAt(n, raw int, speed float64) *Ideal {
	at := float64(raw)
	return &Ideal{slices.Repeat([]idealShaft{{place: at, goal: at, speed: speed}}, n)}
}

//rt:noalloc
func (f *Ideal) Goal(now rt.Instant, joint, raw int) { f.advanced(now, joint).goal = float64(raw) }

//rt:noalloc
func (f *Ideal) Torque(now rt.Instant, joint int, on bool) { f.advanced(now, joint).torque = on }

//rt:noalloc
func (f *Ideal) Sink(now rt.Instant, joint, rest int, speed float64) {
	s := f.advanced(now, joint)
	s.rest, s.sink = float64(rest), speed
}

//rt:noalloc
func (f *Ideal) Present(now rt.Instant, joint int) int { return Round(f.advanced(now, joint).place) }

//rt:noalloc
func (f *Ideal) Speed(now rt.Instant, joint int) float64 {
	s := f.advanced(now, joint)
	to, speed := s.heading()
	if s.place == to {
		return 0
	}
	return math.Copysign(speed, to-s.place)
}

//rt:noalloc
func (s *idealShaft) heading() (to, speed float64) {
	if s.torque {
		return s.goal, s.speed
	}
	return s.rest, s.sink
}

// advanced returns a shaft at its place at the instant now.
//
//rt:noalloc
func (f *Ideal) advanced(now rt.Instant, joint int) *idealShaft {
	s := &f.shafts[joint]
	if now > s.since {
		to, speed := s.heading()
		reach := speed * float64(now.Sub(s.since)) / float64(time.Second)
		s.place += min(max(to-s.place, -reach), reach)
	}
	s.since = max(s.since, now)
	return s
}

// Round returns the count nearest to v.
//
//rt:noalloc
func Round(v float64) int { return int(math.Floor(v + 0.5)) }
