package jitter

import (
	"os/exec"

	"edgert/bench"
)

// process is a program that is measured, or measures beside it.
type process struct {
	*bench.Child
	threads string // its scheduling classes while it measured, as bench.ClassesOf says
}

func start(cmd *exec.Cmd) (*process, error) {
	c, err := bench.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &process{Child: c}, nil
}
