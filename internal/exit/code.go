// Package exit contains the one table of exit codes, which both programs share and the systemd
// units are tested against.
package exit

import (
	"errors"
	"fmt"
)

// Code is a process exit status.
type Code int

// The table. RestartPreventExitStatus= in the units lists the codes after which
// a restart cannot help.
const (
	Clean    Code = 0 // stopped as asked
	Failure  Code = 1 // a failure while running: restart
	Usage    Code = 2 // a flag or argument is wrong: do not restart
	Config   Code = 3 // config, manifest or bundle invalid, or a contract refused: do not restart
	Absent   Code = 4 // device or server absent past max_offline: restart slowly
	RealTime Code = 5 // real time refused by the kernel with --rt=require: do not restart
	Fault    Code = 6 // fault latched, an operator is needed: do not restart
)

// Final are the codes after which a restart cannot help: a person has to act first. The units'
// RestartPreventExitStatus= and the README list the same.
var Final = []Code{Usage, Config, RealTime, Fault}

// Held are the codes of ends that the program decided on while it worked correctly: only after
// these --on-exit hold leaves the arm under torque.
var Held = []Code{Clean, Config, Absent}

// Untouched are the codes of ends before the arm is touched: a held arm stays held. A panic under
// the units is a signal (GOTRACEBACK=crash), not Usage.
var Untouched = []Code{Usage, RealTime}

// coded is an error with its exit code.
type coded struct {
	Code Code
	Err  error
}

func (e *coded) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *coded) Unwrap() error { return e.Err }

// With gives err the exit code; nil stays nil.
func With(code Code, err error) error {
	if err == nil {
		return nil
	}
	return &coded{code, err}
}

// Errorf is With(code, fmt.Errorf(format, args...)).
func Errorf(code Code, format string, args ...any) error {
	return With(code, fmt.Errorf(format, args...))
}

// Of returns the exit code of err: Clean for nil, Failure for an error without a code.
func Of(err error) Code {
	var e *coded
	switch {
	case err == nil:
		return Clean
	case errors.As(err, &e):
		return e.Code
	default:
		return Failure
	}
}

// Keep adds other to a run's final error end, which may be nil, under the code of end.
func Keep(end, other error) error { return With(Of(end), errors.Join(end, other)) }
