// Package batch keeps a policy's device busy. sizes.go has the sizes of batches and their durations, device.go has the
// one thread that runs batches, and threads.go has the threads that prepare the next batch meanwhile. In package server
// these threads decode pictures.
//
// The package is independent of robots, sessions and pictures.
package batch

import (
	"sync/atomic"
	"time"
)

// gain is the part of each row's time that a larger batch must save. With a smaller saving, a larger batch would do
// little more than delay its chunks.
const gain = 0.05

// 1/learning is the weight of a new duration in the average. With an eighth, a single run that was
// delayed changes the average little.
const learning = 8

// A size that was not worthwhile is tried once more after runs of other sizes have taken, in total, 200 times its own
// duration. The cause of its slowness may be over by then. These trials cost at most 1/again of the device's time.
const again = 200

// Sizes holds the sizes of batches that run, and their durations. A batch of another size is padded to the next of
// these sizes, because the runtime would have to plan a new shape first.
//
// Owner: one goroutine. Any goroutine may read the durations.
type Sizes struct {
	rows   []int
	took   []atomic.Int64  // ns, duration of a run for each size; 0: unknown
	others []time.Duration // total duration of runs of other sizes since the last run of this one
}

// NewSizes returns sizes with unknown durations. The list rows ascends and begins with 1.
func NewSizes(rows []int) *Sizes {
	return &Sizes{rows: rows, took: make([]atomic.Int64, len(rows)), others: make([]time.Duration, len(rows))}
}

// All lends the sizes, ascending.
func (s *Sizes) All() []int { return s.rows }

// Fit returns the smallest size that holds the given number of rows, or the largest size when none holds them.
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

// Took returns the expected duration of a run of size; 0: unknown.
//
//rt:noalloc
func (s *Sizes) Took(size int) time.Duration { return s.known(s.index(size)) }

// Longest returns the longest expected duration of a run; 0: no duration is known.
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

// Learn records that a run of size took this duration.
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

// Choose returns how many of n requests share the next run; n is at least 1. It chooses the size of batch with the
// least time per request. Among sizes that are about equal it chooses the smallest, whose chunks are ready first. A
// size whose duration is unknown, or that is due for another trial, counts as worthwhile.
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

// Wait returns the longest time for which a request waits for its turn if the given number of other requests arrive at
// the same moment; 0: unknown.
//
//rt:noalloc
func (s *Sizes) Wait(others int) (wait time.Duration) {
	for i, rows := range s.rows {
		runs := (max(others, 0) + rows - 1) / rows
		if took := time.Duration(runs) * s.known(i); took > 0 && (wait == 0 || took < wait) {
			wait = took
		}
	}
	return wait
}
