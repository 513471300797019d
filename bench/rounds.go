package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/internal/exit"
)

// Env is the part of a Config that all measurements share.
type Env struct {
	Version string    `kong:"-"`
	Command string    `kong:"-"` // command line, for the reader of a report
	Log     io.Writer `kong:"-"` // gets lines of progress; nil: no progress
}

// Progress writes a line about the progress of the measurement.
func (e *Env) Progress(format string, args ...any) {
	if e.Log != nil {
		fmt.Fprintf(e.Log, format, args...)
	}
}

// Distinct refuses a flag's values if there are none, or if one occurs twice.
func Distinct(flag string, values []string) error {
	if len(values) == 0 {
		return exit.Errorf(exit.Usage, "%s names nothing to measure", flag)
	}
	if len(slices.Compact(slices.Sorted(slices.Values(values)))) < len(values) {
		return exit.Errorf(exit.Usage, "%s %s: want each once", flag, strings.Join(values, ","))
	}
	return nil
}

// Turned returns the order of one round. Every second round is reversed, and after two rounds the
// next subject begins. So no subject is always first, or always after the same subject.
func Turned[T any](subjects []T, round int) []T {
	order := slices.Clone(subjects)
	if round%2 == 1 {
		slices.Reverse(order)
	}
	first := round / 2 % len(order)
	return slices.Concat(order[first:], order[:first])
}
