package rt

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// A Hist has one bucket per nanosecond up to 2^histBits ns, and histHalf buckets for each doubling after that. A bucket
// is at most 1/128 of its values wide.
const (
	histBits    = 8
	histHalf    = 1 << (histBits - 1)
	histLimit   = 60 * time.Second // longer durations count as this one
	histTopBits = 36               // histLimit < 2^36 ns
	histBuckets = 1<<histBits + (histTopBits-histBits)*histHalf
)

const rankSlack = 1e-6

const _ = uint64(1<<histTopBits - 1 - histLimit) // the last bucket holds histLimit

// Hist counts durations from 0 to 60 s in fixed buckets, from which it computes quantiles within 1 %. It takes 30 kB.
//
// Owner: any goroutine.
type Hist struct {
	buckets [histBuckets]atomic.Uint64
	max     atomic.Int64
}

// NewHist returns an empty histogram.
func NewHist() *Hist { return new(Hist) }

// Record counts a duration. A negative duration counts as 0, and a duration above 60 s as 60 s (Max keeps the exact
// value).
//
//rt:noalloc
func (h *Hist) Record(d time.Duration) {
	h.buckets[bucketOf(min(max(d, 0), histLimit))].Add(1)
	for most := h.max.Load(); int64(d) > most && !h.max.CompareAndSwap(most, int64(d)); {
		most = h.max.Load()
	}
}

//rt:noalloc
func bucketOf(d time.Duration) int {
	v := uint64(d)
	shift := max(bits.Len64(v)-histBits, 0)
	return shift*histHalf + int(v>>shift)
}

// upperBound returns the longest duration that falls into bucket i.
func upperBound(i int) time.Duration {
	shift := max(i/histHalf-1, 0)
	return time.Duration(i-shift*histHalf+1)<<shift - 1
}

// Count returns the number of recorded durations.
func (h *Hist) Count() uint64 {
	var n uint64
	for i := range h.buckets {
		n += h.buckets[i].Load()
	}
	return n
}

// Quantile returns the duration that the fraction q of all recorded durations do not exceed (0.99: p99). The result is
// at most 1 % above the exact quantile; it is 0 if nothing is recorded. Quantile panics if q is outside 0 to 1.
func (h *Hist) Quantile(q float64) time.Duration {
	if !(q >= 0 && q <= 1) {
		panic("rt: quantile must be within 0 and 1")
	}
	var counts [histBuckets]uint64 // one consistent copy while the writer continues
	var n uint64
	for i := range counts {
		counts[i] = h.buckets[i].Load()
		n += counts[i]
	}
	if n == 0 {
		return 0
	}
	// In floating point, the product of 0.07 and 100 is a little above 7, but the rank must be 7, not 8.
	rank := max(uint64(math.Ceil(q*float64(n)-rankSlack)), 1)
	for i, c := range counts {
		if c >= rank {
			return min(upperBound(i), h.Max())
		}
		rank -= c
	}
	return h.Max() // q*n was rounded up past n
}

// Max returns the longest recorded duration, exactly; 0 when nothing is recorded.
func (h *Hist) Max() time.Duration { return time.Duration(h.max.Load()) }

// Buckets yields, for every bucket that is not empty, the longest duration that falls into it and its count, shortest
// durations first.
func (h *Hist) Buckets(yield func(upper time.Duration, n uint64) bool) {
	for i := range h.buckets {
		if n := h.buckets[i].Load(); n > 0 && !yield(upperBound(i), n) {
			return
		}
	}
}

// Laps measures how long the successive parts of a step take.
//
// Owner: the thread that takes the step; any thread may read the histograms.
type Laps struct {
	clock       Clock
	began, last Instant
	parts       []*Hist
	took        []time.Duration // each part's duration in this step, or in the previous step until its Mark
	whole       *Hist
}

// NewLaps returns a Laps for n parts.
func NewLaps(clock Clock, n int) *Laps {
	l := &Laps{clock: clock, whole: NewHist(), took: make([]time.Duration, n)}
	for range n {
		l.parts = append(l.parts, NewHist())
	}
	return l
}

// Begin starts a step. The parameter at is the instant at which the step's first part began.
//
//rt:noalloc
func (l *Laps) Begin(at Instant) { l.began, l.last = at, at }

// Mark ends part i, whose duration is the time from the mark before, or from Begin, until now.
//
//rt:noalloc
func (l *Laps) Mark(i int) {
	now := l.clock.Now()
	l.took[i] = now.Sub(l.last)
	l.parts[i].Record(l.took[i])
	l.last = now
}

// End ends the step, whose duration is the time from Begin to the last mark.
//
//rt:noalloc
func (l *Laps) End() { l.whole.Record(l.last.Sub(l.began)) }

// Took returns the duration of part i in this step. Call it after the Mark of that part. Owner: the thread that takes
// the step.
//
//rt:noalloc
func (l *Laps) Took(i int) time.Duration { return l.took[i] }

// Part returns the durations of part i in all steps.
func (l *Laps) Part(i int) *Hist { return l.parts[i] }

// Whole returns the durations of the steps from Begin to their last mark.
func (l *Laps) Whole() *Hist { return l.whole }
