package chunk

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// The disciplines, the values of Config.Schedule.
const (
	scheduleDRTC   = "drtc"   // requests early, and again before an answer arrives; chunks join step by step
	scheduleRTC    = "rtc"    // LeRobot's RTC engine: one request at a time, whose answer replaces the queue
	scheduleAppend = "append" // LeRobot's engine without RTC: the answer is appended to the queue
	scheduleAsync  = "async"  // SmolVLA's client: requests below a share of the queue, blends overlapping steps
	scheduleV1     = "v1"     // the first remote proposal: drops rows by the round trip, blends overlapping steps
	scheduleSync   = "sync"   // requests when no action is left, and waits
)

// Schedules lists the values of Config.Schedule, the default first: drtc, rtc, append, async, v1,
// sync. docs/scheduling.md explains when to choose which.
var Schedules = []string{scheduleDRTC, scheduleRTC, scheduleAppend, scheduleAsync, scheduleV1, scheduleSync}

// The conditioning of a chunk of drtc, the values of Config.Prefix.
const (
	prefixRows  = "rows"  // rows as the arm will run them until the answer
	prefixSpans = "spans" // the place of these rows in the server's earlier answers
	prefixNone  = "none"  // no prefix
)

var prefixes = []string{prefixRows, prefixSpans, prefixNone}

// The length of drtc's cooldown, the values of Config.Cooldown. The DRTC program has the last three; of these, only
// "counts" recovers from a lost answer without a flood of requests.
//
// After a spike the estimate stays high for many round trips. With a cooldown of this length, one lost answer would
// cost most of the actions left. So the default, "runway", waits at most until half of the actions left have run, but
// at least for a mean round trip.
const (
	cooldownRunway = "runway" // like "counts", but at most max(half of the actions left, mean round trip)
	cooldownCounts = "counts" // counts down with every tick
	cooldownMerge  = "merge"  // ends only when a chunk is merged
	cooldownOff    = "off"    // no cooldown: every tick below the threshold sends a request
)

// Cooldowns lists the values of Config.Cooldown, the default first; merge and off need Compat.
var Cooldowns = []string{cooldownRunway, cooldownCounts, cooldownMerge, cooldownOff}

// DefaultEpsilon is the usual Config.Epsilon.
const DefaultEpsilon = 1

// The defaults of Config's fields.
const (
	defaultBuffer         = 500 * time.Millisecond
	defaultThreshold      = 0.5
	defaultSimilarity     = 1.0
	defaultRequestTimeout = 5 * time.Second
)

// maxBuffer is the largest Config.Buffer. The actions of a usual chunk last only seconds.
const maxBuffer = time.Minute

// With AutoBuffer as Config.Buffer, the buffer follows the measured round trip. Before the first answer it is
// defaultBuffer. Then it is bufferTrips times the sum of the mean and defaultK deviations, and a margin, so that the
// answer to a repeated request still arrives in time when the first answer is lost. The buffer is from bufferLeast, the
// time of a few actions, to bufferMost, the usual greatest age of an action: the last actions of a larger buffer would
// be too old to run.
const (
	AutoBuffer  = time.Duration(-1)
	bufferTrips = 2
	bufferLeast = 100 * time.Millisecond
	bufferMost  = 3 * time.Second
)

// Config selects a discipline and the size of its chunks. A zero field means its default, if it has a default.
type Config struct {
	Schedule  string  // element of Schedules
	Horizon   int     // rows of a chunk
	DOF       int     // joints
	FPS       float64 // actions per second
	PrefixEnd int     // row at which the bundle's conditioning ends; 0: no limit
	Epsilon   int     // ticks to wait for an answer, beyond the latency estimate
	Compat    bool    // run the discipline of the original program, with its faults

	Estimator      string        // see CheckEstimator; empty: the default of the schedule
	EstimatorK     float64       // jk: deviations above the mean; 0: 1.5
	EstimatorFixed time.Duration // fixed: the prediction; 0: 100 ms

	SMin     int           // drtc: fewest actions to run from each chunk; 0: 0.4 of the horizon
	Prefix   string        // drtc: rows (default), spans or none
	Cooldown string        // drtc: one of Cooldowns; with Compat the default is counts
	Buffer   time.Duration // rtc, append, v1: request below this runway; 0: 500 ms; or AutoBuffer

	Threshold  float64 // async: request when at most this share of a chunk is left; 0: 0.5
	Similarity float64 // async: least distance of a state from the state answered last; 0: 1; below 0: any distance
	Aggregate  string  // async, v1: how two predictions for a step become one action, see Aggregates

	RequestTimeout time.Duration // Compat: time-out of a request of rtc, append and sync; 0: 5 s
}

// New returns the discipline that c selects. If c has a defect, New returns an error of one line.
func New(c Config) (Discipline, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	e, err := newEstimator(c.Estimator, float64(c.SMin)/c.FPS, c.EstimatorK, c.EstimatorFixed)
	if err != nil {
		return nil, err
	}
	switch {
	case c.Schedule == scheduleDRTC && c.Compat:
		return newOriginalDRTC(c, e), nil
	case c.Schedule == scheduleDRTC:
		return newDRTC(c, e), nil
	}
	b, err := newQueueBase(c, e)
	if err != nil {
		return nil, err
	}
	switch c.Schedule {
	case scheduleAsync:
		if c.Compat {
			return newOriginalAsync(b), nil
		}
		return newAsync(b), nil
	case scheduleV1:
		if c.Compat {
			return &originalV1{b}, nil
		}
		return &v1{queueBase: b, newest: noKey}, nil
	}
	if c.Compat {
		return &originalEngine{b}, nil
	}
	return newSequential(b), nil
}

