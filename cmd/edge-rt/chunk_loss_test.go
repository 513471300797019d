package main

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Every third chunk between the two real programs is lost, at 30 actions per second and with 50 ms
// added to the policy: at most 5 of the ticks after the first action have no action. LeRobot's
// draft had 550 of 895 in 30 s; the same discipline on our programs, under the same loss, proves
// that the loss takes effect.
func TestEveryThirdChunkLostOnBothPrograms(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	if err := policy.OpenRuntime("", "cpu"); err != nil {
		t.Skipf("no ONNX Runtime here: %.80s", err)
	}
	d := 30 * time.Second
	if testing.Short() {
		d = 10 * time.Second
	}
	lean := buildLeanServer(t)
	endpoint := freePort(t)
	m := newManager(t)
	server, log := service(t, m, lean, "--manifest", demo+"/server.yaml", "--listen", endpoint, "--health-port", "0",
		"--quiet")
	m.await("READY=1")
	t.Run("both", func(t *testing.T) {
		for _, c := range []struct {
			name        string
			args        []string
			least, most uint64 // starved ticks
		}{
			{"drtc", nil, 0, 5},
			// a fifth of the ticks
			{"draft", []string{"--schedule", "append", "--compat"}, uint64(d / time.Second * 6), 1 << 30},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				s := playThird(t, d, endpoint, append(c.args, "--id", c.name)...)
				starved := s.Starved - s.StarvedBus
				t.Logf("%d ticks, %d starved, %d more by the bus, %d requests, %d chunks", s.Ticks, starved,
					s.StarvedBus, s.Requests, s.Chunks)
				if starved < c.least || starved > c.most {
					t.Errorf("%d ticks without an action, want %d to %d", starved, c.least, c.most)
				}
				if s.Chunks == 0 || s.Requests < s.Chunks*4/3 {
					t.Errorf("%d requests brought %d chunks: no third was lost", s.Requests, s.Chunks)
				}
			})
		}
	})
	server.Process.Signal(syscall.SIGTERM)
	if err := server.Wait(); err != nil {
		t.Errorf("server: %v\n%s", err, log)
	}
}

// playThird runs the program at 30 Hz under the built-in fault script.
func playThird(t *testing.T, d time.Duration, endpoint string, args ...string) (s runSummary) {
	t.Helper()
	args = append([]string{"--quiet", "--fps", "30", "--fps-mismatch", "allow", "--bus", "sim", "--camera", "top=sim",
		"--connect", endpoint, "--duration", fmt.Sprint(d),
		"--on-exit", "off", "--wire-faults", "../../bench/faults/scripts/third_chunk.yaml", "--json", "-"}, args...)
	code, stdout, stderr := edgeRTFor(t, d+20*time.Second, args...)
	if code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), &s); err != nil {
		t.Fatalf("summary: %v\n%s", err, stdout)
	}
	return s
}
