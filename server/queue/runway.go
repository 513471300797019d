package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

const (
	// starvationBound is how long a robot waits at most before its turn comes whatever the runways
	// of the others: shorter than a pause that an operator takes for a fault, longer than the
	// waits at a server that is merely busy.
	starvationBound = time.Second
	// neutralRunway is assumed for a robot that reports no runway: about the rest of a chunk when a
	// client of LeRobot's draft requests the next.
	neutralRunway = 250 * time.Millisecond
)

// Runway serves the robot first whose actions end first. A robot whose actions end before the end
// of the next batch gives way to robots that can still be served in time. Only when no other robot
// would run out of actions in that batch is it served first, because its arm has stopped. Robots
// that have waited for starvationBound precede all others, the longest wait first.
type Runway struct{}

// rank is compared before the deadlines are.
type rank uint8

const (
	rankOverdue rank = iota // has waited for starvationBound
	rankGap                 // late, but the others can wait for it
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

// canWait reports whether all of these, in their order and in batches of n, are still served before
// their actions end when one batch of others runs first.
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
