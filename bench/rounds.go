package bench

import (
	"fmt"
	"io"
	"slices"
)

// Env is the part that every measurement has beside its own flags.
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

// Turned is the order of one round: every other one is reversed, every other pair begins with the
// next subject, so no subject is always first or always after the same one.
func Turned[T any](subjects []T, round int) []T {
	order := slices.Clone(subjects)
	if round%2 == 1 {
		slices.Reverse(order)
	}
	first := round / 2 % len(order)
	return slices.Concat(order[first:], order[:first])
}
