package chunk

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// estimator predicts the next round trip from the last ones, in seconds.
type estimator interface {
	// observe adds the sample of one round trip.
	observe(seconds float64)
	// seconds returns the prediction. Before the first observe it is the initial prediction.
	seconds() float64
}

// Estimators lists the values of Config.Estimator. The n in max_last_n is a number; max_last_n itself means
// max_last_10, as in the DRTC program.
var Estimators = []string{"jk", "max_last_n", "fixed", "lerobot"}

// The gains of the Jacobson-Karels estimator in the DRTC experiments, the prediction of the estimator fixed, and the
// number of round trips that max_last_n keeps.
const (
	defaultAlpha  = 0.125
	defaultBeta   = 0.25
	defaultK      = 1.5
	defaultFixed  = 100 * time.Millisecond
	defaultWindow = 10
)

// Bounds of the estimators' settings. A larger value must be a typing error.
const (
	maxK      = 100.0
	maxFixed  = time.Minute
	maxWindow = 1000
)

// CheckEstimator returns an error unless name is a value of Config.Estimator.
func CheckEstimator(name string) error {
	_, err := newEstimator(name, 0, 0, 0)
	return err
}

// newEstimator returns the estimator with the name, such as jk, max_last_10, fixed or lerobot. The parameter initial is
// the prediction of jk and max_last_n before the first sample, in seconds. The parameter k is Config.EstimatorK for jk,
// and constant is the prediction of fixed; 0 selects their defaults.
func newEstimator(name string, initial, k float64, constant time.Duration) (estimator, error) {
	if k == 0 {
		k = defaultK
	}
	if !(k > 0 && k <= maxK) {
		return nil, fmt.Errorf("chunk: the latency estimator's K is %v, want above 0 and up to %v deviations", k, maxK)
	}
	if constant == 0 {
		constant = defaultFixed
	}
	if constant < 0 || constant > maxFixed {
		return nil, fmt.Errorf("chunk: a fixed latency of %v, want more than 0 and up to %v", constant, maxFixed)
	}
	switch {
	case name == "jk":
		return &jacobsonKarels{
			initial: initial,
			alpha:   defaultAlpha,
			beta:    defaultBeta,
			k:       k,
		}, nil
	case name == "fixed":
		return fixed(constant.Seconds()), nil
	case name == "lerobot":
		return new(longest), nil
	}
	window, isWindow := strings.CutPrefix(name, "max_last_")
	switch n, err := strconv.Atoi(window); {
	case slices.Contains(Estimators, name): // max_last_n
		return newMaxLast(initial, defaultWindow), nil
	case !isWindow:
		return nil, fmt.Errorf("chunk: no latency estimator %q, want %s", name, strings.Join(Estimators, ", "))
	case err != nil || n < 1:
		return nil, fmt.Errorf("chunk: no latency estimator %q, want a number of round trips after max_last_, such "+
			"as max_last_10", name)
	case n > maxWindow:
		return nil, fmt.Errorf("chunk: the latency estimator remembers %d round trips, want 1 to %d", n, maxWindow)
	default:
		return newMaxLast(initial, n), nil
	}
}

// steps converts a latency to action steps, rounded up. The result is at least 1 and at most half the horizon (0: no
// limit), because after a longer delay too few rows are left to run.
//
//rt:noalloc
func steps(seconds, fps float64, horizon int) int {
	steps := max(1, math.Ceil(seconds*fps))
	if horizon > 0 {
		steps = min(steps, float64(max(1, horizon/2)))
	}
	return int(steps)
}

// stepsMax bounds a quantised latency.
const stepsMax = 1 << 20

// lerobotSteps converts a latency to action steps as LeRobot's engines do: rounded up, 0 for no latency. The order of
// operations is LeRobot's, because it determines the last bit.
//
//rt:noalloc
func lerobotSteps(seconds, fps float64) int {
	return int(min(math.Ceil(seconds/(1/fps)), stepsMax))
}

// jacobsonKarels predicts mean + K deviations. Both are exponential averages: the mean begins with the first sample,
// and the deviation with 0, not with half the sample as in TCP.
type jacobsonKarels struct {
	alpha, beta, k float64
	initial        float64
	mean, dev      float64
	seeded         bool
}

//rt:noalloc
func (e *jacobsonKarels) observe(seconds float64) {
	if !e.seeded {
		e.mean = seconds
		e.dev = 0
		e.seeded = true
		return
	}
	err := seconds - e.mean
	// The conversions keep arm64 from fusing the products into the sums.
	e.mean = float64((1-e.alpha)*e.mean) + float64(e.alpha*seconds)
	e.dev = float64((1-e.beta)*e.dev) + float64(e.beta*math.Abs(err))
}

//rt:noalloc
func (e *jacobsonKarels) seconds() float64 {
	if !e.seeded {
		return e.initial
	}
	return e.mean + float64(e.k*e.dev)
}

// maxLast predicts the longest of the last round trips.
type maxLast struct {
	initial float64
	window  []float64
	n       int // number of samples so far
}

func newMaxLast(initial float64, window int) *maxLast {
	return &maxLast{initial: initial, window: make([]float64, window)}
}

//rt:noalloc
func (e *maxLast) observe(seconds float64) {
	e.window[e.n%len(e.window)] = seconds
	e.n++
}

//rt:noalloc
func (e *maxLast) seconds() float64 {
	if e.n == 0 {
		return e.initial
	}
	return slices.Max(e.window) // the places of missing samples are 0
}

// fixed predicts a constant, its value in seconds.
type fixed float64

func (fixed) observe(float64) {}

func (f fixed) seconds() float64 { return float64(f) }

// longest predicts the longest round trip so far, 0 before the first. Unlike jk, it is affected by one slow answer for
// the rest of the run.
//
// Source: lerobot policies/rtc/latency_tracker.py.
type longest float64

// observe ignores a negative round trip, as LatencyTracker.add does.
//
//rt:noalloc
func (l *longest) observe(seconds float64) { *l = max(*l, longest(seconds)) }

//rt:noalloc
func (l *longest) seconds() float64 { return float64(*l) }
