// Package exit contains the table of exit codes. All programs use this table, and a test compares
// the systemd units with it.
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
	Config   Code = 3 // config, manifest or bundle invalid, or the server refused the robot: do not restart
	Absent   Code = 4 // device or server absent past max_offline: restart slowly
	RealTime Code = 5 // real time refused by the kernel with --rt=require: do not restart
	Fault    Code = 6 // fault that stays until an operator acts: do not restart
)

// Final are the codes after which a restart cannot help: a person has to act first. The units'
// RestartPreventExitStatus= and docs/systemd.md list the same codes.
var Final = []Code{Usage, Config, RealTime, Fault}

// Held are the exit codes of a program that works correctly and ends by its own decision. Only with
// these codes does --on-exit hold leave the arm under torque.
var Held = []Code{Clean, Config, Absent}

// Untouched are the exit codes with which a program ends before it touches the arm, so that a held arm stays held.
// In the systemd units GOTRACEBACK=crash makes a panic end the program by a signal. Otherwise a panic would end it
// with 2, the code of Usage.
var Untouched = []Code{Usage, RealTime}

// coded is an error with its exit code.
type coded struct {
	Code Code
	Err  error
}

func (e *coded) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *coded) Unwrap() error { return e.Err }

// With returns err with the exit code; nil stays nil.
func With(code Code, err error) error {
	if err == nil {
		return nil
	}
	return &coded{code, err}
}

// Errorf returns With(code, fmt.Errorf(format, args...)).
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

// Keep joins two errors: end, the final error of a run, and other. Either may be nil. The exit code is that of end.
func Keep(end, other error) error { return With(Of(end), errors.Join(end, other)) }
