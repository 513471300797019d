//go:build !linux

package bench

import (
	"errors"
	"os/exec"
)

func endWithParent(*exec.Cmd) {}

func ownGroup(*exec.Cmd) {}

const pauseSignal, resumeSignal = 0, 0

func signalGroup(int, int) error { return errors.ErrUnsupported }
