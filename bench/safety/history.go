package safety

import (
	"bufio"
	"fmt"
	"strings"
	"sync"
	"time"

	"edgert/rt"
	"edgert/servo/robot"
	"edgert/servo/servosim"
)

const (
	slot      = 50 * time.Millisecond // in which an arm moves or does not
	moved     = 4                     // counts of all goals in a slot that count as moving
	settled   = 250 * time.Millisecond
	slotsMax  = 20 * 60 * 20 // 20 minutes
	drivesMax = 20 * 60 * FPS
)

// history is what the servos were told and became, in slots.
type history struct {
	mu    sync.Mutex
	names map[uint8]string
	ids   []uint8
	start rt.Instant
	slots []moment
	drive map[uint8][]rt.Instant // when a goal changed, or torque was taken
	said  map[uint8]int          // the newest goal that was sent, heard or not
	torq  map[uint8]bool
	offAt rt.Instant    // when the last servo let go
	trace *bufio.Writer // of every event; nil: nobody wants it
}

// moment is one slot.
type moment struct {
	seen   bool
	travel int    // counts of all goals
	stiff  uint32 // ids under torque at its end, one bit each
}

func (h *history) begin(r robot.Robot) {
	h.names, h.drive, h.said = map[uint8]string{}, map[uint8][]rt.Instant{}, map[uint8]int{}
	h.torq = map[uint8]bool{}
	for _, m := range r.Motors {
		h.names[m.ID] = m.Name
		h.ids = append(h.ids, m.ID)
	}
	h.start = rt.KernelClock().Now()
}

// add takes an event of the bus.
func (h *history) add(e *servosim.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.trace != nil {
		fmt.Fprintf(h.trace, "%9.4f %-14s %3d % X deaf %v: %+v -> %+v\n", e.At.Sub(h.start).Seconds(), h.names[e.ID], e.Addr, e.Data, e.Deaf, e.Before, e.After)
	}
	now, was := h.at(e.At), h.torq[e.ID]
	if goal, ok := goalOf(e); ok && (goal != h.said[e.ID] || !e.Before.Torque) {
		h.said[e.ID] = goal
		if len(h.drive[e.ID]) < drivesMax {
			h.drive[e.ID] = append(h.drive[e.ID], e.At)
		}
	}
	if e.Data != nil && e.After.Torque {
		travel := e.After.Aim - e.Before.Aim
		now.travel += max(travel, -travel)
	}
	h.torq[e.ID] = e.After.Torque
	if e.After.Torque {
		now.stiff |= 1 << e.ID
	} else {
		now.stiff &^= 1 << e.ID
		if was && now.stiff == 0 {
			h.offAt = e.At
		}
	}
}

// mark writes a line into the trace.
func (h *history) mark(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.trace != nil {
		fmt.Fprintf(h.trace, "%9.4f == %s\n", rt.KernelClock().Now().Sub(h.start).Seconds(), text)
	}
}

// goalOf is the goal that a write to a Feetech servo holds.
func goalOf(e *servosim.Event) (goal int, ok bool) {
	const at = 42
	if i := at - e.Addr; i >= 0 && i+2 <= len(e.Data) {
		return int(e.Data[i]) | int(e.Data[i+1])<<8, true
	}
	return 0, false
}

// at returns the slot of an instant, filled up to it.
func (h *history) at(t rt.Instant) *moment {
	i := min(max(int(t.Sub(h.start)/slot), 0), slotsMax)
	for len(h.slots) <= i {
		var m moment
		if n := len(h.slots); n > 0 {
			m.stiff = h.slots[n-1].stiff
		}
		h.slots = append(h.slots, m)
	}
	return &h.slots[i]
}

// lastDrive is when a servo of ids was last driven after an instant; 0: not since.
func (h *history) lastDrive(ids []uint8, after, before rt.Instant) (last rt.Instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		for _, t := range h.drive[id] {
			if t > after && t <= before {
				last = max(last, t)
			}
		}
	}
	return last
}

// off is when the last servo let go.
func (h *history) off() rt.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.offAt
}

// moves reports whether the goals have moved since an instant for as long as
// they usually do.
func (h *history) moves(since, now rt.Instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	busy := 0
	h.at(now)
	for i := max(int(since.Sub(h.start)/slot), 0); i < len(h.slots); i++ {
		if h.slots[i].travel >= moved && h.slots[i].stiff != 0 {
			busy++
		}
	}
	return busy >= 3
}

// phase is a stretch of time in which the arm did one thing.
type phase struct {
	what string
	for_ time.Duration
}

// phases are what the arm did between two instants.
func (h *history) phases(from, to rt.Instant) (all []phase) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at(to)
	whole := uint32(0)
	for _, id := range h.ids {
		whole |= 1 << id
	}
	for i := max(int(from.Sub(h.start)/slot), 0); i <= int(to.Sub(h.start)/slot) && i < len(h.slots); i++ {
		m := h.slots[i]
		// A goal that moves slowly is still one that moves.
		busy := m.travel >= moved || i > 0 && i+1 < len(h.slots) && h.slots[i-1].travel >= moved && h.slots[i+1].travel >= moved
		what := "held"
		switch {
		case m.stiff == 0:
			what = "limp"
		case busy:
			what = "went on"
		}
		if limp := whole &^ m.stiff; limp != 0 && m.stiff != 0 {
			what += " (" + h.list(limp) + " limp)"
		}
		if n := len(all); n > 0 && all[n-1].what == what {
			all[n-1].for_ += slot
			continue
		}
		all = append(all, phase{what, slot})
	}
	return merged(all)
}

func (h *history) list(ids uint32) string {
	var names []string
	for _, id := range h.ids {
		if ids&(1<<id) != 0 {
			names = append(names, h.names[id])
		}
	}
	if len(names) > 3 {
		return fmt.Sprintf("%d joints", len(names))
	}
	return strings.Join(names, ", ")
}

// merged takes the shortest phases out, but for an end without torque: an arm that
// turns round stands for a moment.
func merged(all []phase) (kept []phase) {
	for i, p := range all {
		n := len(kept)
		switch {
		case p.for_ < settled && n > 0 && (i != len(all)-1 || p.what != "limp"):
			kept[n-1].for_ += p.for_
		case n > 0 && kept[n-1].what == p.what:
			kept[n-1].for_ += p.for_
		default:
			kept = append(kept, p)
		}
	}
	return kept
}

// tell puts phases into words.
func tell(all []phase) string {
	var words []string
	for i, p := range all {
		if i == len(all)-1 {
			words = append(words, p.what)
		} else {
			words = append(words, fmt.Sprintf("%s %.1f s", p.what, p.for_.Seconds()))
		}
	}
	return strings.Join(words, ", ")
}
