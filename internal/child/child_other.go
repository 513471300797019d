//go:build !linux

package child

import "os/exec"

func endWithUs(*exec.Cmd) {}
