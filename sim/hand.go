package sim

import (
	"sync"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim/motor"
)

// handDrive is how fast a motor under torque gets to its goal, in counts per second.
const handDrive = 3000

// Hand is the shafts of a leader arm in a person's hand: they follow their goals under torque, and
// the hand while they are limp. It is a servosim.Plant, and its methods may be called by any
// thread.
type Hand struct {
	mu     sync.Mutex
	shafts *motor.Ideal // guarded by mu
	torque []bool       // guarded by mu
	bend   int          // guarded by mu; counts that the hand pushes shafts under torque off their goals
}

// NewHand returns n shafts at raw, in a hand that does not move.
func NewHand(n, raw int) *Hand {
	return &Hand{shafts: motor.NewIdealAt(n, raw, handDrive), torque: make([]bool, n)}
}

// Move has the hand take all shafts to raw at a speed in counts per second, where they are limp.
func (h *Hand) Move(now rt.Instant, raw int, speed float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for j := range h.torque {
		h.shafts.Sink(now, j, raw, speed)
	}
}

// Lead has the hand take each shaft to its own raw at a speed in counts per second, where they are
// limp.
func (h *Hand) Lead(now rt.Instant, raw []int, speed float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for j := range h.torque {
		h.shafts.Sink(now, j, raw[j], speed)
	}
}

// Bend has the hand push shafts that are under torque so many counts off their goals.
func (h *Hand) Bend(counts int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bend = counts
}

// Goal implements servosim.Plant.
func (h *Hand) Goal(now rt.Instant, joint, raw int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shafts.Goal(now, joint, raw)
}

// Torque implements servosim.Plant.
func (h *Hand) Torque(now rt.Instant, joint int, on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.torque[joint] != on {
		h.shafts.Sink(now, joint, 0, 0) // the hand goes on from where it is at a new command
	}
	h.torque[joint] = on
	h.shafts.Torque(now, joint, on)
}

// Present implements servosim.Plant.
func (h *Hand) Present(now rt.Instant, joint int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.shafts.Present(now, joint)
	if h.torque[joint] {
		at += h.bend
	}
	return at
}
