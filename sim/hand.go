package sim

import (
	"sync"

	"github.com/edge-rt/edge-rt/rt"
)

// handDrive is how fast a motor under torque gets to its goal, in counts per second.
const handDrive = 3000

// Hand is the shafts of a leader arm in a person's hand: they follow their goals under
// torque, and the hand while they are limp. It is a servosim.Plant, and its methods may be
// called by any thread.
type Hand struct {
	mu     sync.Mutex
	shafts []shaft
}

// shaft moves from place at instant since.
type shaft struct {
	place, goal, hand, speed float64
	since                    rt.Instant
	torque                   bool
	bend                     int // counts that the hand pushes it off its goal
}

// NewHand returns n shafts at raw, in a hand that does not move.
func NewHand(n, raw int) *Hand {
	h := &Hand{shafts: make([]shaft, n)}
	for j := range h.shafts {
		h.shafts[j] = shaft{place: float64(raw), goal: float64(raw), hand: float64(raw)}
	}
	return h
}

// Move has the hand take all shafts to raw at a speed in counts per second, where they are
// limp.
func (h *Hand) Move(now rt.Instant, raw int, speed float64) {
	h.each(now, func(s *shaft) { s.hand, s.speed = float64(raw), speed })
}

// Lead has the hand take each shaft to its own raw at a speed in counts per second, where
// they are limp.
func (h *Hand) Lead(now rt.Instant, raw []int, speed float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for j := range h.shafts {
		s := &h.shafts[j]
		s.advance(now)
		s.hand, s.speed = float64(raw[j]), speed
	}
}

// Bend has the hand push shafts that are under torque so many counts off their goals.
func (h *Hand) Bend(now rt.Instant, counts int) {
	h.each(now, func(s *shaft) { s.bend = counts })
}

func (h *Hand) each(now rt.Instant, do func(*shaft)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for j := range h.shafts {
		h.shafts[j].advance(now)
		do(&h.shafts[j])
	}
}

func (h *Hand) Goal(now rt.Instant, joint, raw int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shafts[joint].advance(now)
	h.shafts[joint].goal = float64(raw)
}

func (h *Hand) Torque(now rt.Instant, joint int, on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.shafts[joint]
	s.advance(now)
	if s.torque != on {
		s.speed = 0 // the hand goes on from where it is at a new command
	}
	s.torque = on
}

func (h *Hand) Present(now rt.Instant, joint int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.shafts[joint]
	s.advance(now)
	if s.torque {
		return int(s.place+0.5) + s.bend
	}
	return int(s.place + 0.5)
}

func (s *shaft) advance(now rt.Instant) {
	if now > s.since {
		to, speed := s.hand, s.speed
		if s.torque {
			to, speed = s.goal, handDrive
		}
		reach := speed * now.Sub(s.since).Seconds()
		s.place += min(max(to-s.place, -reach), reach)
	}
	s.since = max(s.since, now)
}
