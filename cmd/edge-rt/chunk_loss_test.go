package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Every third chunk between the two real programs is lost, at 30 actions per second and with 50 ms added to the policy:
// at most 5 of the ticks after the first action have no action. In LeRobot's draft, 550 of 895 ticks in 30 s had none.
// The test also runs the draft's discipline on our programs, to prove that the loss takes effect.
func TestEveryThirdChunkLostOnBothPrograms(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	const d = 6 * time.Second
	server, endpoint := startLeanServer(t, demo+"/server.yaml")
	t.Run("both", func(t *testing.T) {
		for _, c := range []struct {
			name        string
			args        []string
			least, most uint64 // starved ticks
		}{
			{"drtc", nil, 0, 5},
			{"draft", []string{"--schedule", "append", "--compat"}, uint64(d / time.Second * 6), 1 << 30}, // 1 of 5
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				r := edgeCommand(t, []string{"--fps", "30", "--fps-mismatch", "allow", "--bus", "sim", "--camera",
					"top=sim", "--connect", endpoint, "--duration", d.String(), "--on-exit", "off", "--wire-faults",
					"../../bench/faults/scripts/third_chunk.yaml", "--id", c.name}, c.args...)
				code, s := r.play()
				starved := s.StarvedTicks - s.StarvedBus
				t.Logf("%d ticks, %d starved, %d more by the bus, %d requests, %d chunks", s.Ticks, starved,
					s.StarvedBus, s.Requests, s.Chunks)
				if code != 0 || starved < c.least || starved > c.most {
					t.Errorf("exit code %d, %d ticks without an action, want %d to %d\n%s", code, starved, c.least,
						c.most, r.Log)
				}
				if s.Chunks == 0 || s.Requests < s.Chunks*4/3 {
					t.Errorf("%d requests brought %d chunks: no third was lost", s.Requests, s.Chunks)
				}
			})
		}
	})
	server.EndsWith(0, syscall.SIGTERM)
}
