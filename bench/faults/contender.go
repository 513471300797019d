package faults

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"edgert/chunk"
	"edgert/internal/exit"
)

// Contender is a discipline with its settings and the policy it runs on.
type Contender struct {
	Name     string // as it was typed
	Schedule chunk.Config
	Plain    bool // on the bundle without a sampler
}

// ParseContender reads a schedule's name and its options, joined by plus signs:
// drtc, rtc+compat, drtc+spans, drtc+max_last_10, async+plain.
func ParseContender(text string) (Contender, error) {
	parts := strings.Split(text, "+")
	c := Contender{Name: text, Schedule: chunk.Config{Schedule: parts[0]}}
	if !slices.Contains(chunk.Schedules, parts[0]) {
		return c, exit.Errorf(exit.Usage, "--schedule %s: no schedule %q, want one of %s", text, parts[0], strings.Join(chunk.Schedules, ", "))
	}
	for _, option := range parts[1:] {
		if err := c.set(option); err != nil {
			return c, exit.Errorf(exit.Usage, "--schedule %s: %w", text, err)
		}
	}
	return c, nil
}

// options are what may follow a schedule's name.
var options = map[string]func(*Contender){
	"compat": func(c *Contender) { c.Schedule.Compat = true },
	"plain":  func(c *Contender) { c.Plain = true },
	"spans":  func(c *Contender) { c.Schedule.Prefix = chunk.PrefixSpans },
	"counts": func(c *Contender) { c.Schedule.Cooldown = chunk.CooldownCounts },
	"bare":   func(c *Contender) { c.Schedule.Prefix = chunk.PrefixNone },
}

// Options lists the options, estimators last.
func Options() []string {
	return slices.Concat(slices.Sorted(maps.Keys(options)), []string{"s_min=N"}, chunk.EstimatorNames)
}

func (c *Contender) set(option string) error {
	if set := options[option]; set != nil {
		set(c)
		return nil
	}
	if n, ok := strings.CutPrefix(option, "s_min="); ok {
		var err error
		if c.Schedule.SMin, err = strconv.Atoi(n); err != nil || c.Schedule.SMin < 1 {
			return fmt.Errorf("s_min is %q, want a number of actions", n)
		}
		return nil
	}
	estimator, err := chunk.ParseEstimator(option)
	if err != nil {
		return fmt.Errorf("no option %q, want one of %s", option, strings.Join(Options(), ", "))
	}
	c.Schedule.Estimator = estimator
	return nil
}
