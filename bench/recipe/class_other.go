//go:build !linux

package recipe

import (
	"context"
	"errors"
)

func setNice(int, int) error { return errors.ErrUnsupported }

func setRoundRobin(int, int) error { return errors.ErrUnsupported }

func setFIFO(int, int) error { return errors.ErrUnsupported }

func childClass(context.Context) string { return "unknown" }
