// Package batch is how a policy is kept busy: which sizes of batches run and how
// long each takes (sizes.go), the one thread that runs them (device.go), and the
// threads that prepare the next one meanwhile (crew.go).
//
// Nothing here knows of robots, sessions or pictures.
package batch

import (
	"sync/atomic"
	"time"
)

// gain is what a larger batch must save of the time of each row: what it saves less
// of, it only delays.
const gain = 0.05

// learning is how much of what a run took counts: an eighth, so that one that was
// held up changes little.
const learning = 8

// again is how many times the duration of a run the others may take before that size
// runs once more, were it worth it or not: what made it slow may be over. It costs half
// a percent of the device's time at most.
const again = 200

// Sizes are the sizes of batches that run, and how long each of them takes. Others
// are filled up to the next: a shape that never ran would have to be planned first.
//
// Owner: one goroutine; any may ask what a run takes.
type Sizes struct {
	rows   []int
	took   []atomic.Int64  // ns; 0: not known yet. Atomic
	others []time.Duration // what runs of other sizes took since the last of this one
}

// NewSizes returns sizes, which ascend from 1, of which no time is known.
func NewSizes(rows []int) *Sizes {
	return &Sizes{rows: rows, took: make([]atomic.Int64, len(rows)), others: make([]time.Duration, len(rows))}
}

// All lends the sizes, ascending.
func (s *Sizes) All() []int { return s.rows }

// Fit is the smallest size that holds so many rows, at least 1 and at most the
// largest size.
//
//rt:noalloc
func (s *Sizes) Fit(rows int) int { return s.rows[s.index(rows)] }

//rt:noalloc
func (s *Sizes) index(rows int) int {
	for i, n := range s.rows {
		if n >= rows {
			return i
		}
	}
	return len(s.rows) - 1
}

// Took is how long a run of that size is expected to take; 0: not known.
//
//rt:noalloc
func (s *Sizes) Took(size int) time.Duration { return s.known(s.index(size)) }

// Longest is how long the longest run is expected to take; 0: none is known.
//
//rt:noalloc
func (s *Sizes) Longest() (took time.Duration) {
	for i := range s.took {
		took = max(took, s.known(i))
	}
	return took
}

//rt:noalloc
func (s *Sizes) known(i int) time.Duration { return time.Duration(s.took[i].Load()) }

// Learn notes how long a run of that size took.
//
//rt:noalloc
func (s *Sizes) Learn(size int, took time.Duration) {
	at := s.index(size)
	for i := range s.others {
		s.others[i] += took
	}
	s.others[at] = 0
	if known := s.known(at); known != 0 {
		took = known + (took-known)/learning
	}
	s.took[at].Store(int64(took))
}

// Choose returns how many of n requests, at least 1, shall share the next run: those
// that take the least time each. Of sizes that are about as good it is the smallest,
// whose chunks come first; a size whose time is not known, or was learned long ago,
// counts as worth it.
//
//rt:noalloc
func (s *Sizes) Choose(n int) (rows int) {
	rows = 1
	best := s.known(0)
	for i, size := range s.rows[1:] {
		took := s.known(i + 1)
		if took == 0 || best == 0 || s.others[i+1] > again*took {
			rows = min(n, size)
		} else if served := min(n, size); float64(took)*float64(rows) < (1-gain)*float64(best)*float64(served) {
			rows, best = served, took
		}
		if size >= n {
			break
		}
	}
	return rows
}

// Turn is the longest that a request waits for its turn when so many others are made at the
// same moment; 0: not known.
//
//rt:noalloc
func (s *Sizes) Turn(others int) (wait time.Duration) {
	for i, rows := range s.rows {
		runs := (max(others, 0) + rows - 1) / rows
		if took := time.Duration(runs) * s.known(i); took > 0 && (wait == 0 || took < wait) {
			wait = took
		}
	}
	return wait
}
