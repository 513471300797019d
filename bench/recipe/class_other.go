//go:build !linux

package recipe

import (
	"context"
	"errors"
)

func setNice(int, int) error { return errors.ErrUnsupported }

func setRealTime(int, uint32, uint32) error { return errors.ErrUnsupported }

func childClass(context.Context) string { return "unknown" }
