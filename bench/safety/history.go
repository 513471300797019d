package safety

import (
	"bufio"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

const (
	slotTime = 50 * time.Millisecond // in each slot an arm counts as moving or as not moving
	// counts: in a slot with motion, the goals of all motors together move by at least this
	moving   = 4
	phaseMin = 250 * time.Millisecond // a shorter phase is added to the phase before it
	slotsMax = 20 * 60 * 20           // slots of 20 minutes
	goalsMax = 20 * 60 * fps
)

// history holds the servos' goals and states, in slots of time. Its methods may be called from any
// goroutine.
type history struct {
	mu     sync.Mutex
	names  map[uint8]string
	ids    []uint8
	start  rt.Instant
	slots  []slot
	motors map[uint8]*motorHistory
	offAt  rt.Instant    // instant at which the last servo was released
	trace  *bufio.Writer // every event is written to trace; nil: no trace
}

// motorHistory is the history of one motor.
type motorHistory struct {
	wheel  bool
	driven []rt.Instant // instants at which a goal drove the motor, see drives
	goal   int          // the newest goal that was sent, even if the motor did not receive it
	torque bool
}

// slot is one slot of time.
type slot struct {
	travel int    // counts: sum of the motions of all goals
	torque uint32 // ids of the motors under torque at the end of the slot, one bit each
}

func (h *history) open(motors []robot.Motor) {
	h.names = map[uint8]string{}
	h.motors = map[uint8]*motorHistory{}
	h.start = now()
	for _, m := range motors {
		h.names[m.ID], h.motors[m.ID] = m.Name, &motorHistory{wheel: m.Norm == robot.Velocity}
		h.ids = append(h.ids, m.ID)
	}
}

// traceTo makes h write every event to w.
func (h *history) traceTo(w *bufio.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trace = w
}

func (h *history) record(e *servosim.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.trace != nil {
		fmt.Fprintf(h.trace, "%9.4f %-14s %3d % X deaf %v: %+v -> %+v\n", e.At.Sub(h.start).Seconds(), h.names[e.ID],
			e.Addr, e.Data, e.NotReceived, e.Before, e.After)
	}
	now, motor := h.slot(e.At), h.motors[e.ID]
	if goal, ok := goalOf(e, motor.wheel); ok && motor.drives(goal, e.Before.Torque) {
		motor.goal = goal
		if len(motor.driven) < goalsMax {
			motor.driven = append(motor.driven, e.At)
		}
	}
	if e.Data != nil && e.After.Torque {
		travel := e.After.Aim - e.Before.Aim
		if motor.wheel {
			travel = e.After.Spin
		}
		now.travel += max(travel, -travel)
	}
	if e.After.Torque {
		now.torque |= 1 << e.ID
	} else {
		now.torque &^= 1 << e.ID
		if motor.torque && now.torque == 0 {
			h.offAt = e.At
		}
	}
	motor.torque = e.After.Torque
}

// drives reports whether a goal drives the motor. A wheel is driven by any velocity except 0. Any
// other motor is driven by a goal that differs from the last one, or by any goal while its torque
// is off.
func (m *motorHistory) drives(goal int, torque bool) bool {
	if m.wheel {
		return goal != 0
	}
	return goal != m.goal || !torque
}

func (h *history) mark(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.trace != nil {
		fmt.Fprintf(h.trace, "%9.4f == %s\n", now().Sub(h.start).Seconds(), text)
	}
}

// goalOf returns the goal in a write to a Feetech servo: the goal position, or the goal velocity if
// the servo is a wheel.
func goalOf(e *servosim.Event, wheel bool) (goal int, ok bool) {
	at := 42
	if wheel {
		at = 46
	}
	if i := at - e.Addr; i >= 0 && i+2 <= len(e.Data) {
		return int(e.Data[i]) | int(e.Data[i+1])<<8, true
	}
	return 0, false
}

func (h *history) index(t rt.Instant) int {
	return min(max(int(t.Sub(h.start)/slotTime), 0), slotsMax)
}

// slot returns the slot of an instant, and adds missing slots before it.
func (h *history) slot(t rt.Instant) *slot {
	i := h.index(t)
	for len(h.slots) <= i {
		var s slot
		if n := len(h.slots); n > 0 {
			s.torque = h.slots[n-1].torque
		}
		h.slots = append(h.slots, s)
	}
	return &h.slots[i]
}

// lastDriven returns when a servo of ids was last driven in (after, before]; 0: never.
func (h *history) lastDriven(ids []uint8, after, before rt.Instant) (last rt.Instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		for _, t := range h.motors[id].driven {
			if t > after && t <= before {
				last = max(last, t)
			}
		}
	}
	return last
}

func (h *history) off() rt.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.offAt
}

// moves reports whether goals have moved under torque in at least three slots of a span of time.
func (h *history) moves(since, until rt.Instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slot(max(since, until))
	busy := 0
	for _, s := range h.slots[h.index(since) : h.index(max(since, until))+1] {
		if s.travel >= moving && s.torque != 0 {
			busy++
		}
	}
	return busy >= 3
}

// phase is a span of time in which the arm does the same thing.
type phase struct {
	what   string
	length time.Duration
}

func (h *history) phases(from, to rt.Instant) (all []phase) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slot(to)
	for i := h.index(from); i <= h.index(to); i++ {
		what := h.did(i)
		if n := len(all); n > 0 && all[n-1].what == what {
			all[n-1].length += slotTime
			continue
		}
		all = append(all, phase{what, slotTime})
	}
	return merged(all)
}

// did returns a text about the arm's motion in slot i: "held", "went on" or "limp", and which joints alone were limp. A
// slot without motion between two slots of motion counts as motion.
func (h *history) did(i int) string {
	s := h.slots[i]
	moves := s.travel >= moving || i > 0 && i+1 < len(h.slots) && h.slots[i-1].travel >= moving &&
		h.slots[i+1].travel >= moving
	what := "held"
	switch {
	case s.torque == 0:
		return "limp"
	case moves:
		what = "went on"
	}
	var limp []string
	for _, id := range h.ids {
		if s.torque&(1<<id) == 0 {
			limp = append(limp, h.names[id])
		}
	}
	switch {
	case len(limp) > 3:
		what += fmt.Sprintf(" (%d joints limp)", len(limp))
	case limp != nil:
		what += " (" + strings.Join(limp, ", ") + " limp)"
	}
	return what
}

// merged adds each phase that is shorter than phaseMin to the phase before it, since an arm that
// reverses pauses for a moment. It keeps a short phase without torque at the end.
func merged(all []phase) (kept []phase) {
	for i, p := range all {
		n := len(kept)
		short := p.length < phaseMin && (i != len(all)-1 || p.what != "limp")
		if n > 0 && (short || kept[n-1].what == p.what) {
			kept[n-1].length += p.length
			continue
		}
		kept = append(kept, p)
	}
	return kept
}

func describe(all []phase) string {
	var words []string
	for i, p := range all {
		word := p.what
		if i < len(all)-1 {
			word += fmt.Sprintf(" %.1f s", p.length.Seconds())
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}
