package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

const (
	// A robot that has waited for starvationBound precedes the robots that have not, whatever their runways. The bound
	// is shorter than a pause that looks like a fault to an operator, and longer than the waits at a server that is
	// merely busy.
	starvationBound = time.Second
	// neutralRunway is the assumed runway of a robot that reports none. A client of LeRobot's draft
	// has about this much left when it requests a chunk.
	neutralRunway = 250 * time.Millisecond
)

// Runway serves first the robot whose actions end first. A robot whose actions end before the next batch could end is
// late, and is served after the robots that can still be served in time. Only when those robots can all wait for one
// more batch is the late robot served first, because its arm stops. Robots that have waited for starvationBound precede
// all others, the longest wait first.
type Runway struct{}

// rank is the order of robots that precedes the order of their deadlines.
type rank uint8

const (
	rankOverdue rank = iota // the robot has waited for starvationBound
	rankGap                 // the robot is late, but all others can wait
	rankInTime
	rankLate
)

// Order implements Scheduler.
//
//rt:noalloc
func (Runway) Order(waiting []Waiting, n int, now, end rt.Instant, batch time.Duration) {
	late := 0
	for i := range waiting {
		w := &waiting[i]
		w.Late = w.Deadline < end
		w.rank = rankInTime
		w.due = min(w.Deadline, w.Since.Add(starvationBound))
		switch {
		case now.Sub(w.Since) >= starvationBound:
			w.rank, w.due = rankOverdue, w.Since
		case w.Deadline == NoDeadline:
			w.due = w.Since.Add(neutralRunway)
		case w.Late:
			w.rank, w.due = rankLate, w.Since
			late++
		}
	}
	if len(waiting) <= 1 {
		return
	}
	slices.SortFunc(waiting, first)
	if late == 0 || late == len(waiting) || !canWait(waiting[:len(waiting)-late], n, end, batch) {
		return
	}
	for i := len(waiting) - late; i < len(waiting); i++ {
		waiting[i].rank = rankGap
	}
	slices.SortFunc(waiting, first)
}

//rt:noalloc
func first(a, b Waiting) int {
	if a.rank != b.rank {
		return cmp.Compare(a.rank, b.rank)
	}
	if a.due != b.due {
		return cmp.Compare(a.due, b.due)
	}
	return cmp.Compare(a.ID, b.ID)
}

// canWait reports whether one batch of other robots can run first without harm: the robots in
// waiting, served in their order in batches of n, must still get their chunks before their actions
// end.
//
//rt:noalloc
func canWait(waiting []Waiting, n int, end rt.Instant, batch time.Duration) bool {
	for i := range waiting {
		if w := &waiting[i]; w.rank == rankInTime && w.Deadline < end.Add(batch*time.Duration(1+i/n)) {
			return false
		}
	}
	return true
}
