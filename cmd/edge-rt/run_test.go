package main

import (
	"context"
	"errors"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/servo"
)

// A signal while the run measures the bus is a normal end, and not the error of an absent arm.
func TestUnlessEnded(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	measuring, silent := exit.With(exit.Absent, servo.ErrCanceled), exit.Errorf(exit.Absent, "silent")
	for _, tt := range []struct {
		ctx       context.Context
		err, want error
	}{{ended, measuring, nil}, {ended, context.Canceled, nil}, {ended, silent, silent},
		{t.Context(), measuring, measuring}} {
		if got := unlessEnded(tt.ctx, tt.err); !errors.Is(got, tt.want) || (got == nil) != (tt.want == nil) {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
}
