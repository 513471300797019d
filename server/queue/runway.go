package queue

import (
	"cmp"
	"slices"
	"time"

	"edgert/rt"
)

const (
	// StarvationBound is how long a robot waits at most before its turn comes
	// whatever the runways of the others: below what an operator takes for a fault,
	// above the waits of a server that is merely busy.
	StarvationBound = time.Second
	// NeutralRunway stands in for the runway of a robot that does not say: about what
	// is left of a chunk when a client of LeRobot's draft asks for the next.
	NeutralRunway = 250 * time.Millisecond
)

// Runway serves the robot first whose actions end first. Those whose actions end
// before the batch could give way to the ones that can still be served, except in
// gaps: as long as nobody else runs dry by it, they go first, because their arms
// stand. Whoever has waited for StarvationBound goes before all, the longest wait
// first.
type Runway struct{}

// rank orders before deadlines do.
type rank uint8

const (
	rankOverdue rank = iota // has waited for StarvationBound
	rankGap                 // late, but others can wait for it
	rankInTime
	rankLate
)

// Order is Scheduler's.
//
//rt:noalloc
func (Runway) Order(waiting []Waiting, n int, now, end rt.Instant, batch time.Duration) {
	late := 0
	for i := range waiting {
		w := &waiting[i]
		w.Late, w.rank, w.due = w.Deadline < end, rankInTime, min(w.Deadline, w.Since.Add(StarvationBound))
		switch {
		case now.Sub(w.Since) >= StarvationBound:
			w.rank, w.due = rankOverdue, w.Since
		case w.Deadline == NoDeadline:
			w.due = w.Since.Add(NeutralRunway)
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

// canWait reports whether all of these, in their order and n at a time, are still
// served before their actions end when one batch of others goes first.
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
