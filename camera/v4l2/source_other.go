//go:build !linux

package v4l2

import (
	"errors"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt"
)

var errSystem = errors.New("v4l2: cameras are read on Linux only")

// Source is a stub: Open never returns one.
type Source struct{ camera.Source }

// Open fails.
func Open(Config, rt.Clock) (*Source, error) { return nil, errSystem }

// Describe returns nothing.
func (s *Source) Describe() (card, picked, remark string) { return "", "", "" }

// List finds nothing.
func List() (all []Info, denied []error) { return nil, []error{errSystem} }
