package chunk

import "slices"

// DefaultTrackerSize is how many round trips LeRobot's tracker remembers.
const DefaultTrackerSize = 100

// LatencyTracker is LeRobot's: it predicts the longest round trip ever, however
// long ago, and 0 before the first. One slow answer stays in the estimate for
// the rest of the run; that is what jk does better.
//
// Source: lerobot policies/rtc/latency_tracker.py.
type LatencyTracker struct {
	window []float64
	sorted []float64 // scratch of Percentile
	n      int       // samples so far
	max    float64
}

// NewLatencyTracker returns a tracker whose percentiles look at the last size
// samples.
func NewLatencyTracker(size int) *LatencyTracker {
	return &LatencyTracker{window: make([]float64, size), sorted: make([]float64, size)}
}

// Observe learns one round trip; a negative one teaches nothing.
//
//rt:noalloc
func (t *LatencyTracker) Observe(seconds float64) {
	if !(seconds >= 0) {
		return
	}
	t.window[t.n%len(t.window)] = seconds
	t.n++
	t.max = max(t.max, seconds)
}

// Seconds returns the longest sample since the start.
//
//rt:noalloc
func (t *LatencyTracker) Seconds() float64 { return t.max }

// Len returns how many samples the percentiles look at.
func (t *LatencyTracker) Len() int { return min(t.n, len(t.window)) }

// Percentile returns the q-quantile of the last samples, linearly interpolated
// in the arithmetic of numpy 1 (numpy 2 rounds q*(n-1) to float32 first and may
// differ in the sixth digit); from q = 1 on it is the longest ever, and 0 without
// samples.
//
//rt:noalloc
func (t *LatencyTracker) Percentile(q float64) float64 {
	n := min(t.n, len(t.window))
	if n == 0 {
		return 0
	}
	if q >= 1 {
		return t.max
	}
	s := t.sorted[:n]
	copy(s, t.window[:n])
	slices.Sort(s)
	if q <= 0 {
		return s[0]
	}
	at := q * float64(n-1)
	low := int(at)
	a, b := float32(s[low]), float32(s[min(low+1, n-1)])
	diff, part := float64(b-a), at-float64(low)
	if part >= 0.5 { // as numpy does
		return float64(b) - float64(diff*(1-part))
	}
	return float64(a) + float64(diff*part)
}

// Reset forgets everything.
func (t *LatencyTracker) Reset() { t.n, t.max = 0, 0 }
