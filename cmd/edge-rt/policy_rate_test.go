package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// The real program takes its rate from a policy of 30 actions per second.
func TestRateIsThePolicys(t *testing.T) {
	rttest.RealTime(t)
	for _, c := range []struct {
		name string
		args []string
		code int
		fps  float64
		says string
	}{
		{"without --fps", nil, 0, 30, "the policy's rate"},
		{"the policy's", []string{"--fps", "30"}, 0, 30, ""},
		{"another", []string{"--fps", "60"}, 3, 0, "trained at 30 actions per second, and --fps is 60"},
		{"another, on purpose", []string{"--fps", "60", "--fps-mismatch", "allow"}, 0, 60, "level=WARN"},
		{"a filter that wants a faster policy", []string{"--filter-cutoff", "20"}, 2, 0, "cutoff"},
		{"more ticks than there may be", []string{"--interpolation-multiplier", "40"}, 2, 0, "1200 ticks per second"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newHoldServer(t)
			s.SetAck(func(ack *wire.SessionAck) { ack.TrainedFPS = 30 })
			args := append([]string{"--bus", "sim", "--connect", s.Endpoint, "--id", "arm", "--duration", "1s", "--rt",
				"off", "--json", "-"}, c.args...)
			code, stdout, stderr := edgeRT(t, args...)
			var summary struct {
				FPS   float64
				Ticks float64
			}
			if err := json.Unmarshal([]byte(stdout), &summary); err != nil {
				t.Fatalf("summary: %v\n%s", err, stdout)
			}
			if code != c.code || !strings.Contains(stderr, c.says) {
				t.Errorf("code %d, want %d, and %q in\n%s", code, c.code, c.says, stderr)
			}
			if c.code == 0 && (summary.FPS != c.fps || summary.Ticks < c.fps*0.6 || summary.Ticks > c.fps*1.4) {
				t.Errorf("%v fps, %v ticks in %v, want %v of each", summary.FPS, summary.Ticks, time.Second, c.fps)
			}
		})
	}
}

// Without a rate from the policy or --fps a run does not start.
func TestRateThatNobodySays(t *testing.T) {
	t.Parallel()
	s := newHoldServer(t)
	if code, _, stderr := edgeRT(t, "--bus", "sim", "--connect", s.Endpoint, "--id", "arm", "--duration",
		"1s"); code != 3 || !strings.Contains(stderr, "give it as --fps") {
		t.Errorf("code %d, want 3, and the flag named in\n%s", code, stderr)
	}
}
