package main

import (
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: a rate that passes the bus check at the start also works in the run: the arm is armed, the motors' health is
// read, and replies have enough time. Regression: at 200 ticks a second arming timed out, with an error about the
// motors; at 250 every reply was late, but the run ended with success.
func TestRatesThatTheBusKeeps(t *testing.T) {
	rttest.RealTime(t)
	if testing.Short() {
		t.Skip("real time, which the race detector has not")
	}
	for _, args := range []string{"--fps 60 --interpolation-multiplier 2", "--fps 200"} {
		t.Run(args, func(t *testing.T) {
			b := simBus(t)
			r := runOn(t, newHoldServer(t), b, append(strings.Fields(args), "--duration", "2s", "--on-exit", "hold")...)
			// A cycle has six replies. At most one reply per cycle may be lost on average.
			if code, s := r.play(); code != 0 || underTorque(b) != 6 || s.Ticks < 100 || s.Bus.Lost > s.Bus.Cycles {
				t.Errorf("code %d, %d motors under torque, %d replies lost in %d cycles of %d ticks, want a clean "+
					"end, 6, and few: %s", code, underTorque(b), s.Bus.Lost, s.Bus.Cycles, s.Ticks, r.Log)
			}
		})
	}
}

// At its start a run refuses a rate that the bus cannot keep, with an error that names the rate.
func TestARateThatTheBusCannotKeep(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	for _, args := range []string{"--fps 600", "--fps 300 --interpolation-multiplier 2"} {
		b := simBus(t)
		r := runOn(t, newHoldServer(t), b, append(strings.Fields(args), "--quiet", "--duration", "2s")...)
		code := r.Start().End()
		r.CheckSays("the bus takes|600 ticks per second|lower --fps")
		if code != 3 || strings.Contains(r.Log.String(), "motor ") || underTorque(b) != 0 {
			t.Errorf("%v: code %d, %d motors under torque, %s; want 3, none and no motor blamed", args, code,
				underTorque(b), r.Log)
		}
	}
}
