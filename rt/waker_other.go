//go:build !linux

package rt

import (
	"errors"
	"time"
)

// Waker is implemented for Linux only.
type Waker struct{}

// NewWaker returns errors.ErrUnsupported.
func NewWaker() (*Waker, error) { return nil, errors.ErrUnsupported }

// Wake does nothing.
func (w *Waker) Wake() {}

// Wait reports false at once.
func (w *Waker) Wait(time.Duration) (woken bool) { return false }

// Close does nothing.
func (w *Waker) Close() error { return nil }
