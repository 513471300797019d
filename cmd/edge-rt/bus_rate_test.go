package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: a rate that passes the bus check at the start also works in the run: the arm is armed, the
// motors' health is read, and replies have enough time. At 200 ticks a second arming once timed out
// and blamed the motors; at 250 every reply was late, although the run ended well.
func TestRatesThatTheBusKeeps(t *testing.T) {
	rttest.RealTime(t)
	if testing.Short() {
		t.Skip("real time, which the race detector has not")
	}
	for _, args := range [][]string{
		{"--fps", "60", "--interpolation-multiplier", "2"},
		{"--fps", "200"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			b := simBus(t)
			file := filepath.Join(t.TempDir(), "run.json")
			log := new(rttest.Output)
			cmd := edgeCommand(t, newHoldServer(t), b, append([]string{"--quiet", "--json", file, "--duration", "2s",
				"--on-exit", "hold"}, args...)...)
			cmd.Stderr = log
			err := cmd.Run()
			var s struct {
				Ticks uint64
				Bus   struct{ Cycles, Lost uint64 }
			}
			if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &s) != nil {
				t.Fatalf("no summary: %v, %s", err, log)
			}
			if err != nil || underTorque(b) != 6 {
				t.Errorf("%v, %d motors under torque, want a clean end and 6: %s", err, underTorque(b), log)
			}
			if s.Ticks < 100 || s.Bus.Lost > s.Bus.Cycles { // a cycle has six replies
				t.Errorf("%d replies lost in %d cycles of %d ticks, want few", s.Bus.Lost, s.Bus.Cycles, s.Ticks)
			}
		})
	}
}

// A rate that the bus cannot keep is refused at the start, with an error that names the rate.
func TestARateThatTheBusCannotKeep(t *testing.T) {
	rttest.RealTime(t)
	for _, args := range [][]string{{"--fps", "600"}, {"--fps", "300", "--interpolation-multiplier", "2"}} {
		b := simBus(t)
		cmd := edgeCommand(t, newHoldServer(t), b, append([]string{"--quiet", "--duration", "2s"}, args...)...)
		log := new(rttest.Output)
		cmd.Stderr = log
		cmd.Run()
		text := log.String()
		if code := cmd.ProcessState.ExitCode(); code != 3 || !strings.Contains(text, "the bus takes") ||
			!strings.Contains(text, "600 ticks per second") || !strings.Contains(text, "lower --fps") ||
			strings.Contains(text, "motor ") {
			t.Errorf("%v: code %d, %s; want 3, and the bus and the rate named", args, code, text)
		}
		if n := underTorque(b); n != 0 {
			t.Errorf("%d motors under torque", n)
		}
	}
}