// GivesUp reports whether the discipline refuses answers that arrive after RequestTimeout.
func (c *Config) GivesUp() bool {
	return c.Compat && (c.Schedule == scheduleRTC || c.Schedule == scheduleAppend || c.Schedule == scheduleSync)
}

// Buffered reports whether the discipline uses Config.Buffer.
func (c *Config) Buffered() bool {
	return slices.Contains([]string{scheduleRTC, scheduleAppend, scheduleV1}, c.Schedule)
}

// DefaultSMin is the default of Config.SMin.
func DefaultSMin(horizon int) int { return max(1, 2*horizon/5) }

// Conditioned reports whether a request contains the actions that will run before its answer.
func (c *Config) Conditioned() bool {
	return c.Schedule == scheduleRTC || c.Schedule == scheduleDRTC && c.Prefix != prefixNone
}

func (c *Config) fill() error {
	if !slices.Contains(Schedules, c.Schedule) {
		return fmt.Errorf("chunk: no schedule %q, want %s", c.Schedule, strings.Join(Schedules, ", "))
	}
	if c.Horizon < 2 || c.DOF < 1 || !(c.FPS > 0) || c.PrefixEnd < 0 {
		return fmt.Errorf("chunk: horizon %d, %d joints, %v fps, prefix end %d: want at least 2, 1, more than 0 and 0",
			c.Horizon, c.DOF, c.FPS, c.PrefixEnd)
	}
	if c.Epsilon < 0 || c.Epsilon >= c.Horizon {
		return fmt.Errorf("chunk: epsilon is %d, want 0 to %d ticks: the chunks have %d actions, and a lost one is "+
			"asked for again before they are over",
			c.Epsilon, c.Horizon-1, c.Horizon)
	}
	c.SMin = cmp.Or(c.SMin, DefaultSMin(c.Horizon))
	c.Prefix = cmp.Or(c.Prefix, prefixRows)
	c.Cooldown = cmp.Or(c.Cooldown, cooldownRunway)
	if c.Buffered() {
		c.Buffer = cmp.Or(c.Buffer, defaultBuffer)
	}
	c.RequestTimeout = cmp.Or(c.RequestTimeout, defaultRequestTimeout)
	c.Threshold = cmp.Or(c.Threshold, defaultThreshold)
	c.Similarity = cmp.Or(c.Similarity, defaultSimilarity)
	c.Estimator = cmp.Or(c.Estimator, c.ownEstimator())
	switch {
	case c.SMin < 1 || c.SMin >= c.Horizon:
		return fmt.Errorf("chunk: s_min is %d, want 1 to %d: the chunks have %d actions", c.SMin, c.Horizon-1,
			c.Horizon)
	case !slices.Contains(prefixes, c.Prefix):
		return fmt.Errorf("chunk: no prefix %q, want %s", c.Prefix, strings.Join(prefixes, ", "))
	case !slices.Contains(Cooldowns, c.Cooldown):
		return fmt.Errorf("chunk: no cooldown %q, want %s", c.Cooldown, strings.Join(Cooldowns, ", "))
	case !c.Compat && slices.Contains(Cooldowns[2:], c.Cooldown):
		return fmt.Errorf("chunk: cooldown %s is the original's alone", c.Cooldown)
	case c.Buffer == AutoBuffer && c.Compat:
		return errors.New("chunk: a buffer time that follows the round trip is not part of any original")
	case c.Buffer != AutoBuffer && (c.Buffer < 0 || c.Buffer > maxBuffer):
		return fmt.Errorf("chunk: buffer time is %v, want more than 0 and at most %v", c.Buffer, maxBuffer)
	case c.RequestTimeout < 0:
		return fmt.Errorf("chunk: request timeout is %v, want more than 0", c.RequestTimeout)
	case !(c.Threshold > 0 && c.Threshold <= 1):
		return fmt.Errorf("chunk: chunk size threshold is %v, want 0 to 1, the share of a chunk that is left",
			c.Threshold)
	case math.IsNaN(c.Similarity) || math.IsInf(c.Similarity, 0):
		return fmt.Errorf("chunk: similarity is %v, want a distance in robot units", c.Similarity)
	}
	_, err := parseAggregate(c.Aggregate)
	return err
}

func (c *Config) ownEstimator() string {
	switch c.Schedule {
	case scheduleRTC, scheduleAppend:
		return "lerobot"
	case scheduleV1:
		return "max_last_1"
	}
	return "jk"
}

func (c *Config) ticks(d time.Duration) int { return lerobotSteps(d.Seconds(), c.FPS) }

// prefixEnd returns the row at which drtc's conditioning ends: at most PrefixEnd, and so that the last max(s_min,
// delay) rows stay free.
//
//rt:noalloc
func (c *Config) prefixEnd(delay int) int {
	end := c.Horizon - max(c.SMin, delay)
	if c.PrefixEnd > 0 {
		end = min(end, c.PrefixEnd)
	}
	return max(end, 0)
}
