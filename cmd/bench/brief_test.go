package main

import (
	"testing"

	"github.com/edge-rt/edge-rt/internal/program/programtest"
)

// The short help fits on a screen and names every command.
func TestBrief(t *testing.T) {
	programtest.CheckBrief(t, brief, programtest.Commands{New: func() any { return new(cli) }, Vars: nil})
}
