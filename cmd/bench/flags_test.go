package main

import (
	"testing"

	"github.com/edge-rt/edge-rt/internal/program/programtest"
)

// The short help fits on a screen and names every command.
func TestBrief(t *testing.T) {
	programtest.CheckBrief(t, brief, programtest.Commands{New: func() any { return new(cli) }, Vars: nil})
}

func TestRanges(t *testing.T) {
	if flags := programtest.CheckRanges(t, programtest.Commands{New: func() any { return new(cli) }}); flags < 20 {
		t.Errorf("%d flags have a range, want 20 or more", flags)
	}
}
