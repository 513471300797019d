package chunk

import (
	"fmt"
	"math"
)

// Estimator predicts the next round trip from the last ones, in seconds.
type Estimator interface {
	// Observe learns one round trip.
	Observe(seconds float64)
	// Seconds returns the prediction; before the first Observe, the initial one.
	Seconds() float64
}

// The gains of the Jacobson-Karels estimator in the DRTC experiments.
const (
	DefaultAlpha = 0.125
	DefaultBeta  = 0.25
	DefaultK     = 1.5
)

// DefaultFixed is the prediction of the fixed estimator in seconds.
const DefaultFixed = 0.1

// EstimatorNames lists what NewEstimator knows.
var EstimatorNames = []string{"jk", "max_last_10", "fixed"}

// NewEstimator returns the estimator called name. initial is the prediction in
// seconds before the first sample (DRTC: s_min/fps); fixed ignores it.
func NewEstimator(name string, initial float64) (Estimator, error) {
	switch name {
	case "jk":
		return NewJK(initial, DefaultAlpha, DefaultBeta, DefaultK), nil
	case "max_last_10":
		return NewMaxLast(initial), nil
	case "fixed":
		return Fixed(DefaultFixed), nil
	}
	return nil, fmt.Errorf("chunk: no latency estimator %q, want one of %v", name, EstimatorNames)
}

// Steps quantises a latency to action steps: rounded up, at least 1, and at most
// max(1, horizon/2) when a horizon is given (0: no limit), because a delay of
// more than half a chunk leaves no room for an execution horizon.
//
//rt:noalloc
func Steps(seconds, fps float64, horizon int) int {
	steps := max(1, math.Ceil(seconds*fps))
	if horizon > 0 {
		steps = min(steps, float64(max(1, horizon/2)))
	}
	return int(steps)
}

// JK is the Jacobson-Karels estimator: mean + K deviations, both exponentially
// forgotten. The first sample is the mean; the first deviation is 0, not half
// the sample as in TCP.
type JK struct {
	alpha, beta, k float64
	initial        float64
	mean, dev      float64
	seeded         bool
}

// NewJK returns an estimator that predicts initial seconds until its first
// sample.
func NewJK(initial, alpha, beta, k float64) *JK {
	return &JK{initial: initial, alpha: alpha, beta: beta, k: k}
}

// Observe learns one round trip. The deviation uses the mean before this sample.
//
//rt:noalloc
func (e *JK) Observe(seconds float64) {
	if !e.seeded {
		e.mean, e.dev, e.seeded = seconds, 0, true
		return
	}
	err := seconds - e.mean
	// The conversions keep arm64 from fusing the products into the sums.
	e.mean = float64((1-e.alpha)*e.mean) + float64(e.alpha*seconds)
	e.dev = float64((1-e.beta)*e.dev) + float64(e.beta*math.Abs(err))
}

// Seconds returns mean + K deviations.
//
//rt:noalloc
func (e *JK) Seconds() float64 {
	if !e.seeded {
		return e.initial
	}
	return e.mean + float64(e.k*e.dev)
}

// maxLastWindow is the number of round trips that MaxLast remembers.
const maxLastWindow = 10

// MaxLast predicts the longest of the last 10 round trips.
type MaxLast struct {
	initial float64
	window  [maxLastWindow]float64
	n       int // samples so far
}

// NewMaxLast returns an estimator that predicts initial seconds until its first
// sample.
func NewMaxLast(initial float64) *MaxLast { return &MaxLast{initial: initial} }

// Observe learns one round trip and forgets the eleventh last.
//
//rt:noalloc
func (e *MaxLast) Observe(seconds float64) {
	e.window[e.n%maxLastWindow] = seconds
	e.n++
}

// Seconds returns the longest round trip in the window.
//
//rt:noalloc
func (e *MaxLast) Seconds() float64 {
	if e.n == 0 {
		return e.initial
	}
	longest := e.window[0]
	for _, s := range e.window[1:] { // 0 where nothing was observed yet
		longest = max(longest, s)
	}
	return longest
}

// Fixed predicts itself, in seconds, whatever it observes.
type Fixed float64

// Observe does nothing.
func (Fixed) Observe(float64) {}

// Seconds returns the constant.
func (f Fixed) Seconds() float64 { return float64(f) }
