// Package servosimtest opens simulated servo buses in tests.
package servosimtest

import (
	"sync/atomic"
	"testing"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// Open opens a bus until the end of the test. Where there are no pseudo-terminals, it skips the test.
func Open(t testing.TB, cfg servosim.Config) *servosim.Bus {
	t.Helper()
	bus, err := servosim.Open(cfg)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(bus.Close)
	return bus
}

// Shafts is a servosim.Plant whose shafts reach their goals at once. A test moves them, too.
type Shafts struct {
	Raw [12]atomic.Int32 // encoder counts
}

// Goal implements servosim.Plant.
func (s *Shafts) Goal(_ rt.Instant, joint, raw int) { s.Raw[joint].Store(int32(raw)) }

// Torque implements servosim.Plant.
func (s *Shafts) Torque(rt.Instant, int, bool) {}

// Present implements servosim.Plant.
func (s *Shafts) Present(_ rt.Instant, joint int) int { return int(s.Raw[joint].Load()) }

// All moves all shafts.
func (s *Shafts) All(raw int) {
	for j := range s.Raw {
		s.Raw[j].Store(int32(raw))
	}
}
