//go:build !linux

package servo

import (
	"errors"
	"fmt"
)

// OpenPort always fails on this system. It needs Linux, because other systems lack arbitrary baud rates or ppoll.
func OpenPort(path string, baud int) (Port, error) {
	return nil, fmt.Errorf("servo: open %s at %d baud: %w", path, baud, errors.ErrUnsupported)
}

func unshared(string) error { return nil }
