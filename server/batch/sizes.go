// Package batch keeps a policy's device busy: the sizes of batches and how long each takes
// (sizes.go), the one thread that runs them (device.go), and the threads that prepare the next
// batch meanwhile (threads.go), as package server decodes pictures (its rows.go).
//
// It is independent of robots, sessions and pictures.
package batch

import (
	"sync/atomic"
	"time"
)

// gain is the share of each row's time that a larger batch must save: with a smaller saving it only
// delays its chunks.
const gain = 0.05

// learning is the divisor of a new duration's weight: with an eighth, a single run that was held up
// changes little.
const learning = 8

// When runs of other sizes have taken again times the duration of a size, that size is tried once
// more, even if it was not worthwhile: the cause of its slowness may be over. The trials cost at
// most half a percent of the device's time.
const again = 200

// Sizes are the sizes of batches that run, and their durations. Other batches are padded to the
// next size, because a shape that never ran would have to be planned by the runtime first.
//
// Owner: one goroutine; any may read the durations.
type Sizes struct {
	rows   []int
	took   []atomic.Int64  // ns; 0: unknown. Atomic
	others []time.Duration // total duration of runs of other sizes since the last run of this one
}

// NewSizes returns sizes with unknown durations. rows ascends from 1.
func NewSizes(rows []int) *Sizes {
	return &Sizes{rows: rows, took: make([]atomic.Int64, len(rows)), others: make([]time.Duration, len(rows))}
}

// All lends the sizes, ascending.
func (s *Sizes) All() []int { return s.rows }

// Fit returns the smallest size that holds that number of rows, or the largest size.
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

// Took returns the expected duration of a run of that size; 0: unknown.
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

// Learn records the duration of a run of that size.
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

// Choose returns how many of n requests, at least 1, share the next run: the number with the least
// time per request. Among sizes that are about equal it is the smallest, whose chunks are ready
// first. A size whose duration is unknown, or was learned long ago, is taken as worthwhile.
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

// Wait returns the longest time that a request waits for its turn when that number of others arrive
// at the same moment; 0: unknown.
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
