//go:build !linux

package rt

import (
	"errors"
	"os"
)

func newPulse() (*Pulse, *os.File, error) { return nil, nil, errors.ErrUnsupported }

// OpenPulse is implemented for Linux only.
func OpenPulse(*os.File) (*Pulse, error) { return nil, errors.ErrUnsupported }
