package main

import (
	"testing"

	"github.com/edge-rt/edge-rt/internal/program/programtest"
)

func TestRanges(t *testing.T) {
	if flags := programtest.CheckRanges(t, programtest.Commands{New: func() any { return new(cli) }}); flags < 1 {
		t.Error("no flag has a range")
	}
}
