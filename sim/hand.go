package sim

import (
	"slices"
	"sync"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim/motor"
)

// handDrive is the speed, in counts per second, at which a motor under torque moves to its goal.
const handDrive = 3000

// Hand simulates the shafts of a leader arm in a person's hand: a shaft under torque follows its
// goal, and a limp shaft follows the hand. Hand is a servosim.Plant. Any thread may call its
// methods.
type Hand struct {
	mu     sync.Mutex
	shafts *motor.Ideal // guarded by mu
	torque []bool       // guarded by mu
	bend   int          // guarded by mu; counts by which the hand pushes shafts under torque off their goals
}

// NewHand returns a Hand with n shafts at the count raw. The hand does not move.
func NewHand(n, raw int) *Hand {
	return &Hand{shafts: motor.NewIdealAt(n, raw, handDrive), torque: make([]bool, n)}
}

// Move makes the hand move all limp shafts to the count raw, at the given speed in counts per second.
func (h *Hand) Move(now rt.Instant, raw int, speed float64) {
	h.Lead(now, slices.Repeat([]int{raw}, len(h.torque)), speed)
}

// Lead makes the hand move each limp shaft to its count in raw, at the given speed in counts per second.
func (h *Hand) Lead(now rt.Instant, raw []int, speed float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for j := range h.torque {
		h.shafts.Sink(now, j, raw[j], speed)
	}
}

// Bend makes the hand push shafts under torque off their goals, by this number of counts.
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
		h.shafts.Sink(now, joint, 0, 0) // a limp shaft rests until the hand's next command
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
