package main

import (
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// A run without --fps has the rate of its policy, here 30 actions per second.
func TestRateIsThePolicys(t *testing.T) {
	rttest.RealTime(t)
	for _, c := range []struct {
		args string
		code int
		fps  float64
		says string
	}{
		{"", 0, 30, "the policy's rate"},
		{"--fps 30", 0, 30, ""},
		{"--fps 60", 3, 0, "trained at 30 actions per second, and --fps is 60"},
		{"--fps 60 --fps-mismatch allow", 0, 60, "level=WARN"},
		{"--filter-cutoff 20", 2, 0, "cutoff"}, // the filter needs a faster policy
		{"--interpolation-multiplier 40", 2, 0, "1200 ticks per second"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			s := newHoldServer(t)
			s.SetAck(func(ack *wire.SessionAck) { ack.TrainedFPS = 30 })
			r := atServer(t, s, strings.Fields(c.args)...)
			code, sum := r.play()
			if ticks := float64(sum.Ticks); code != c.code || c.code == 0 &&
				(sum.FPS != c.fps || ticks < c.fps*0.6 || ticks > c.fps*1.4) {
				t.Errorf("code %d, %v fps, %v ticks in a second, want %d and %v of each", code, sum.FPS, ticks, c.code,
					c.fps)
			}
			r.CheckSays(c.says)
		})
	}
}

// atServer returns a run of one second at a server, without --fps.
func atServer(t *testing.T, s *holdServer, args ...string) *process {
	t.Helper()
	return edgeCommand(t, []string{"--bus", "sim", "--connect", s.Endpoint, "--id", "arm", "--duration", "1s", "--rt",
		"off"}, args...)
}

// Without a rate from the policy or --fps a run does not start.
func TestRateThatNobodySays(t *testing.T) {
	t.Parallel()
	r := atServer(t, newHoldServer(t))
	r.Start().EndsWith(3)
	r.CheckSays("give it as --fps")
}
