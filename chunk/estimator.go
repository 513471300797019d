package chunk

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
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

// Bounds of what somebody may ask an estimator for: more of either is a typing
// error.
const (
	maxK     = 100.0
	maxFixed = time.Minute
)

// The estimators, as --estimator names them.
const (
	EstimatorJK      = "jk"         // mean + K deviations, both forgotten exponentially
	EstimatorMaxLast = "max_last_n" // the longest of the last n
	EstimatorFixed   = "fixed"      // always the same
	EstimatorLeRobot = "lerobot"    // the longest ever, LeRobot's LatencyTracker
	lastOf           = "max_last_"  // + n
)

// EstimatorNames lists the estimators; n of max_last_n is a number.
var EstimatorNames = []string{EstimatorJK, EstimatorMaxLast, EstimatorFixed, EstimatorLeRobot}

// ParseEstimator reads an estimator's name: jk, max_last_10, fixed, lerobot.
// max_last_n itself is max_last_10, as in the DRTC program.
func ParseEstimator(name string) (EstimatorConfig, error) {
	c := EstimatorConfig{Name: name}
	if n, ok := strings.CutPrefix(name, lastOf); ok && name != EstimatorMaxLast {
		window, err := strconv.Atoi(n)
		if err != nil || window < 1 {
			return c, fmt.Errorf("chunk: no latency estimator %q, want a number of round trips behind %s, such as max_last_10", name, lastOf)
		}
		c.Name, c.Window = EstimatorMaxLast, window
	}
	_, err := NewEstimator(c)
	return c, err
}

// EstimatorConfig says which estimator.
type EstimatorConfig struct {
	Name    string        // of EstimatorNames
	Initial float64       // jk, max_last_n: seconds predicted before the first sample (DRTC: s_min/fps)
	K       float64       // jk: deviations above the mean; 0: DefaultK
	Window  int           // max_last_n: round trips that count; 0: 10, at most MaxWindow
	Fixed   time.Duration // fixed; 0: DefaultFixed
}

// NewEstimator returns the estimator that c names.
func NewEstimator(c EstimatorConfig) (Estimator, error) {
	if c.K == 0 {
		c.K = DefaultK
	}
	if c.Window == 0 {
		c.Window = defaultWindow
	}
	if c.Fixed == 0 {
		c.Fixed = time.Duration(DefaultFixed * float64(time.Second))
	}
	if !(c.K > 0 && c.K <= maxK) {
		return nil, fmt.Errorf("chunk: the latency estimator's K is %v, want above 0 and up to %v deviations", c.K, maxK)
	}
	if c.Window < 1 || c.Window > MaxWindow {
		return nil, fmt.Errorf("chunk: the latency estimator remembers %d round trips, want 1 to %d", c.Window, MaxWindow)
	}
	if c.Fixed < 0 || c.Fixed > maxFixed || !(c.Initial >= 0) {
		return nil, fmt.Errorf("chunk: a fixed latency of %v and a first one of %v s, want more than 0 and up to %v, and no negative one", c.Fixed, c.Initial, maxFixed)
	}
	switch c.Name {
	case EstimatorJK:
		return NewJK(c.Initial, DefaultAlpha, DefaultBeta, c.K), nil
	case EstimatorMaxLast:
		return NewMaxLast(c.Initial, c.Window), nil
	case EstimatorFixed:
		return Fixed(c.Fixed.Seconds()), nil
	case EstimatorLeRobot:
		return NewLatencyTracker(DefaultTrackerSize), nil
	}
	return nil, fmt.Errorf("chunk: no latency estimator %q, want %s", c.Name, strings.Join(EstimatorNames, ", "))
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

// stepsMax bounds what a latency can be quantised to: beyond it, nobody waits.
const stepsMax = 1 << 20

// lerobotSteps quantises a latency as LeRobot's engines do: rounded up, 0 for
// none. The order of operations is theirs, for it decides on the last bit.
//
//rt:noalloc
func lerobotSteps(seconds, fps float64) int {
	return int(min(math.Ceil(seconds/(1/fps)), stepsMax))
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

// meanEstimator also tells the round trip without the margin for its deviation;
// false before the first sample.
type meanEstimator interface {
	Mean() (seconds float64, ok bool)
}

// Mean returns the mean without deviations, false before the first sample.
//
//rt:noalloc
func (e *JK) Mean() (seconds float64, ok bool) { return e.mean, e.seeded }

// Seconds returns mean + K deviations.
//
//rt:noalloc
func (e *JK) Seconds() float64 {
	if !e.seeded {
		return e.initial
	}
	return e.mean + float64(e.k*e.dev)
}

// MaxWindow is the most round trips that MaxLast remembers; defaultWindow is the
// DRTC program's.
const (
	MaxWindow     = 1000
	defaultWindow = 10
)

// MaxLast predicts the longest of the last round trips.
type MaxLast struct {
	initial float64
	window  []float64
	n       int // samples so far
}

// NewMaxLast returns an estimator that remembers as many round trips as window
// says, and predicts initial seconds until its first sample.
func NewMaxLast(initial float64, window int) *MaxLast {
	return &MaxLast{initial: initial, window: make([]float64, window)}
}

// Observe learns one round trip and forgets the oldest.
//
//rt:noalloc
func (e *MaxLast) Observe(seconds float64) {
	e.window[e.n%len(e.window)] = seconds
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
