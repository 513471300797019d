//go:build !linux

package bench

import (
	"errors"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

const pauseSignal, resumeSignal = 0, 0

func signalGroup(int, int) error { return errors.ErrUnsupported }
