//go:build !linux

package jitter

import "errors"

func shareCPUs(int, int) error { return errors.ErrUnsupported }

func threadUse() (faults, involuntary int64) { return 0, 0 }
