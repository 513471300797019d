package faults

import (
	"fmt"
	"maps"
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
	Name     string // as it was typed
	Schedule chunk.Config
	Plain    bool // on the bundle without a sampler

	flags []string // edge-rt's flags for the same schedule
}

// ParseContender reads a schedule and its options, such as drtc+spans+max_last_10. An option
// without a meaning for the schedule, or against an earlier one, is refused: otherwise the report
// would show its name beside figures that it did not change.
func ParseContender(text string) (Contender, error) {
	parts := strings.Split(text, "+")
	c := Contender{Name: text, Schedule: chunk.Config{Schedule: parts[0]}, flags: []string{"--schedule", parts[0]}}
	if !slices.Contains(chunk.Schedules, parts[0]) {
		return c, exit.Errorf(exit.Usage, "--schedule %s: no schedule %q, want one of %s", text, parts[0],
			strings.Join(chunk.Schedules, ", "))
	}
	given := map[string]string{} // option by the setting that it changes
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

// The options that are not fixed words, for lists.
const (
	sMinOption    = "s_min="
	sMinSays      = "drtc: actions to run from each chunk before the next is asked for"
	estimatorSays = "a latency estimator instead of the schedule's own; n of max_last_n is a number"
)

// optionNames lists the options, estimators last.
func optionNames() []string {
	return slices.Concat(slices.Sorted(maps.Keys(options)), []string{sMinOption + "N"}, chunk.Estimators)
}

// set applies an option and names the setting that it changes.
func (c *Contender) set(option string) (sets string, err error) {
	if o, ok := options[option]; ok {
		o.set(c)
		c.flags = append(c.flags, o.flags...)
		return o.sets, nil
	}
	if n, ok := strings.CutPrefix(option, sMinOption); ok {
		if c.Schedule.SMin, err = strconv.Atoi(n); err != nil || c.Schedule.SMin < 1 {
			return "", fmt.Errorf("s_min is %q, want a number of actions", n)
		}
		c.flags = append(c.flags, "--s-min", n)
		return "s_min", nil
	}
	if chunk.CheckEstimator(option) != nil {
		return "", fmt.Errorf("no option %q, want one of %s", option, strings.Join(optionNames(), ", "))
	}
	c.Schedule.Estimator = option
	c.flags = append(c.flags, "--estimator", option)
	return "estimator", nil
}
