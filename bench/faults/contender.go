package faults

import (
	"fmt"
	"slices"
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

// Options lists what may follow a schedule's name.
func Options() []string {
	return slices.Concat([]string{"compat", "plain"}, chunk.Prefixes, chunk.AggregateNames, chunk.EstimatorNames)
}

func (c *Contender) set(option string) error {
	switch {
	case option == "plain":
		c.Plain = true
		return nil
	case option == "compat":
		c.Schedule.Compat = true
		return nil
	case slices.Contains(chunk.Prefixes, option):
		c.Schedule.Prefix = option
		return nil
	}
	if f, err := chunk.AggregateByName(option); err == nil {
		c.Schedule.Aggregate = f
		return nil
	}
	estimator, err := chunk.ParseEstimator(option)
	if err != nil {
		return fmt.Errorf("no option %q, want one of %s", option, strings.Join(Options(), ", "))
	}
	c.Schedule.Estimator = estimator
	return nil
}
