package faults

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/sim/fleet"
)

// Contender is a discipline with its settings and its policy.
type Contender struct {
	Name     string // the name as the command line gives it
	Schedule chunk.Config
	Plain    bool // true: the contender runs on the bundle without a sampler
	Quality  *int // JPEG quality of its pictures; 0: raw pictures; nil: Config.Quality

	flags []string // edge-rt's flags for the same schedule
}

// ParseContender reads a schedule and its options, such as drtc+spans+max_last_10. It refuses an
// option that has no meaning for the schedule or contradicts an earlier option. Otherwise the
// report would show the option beside figures that the option did not change.
func ParseContender(text string) (Contender, error) {
	parts := strings.Split(text, "+")
	c := Contender{Name: text, Schedule: chunk.Config{Schedule: parts[0]}, flags: []string{"--schedule", parts[0]}}
	if !slices.Contains(chunk.Schedules, parts[0]) {
		return c, exit.Errorf(exit.Usage, "--schedule %s: no schedule %q, want one of %s", text, parts[0],
			strings.Join(chunk.Schedules, ", "))
	}
	given := map[string]string{} // for each setting, the option that changes it
	for _, option := range parts[1:] {
		sets, err := c.set(option)
		if err == nil && given[sets] != "" {
			err = fmt.Errorf("%s and %s both set the %s: leave one out", given[sets], option, sets)
		}
		if err != nil {
			return c, exit.Errorf(exit.Usage, "--schedule %s: %w", text, err)
		}
		given[sets] = option
	}
	// jk is drtc's own estimator
	if c.Schedule.EstimatorK != 0 && c.Schedule.Estimator == "" && parts[0] == chunk.Schedules[0] {
		c.Schedule.Estimator, c.flags = "jk", append(c.flags, "--estimator", "jk")
	}
	if err := (&edge.Config{Schedule: c.Schedule, FPS: fleet.FPS}).CheckSchedule(); err != nil {
		return c, exit.Errorf(exit.Usage, "--schedule %s: %w", text, err)
	}
	return c, nil
}

// options are the words that may follow a schedule's name, with their settings and the flags of
// edge-rt for them.
var options = map[string]struct {
	sets, says string
	flags      []string
	set        func(*Contender)
}{
	"compat": {"compat", "as the original does where ours does better", []string{"--compat"}, func(c *Contender) {
		c.Schedule.Compat = true
	}},
	"plain": {"policy", "on the policy without a sampler, --plain", nil, func(c *Contender) { c.Plain = true }},
	"spans": {"prefix", "drtc: prefixes by name", []string{"--prefix", "spans"}, func(c *Contender) {
		c.Schedule.Prefix = "spans"
	}},
	"counts": {"cooldown", "drtc: the paper's cooldown", []string{"--cooldown", "counts"}, func(c *Contender) {
		c.Schedule.Cooldown = "counts"
	}},
	"bare": {"prefix", "drtc: no prefix", []string{"--prefix", "none"}, func(c *Contender) {
		c.Schedule.Prefix = "none"
	}},
}

// quality returns the quality of the contender's pictures: usual, unless an option sets it.
func (c *Contender) quality(usual int) int { return *cmp.Or(c.Quality, &usual) }

// Flags returns edge-rt's flags for the contender, followed by the flags in more. The parameter quality is the JPEG
// quality of its pictures, unless an option sets another one.
func (c *Contender) Flags(quality int, more ...string) []string {
	return slices.Concat(c.flags, []string{"--jpeg-quality", strconv.Itoa(c.quality(quality))}, more)
}

// values are the options that have a value, such as g=0.7. Each has a flag of edge-rt.
var values = map[string]struct {
	flag, says string // flag of edge-rt; empty: the method Flags adds the flag
	set        func(c *Contender, text string) error
}{
	"g": {"--chunk-size-threshold", "async: share of a chunk that is left when the next is asked for, 0 to 1",
		func(c *Contender, text string) error {
			v, err := number(text, 0, 1)
			c.Schedule.Threshold = max(v, math.SmallestNonzeroFloat64) // 0 would mean the default
			return err
		}},
	"similarity": {"--similarity", "async: distance of the joints below which an observation is not sent; 0: all are",
		func(c *Contender, text string) (err error) {
			if c.Schedule.Similarity, err = number(text, 0, 1e6); c.Schedule.Similarity == 0 {
				c.Schedule.Similarity = -1
			}
			return err
		}},
	"buffer": {"--buffer-time", "rtc, append, v1: time that is left when the next chunk is asked for, such as 300ms, " +
		"or auto",
		func(c *Contender, text string) (err error) {
			c.Schedule.Buffer, err = chunk.ParseBuffer(text)
			return err
		}},
	"K": {"--estimator-k", "jk: deviations above the mean, 0.01 to 100",
		func(c *Contender, text string) (err error) {
			c.Schedule.EstimatorK, err = number(text, 0.01, 100)
			return err
		}},
	"s_min": {"--s-min", "drtc: actions to run from each chunk before the next is asked for",
		func(c *Contender, text string) (err error) {
			if c.Schedule.SMin, err = strconv.Atoi(text); err != nil || c.Schedule.SMin < 1 {
				err = fmt.Errorf("%q, want a number of actions", text)
			}
			return err
		}},
	"jpeg": {"", "quality of the pictures, 0 to 100; 0: raw", func(c *Contender, text string) error {
		q, err := strconv.Atoi(text)
		if c.Quality = &q; err != nil || q < 0 || q > 100 {
			err = fmt.Errorf("%q, want a quality of 0 to 100", text)
		}
		return err
	}},
}

// number parses a number within limits.
func number(text string, low, high float64) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= low && v <= high) {
		return 0, fmt.Errorf("%q, want a number from %.3g to %.3g", text, low, high)
	}
	return v, nil
}

// estimatorSays describes the options that name an estimator.
const estimatorSays = "a latency estimator instead of the schedule's own; n of max_last_n is a number"

// optionNames lists the options, estimators last.
func optionNames() []string {
	names := slices.Sorted(maps.Keys(options))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		names = append(names, name+"=N")
	}
	return append(names, chunk.Estimators...)
}

// set applies an option and names the setting that it changes.
func (c *Contender) set(option string) (sets string, err error) {
	if o, ok := options[option]; ok {
		o.set(c)
		c.flags = append(c.flags, o.flags...)
		return o.sets, nil
	}
	name, text, _ := strings.Cut(option, "=")
	if v, ok := values[name]; ok {
		if err = v.set(c, text); err != nil {
			return "", fmt.Errorf("%s is %w", name, err)
		}
		if v.flag != "" {
			c.flags = append(c.flags, v.flag, text)
		}
		return name, nil
	}
	if chunk.CheckEstimator(option) != nil {
		return "", fmt.Errorf("no option %q, want one of %s", option, strings.Join(optionNames(), ", "))
	}
	c.Schedule.Estimator = option
	c.flags = append(c.flags, "--estimator", option)
	return "estimator", nil
}
