package chunk

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// The disciplines, as --schedule names them. docs/scheduling.md says when to
// choose which.
const (
	ScheduleDRTC   = "drtc"   // asks early and again without waiting; chunks join step by step
	ScheduleRTC    = "rtc"    // LeRobot's RTC engine: one request at a time, its answer replaces the queue
	ScheduleAppend = "append" // LeRobot's engine without RTC: the answer goes behind the queue
	ScheduleAsync  = "async"  // SmolVLA's client: asks below a share of the queue, blends what overlaps
	ScheduleV1     = "v1"     // the first remote proposal: trims by the round trip, blends what overlaps
	ScheduleSync   = "sync"   // asks when nothing is left, and waits
)

// Schedules lists what New knows, the default first.
var Schedules = []string{ScheduleDRTC, ScheduleRTC, ScheduleAppend, ScheduleAsync, ScheduleV1, ScheduleSync}

// What conditions a chunk of drtc, as --prefix names it.
const (
	PrefixRows  = "rows"  // the rows that will run meanwhile, as the arm will run them
	PrefixSpans = "spans" // where these rows stand in the server's own answers
	PrefixNone  = "none"  // nothing
)

// Prefixes lists the ways to condition, the default first.
var Prefixes = []string{PrefixRows, PrefixSpans, PrefixNone}

// The defaults of a Config's fields.
const (
	DefaultBufferTime     = 500 * time.Millisecond
	DefaultThreshold      = 0.5
	DefaultSimilarity     = 1.0
	DefaultRequestTimeout = 5 * time.Second
)

// MaxBufferTime is longer than any chunk lasts.
const MaxBufferTime = time.Minute

// Config says which discipline, for chunks of which size. The zero value of a
// field that has a default means it.
type Config struct {
	Schedule  string  // of Schedules
	Horizon   int     // rows of a chunk
	DOF       int     // joints
	FPS       float64 // actions per second
	PrefixEnd int     // row at which the bundle's conditioning ends; 0: no limit

	// Epsilon is how many ticks beyond the latency estimate an answer is waited
	// for, see DefaultEpsilon. Compat behaves as the original does where we do
	// better; what that is stands at each discipline.
	Epsilon int
	Compat  bool

	Estimator EstimatorConfig // name empty: the schedule's own

	SMin     int           // drtc: fewest actions to run from each chunk; 0: DefaultSMin
	Prefix   string        // drtc: of Prefixes
	Cooldown CooldownMode  // drtc
	Buffer   time.Duration // rtc, append, v1: ask when the actions left last no longer; 0: DefaultBufferTime

	Threshold  float64   // async: ask when at most this share of a chunk is left; 0: DefaultThreshold
	Similarity float64   // async: distance of the states below which an observation says nothing new; 0: DefaultSimilarity, negative: off
	Aggregate  Aggregate // async, v1: what becomes of a step that is predicted twice

	RequestTimeout time.Duration // compat: how long rtc, append and sync wait; 0: DefaultRequestTimeout
}

// New returns the discipline that c names, or one line that says what is wrong.
func New(c Config) (Discipline, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	estimator, err := NewEstimator(c.Estimator)
	if err != nil {
		return nil, err
	}
	switch c.Schedule {
	case ScheduleDRTC:
		return newDRTC(c, estimator), nil
	case ScheduleAsync:
		return newAsync(c, estimator), nil
	case ScheduleV1:
		return newV1(c, estimator), nil
	default:
		return newWorker(c, estimator), nil
	}
}

// Conditioned says whether the discipline sends what will run meanwhile.
func (c *Config) Conditioned() bool {
	return c.Schedule == ScheduleRTC || c.Schedule == ScheduleDRTC && c.Prefix != PrefixNone
}

// fill puts in the defaults and refuses what cannot run.
func (c *Config) fill() error {
	if !slices.Contains(Schedules, c.Schedule) {
		return fmt.Errorf("chunk: no schedule %q, want %s", c.Schedule, strings.Join(Schedules, ", "))
	}
	if c.Horizon < 2 || c.DOF < 1 || !(c.FPS > 0) || c.PrefixEnd < 0 {
		return fmt.Errorf("chunk: horizon %d, %d joints, %v fps, prefix end %d: want at least 2, 1, more than 0 and 0",
			c.Horizon, c.DOF, c.FPS, c.PrefixEnd)
	}
	if c.Epsilon < 0 || c.Epsilon >= c.Horizon {
		return fmt.Errorf("chunk: epsilon is %d, want 0 to %d ticks: the chunks have %d actions, and a lost one is asked for again before they are over",
			c.Epsilon, c.Horizon-1, c.Horizon)
	}
	if c.SMin == 0 {
		c.SMin = DefaultSMin(c.Horizon)
	}
	if c.SMin < 1 || c.SMin >= c.Horizon {
		return fmt.Errorf("chunk: s_min is %d, want 1 to %d: the chunks have %d actions", c.SMin, c.Horizon-1, c.Horizon)
	}
	if c.Prefix == "" {
		c.Prefix = PrefixRows
	}
	if !slices.Contains(Prefixes, c.Prefix) {
		return fmt.Errorf("chunk: no prefix %q, want %s", c.Prefix, strings.Join(Prefixes, ", "))
	}
	if c.Buffer == 0 {
		c.Buffer = DefaultBufferTime
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = DefaultRequestTimeout
	}
	if c.Threshold == 0 {
		c.Threshold = DefaultThreshold
	}
	if c.Similarity == 0 {
		c.Similarity = DefaultSimilarity
	}
	if c.Buffer < 0 || c.Buffer > MaxBufferTime {
		return fmt.Errorf("chunk: buffer time is %v, want more than 0 and at most %v", c.Buffer, MaxBufferTime)
	}
	if c.RequestTimeout < 0 {
		return fmt.Errorf("chunk: request timeout is %v, want more than 0", c.RequestTimeout)
	}
	if !(c.Threshold > 0 && c.Threshold <= 1) {
		return fmt.Errorf("chunk: chunk size threshold is %v, want 0 to 1, the share of a chunk that is left", c.Threshold)
	}
	if math.IsNaN(c.Similarity) || math.IsInf(c.Similarity, 0) {
		return fmt.Errorf("chunk: similarity is %v, want a distance in robot units", c.Similarity)
	}
	if c.Cooldown >= numCooldowns || c.Aggregate >= numAggregates {
		return fmt.Errorf("chunk: no such cooldown (%d) or aggregate (%d)", c.Cooldown, c.Aggregate)
	}
	e := &c.Estimator
	if e.Name == "" {
		e.Name, e.Window = c.ownEstimator()
	}
	if e.Initial == 0 {
		e.Initial = float64(c.SMin) / c.FPS
	}
	return nil
}

// ownEstimator returns the estimator of the schedule's source.
func (c *Config) ownEstimator() (name string, window int) {
	switch c.Schedule {
	case ScheduleRTC, ScheduleAppend:
		return EstimatorLeRobot, 0
	case ScheduleV1:
		return EstimatorMaxLast, 1
	}
	return EstimatorJK, 0
}

// ticks returns how many ticks a time lasts, rounded up.
func (c *Config) ticks(d time.Duration) int { return lerobotSteps(d.Seconds(), c.FPS) }
