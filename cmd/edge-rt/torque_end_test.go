package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
)

// holdServer is a fake server whose chunks keep the arm where it is, unless a test sets others.
type holdServer struct{ *stage.FakeServer }

const stillHorizon = 30

func newHoldServer(t *testing.T) *holdServer {
	t.Helper()
	s, err := stage.OpenFakeServer(t.Context(), stage.FakeConfig{
		Model:   "test/still",
		Service: "still",
		Robot:   "arm",
		Rows:    stillHorizon,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &holdServer{s}
}

// underTorque counts the motors under torque.
func underTorque(b *servosim.Bus) (n int) {
	for _, on := range b.TorqueEnabled() {
		if on {
			n++
		}
	}
	return n
}

// instead returns a test's own flags and those flags of its helper, each followed by a value, that
// the test does not give itself: no flag is given twice.
func instead(helpers, own []string) (all []string) {
	for i := 0; i < len(helpers); i += 2 {
		if !slices.Contains(own, helpers[i]) {
			all = append(all, helpers[i], helpers[i+1])
		}
	}
	return append(all, own...)
}

// edgeCommand returns the command, not yet started, that runs the program on the simulated bus.
func edgeCommand(t *testing.T, s *holdServer, b *servosim.Bus, args ...string) *exec.Cmd {
	t.Helper()
	args = instead([]string{"--bus", b.Path(), "--calibration",
		filepath.Join("..", "..", "testdata", "demo", "so101.json"),
		// slowly, for a busy machine
		"--connect", s.Endpoint, "--id", "arm", "--request-timeout", "1s", "--fps", "10"}, args)
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+t.TempDir())
	return cmd
}

// startArmed starts the program on the simulated bus and returns once the arm is under torque.
func startArmed(t *testing.T, s *holdServer, b *servosim.Bus, args ...string) *exec.Cmd {
	t.Helper()
	cmd := edgeCommand(t, s, b, append([]string{"--quiet"}, args...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	awaitTorque(t, b, 6, "armed")
	return cmd
}

// comeBackAsAnother makes the server disappear and refuse the session when it is back.
func (s *holdServer) comeBackAsAnother() {
	s.Refuse("state dim mismatch: server=7, client=6")
	s.Token.Undeclare()
	s.Token, _ = s.Net.Token(wire.ServerAliveKey(s.Prefix))
}

// encoderFault is a bit of a Feetech servo's status; built-in robots stop on it.
const encoderFault = 1 << 1

// However a run with the arm under torque ends, the arm is released, or held where --on-exit asks
// for that.
func TestEveryWayOutLetsTheArmGo(t *testing.T) {
	t.Parallel()
	ctl := func(word string) func(*exec.Cmd, *holdServer, *servosim.Bus) {
		return func(c *exec.Cmd, _ *holdServer, _ *servosim.Bus) {
			hand := exec.Command(binary, "ctl", word, "--id", "arm")
			hand.Env = c.Env
			if said, err := hand.CombinedOutput(); err != nil {
				t.Errorf("ctl %s: %v\n%s", word, err, said)
			}
		}
	}
	tests := []struct {
		name  string
		args  []string
		end   func(*exec.Cmd, *holdServer, *servosim.Bus)
		code  int
		stiff int
	}{
		{"SIGINT", nil, func(c *exec.Cmd, _ *holdServer, _ *servosim.Bus) { c.Process.Signal(syscall.SIGINT) }, 0, 0},
		{"SIGTERM", nil, func(c *exec.Cmd, _ *holdServer, _ *servosim.Bus) { c.Process.Signal(syscall.SIGTERM) }, 0, 0},
		{"SIGTERM twice", nil, func(c *exec.Cmd, _ *holdServer, _ *servosim.Bus) {
			c.Process.Signal(syscall.SIGTERM)
			time.Sleep(50 * time.Millisecond) // the kernel would merge two signals sent at once
			c.Process.Signal(syscall.SIGTERM)
		}, 0, 0},
		{"on-exit off", []string{"--on-exit", "off"}, func(c *exec.Cmd, _ *holdServer, _ *servosim.Bus) {
			c.Process.Signal(syscall.SIGTERM)
		}, 0, 0},
		{"on-exit hold", []string{"--on-exit", "hold"}, func(c *exec.Cmd, _ *holdServer, _ *servosim.Bus) {
			c.Process.Signal(syscall.SIGTERM)
		}, 0, 6},
		{"ctl stop", nil, ctl("stop"), 0, 0},
		{"ctl stop, on-exit hold", []string{"--on-exit", "hold"}, ctl("stop"), 0, 6},
		{"ctl release, on-exit hold", []string{"--on-exit", "hold"}, ctl("release"), 0, 0},
		{"the end of its duration", []string{"--duration", "1500ms"}, func(*exec.Cmd, *holdServer, *servosim.Bus) {}, 0,
			0},
		{"a server that comes back as another", nil, func(_ *exec.Cmd, s *holdServer, _ *servosim.Bus) {
			s.comeBackAsAnother()
		}, 3, 0},
		{"a server that stays away", []string{"--max-offline", "1500ms"},
			func(_ *exec.Cmd, s *holdServer, _ *servosim.Bus) {
				s.Net.Close()
			}, 4, 0},
		{"on-exit hold, and a server that stays away", []string{"--on-exit", "hold", "--max-offline", "1500ms"},
			func(_ *exec.Cmd, s *holdServer, _ *servosim.Bus) { s.Net.Close() }, 4, 6},
		{"on-exit hold, and a motor's fault", []string{"--on-exit", "hold"},
			func(_ *exec.Cmd, _ *holdServer, b *servosim.Bus) {
				b.SetFault(3, encoderFault)
			}, 6, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, b := newHoldServer(t), simBus(t)
			cmd := startArmed(t, s, b, tt.args...)
			tt.end(cmd, s, b)
			cmd.Wait() // the exit code is checked below
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if got := underTorque(b); got != tt.stiff {
				t.Errorf("%d motors under torque afterwards, want %d", got, tt.stiff)
			}
		})
	}
}

// With two reachable services the operator has to choose; torque is not touched.
func TestTwoServicesWantAChoice(t *testing.T) {
	t.Parallel()
	s, b := newHoldServer(t), simBus(t)
	other, err := wire.ServicePrefix("test/other", "main", "other")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Net.Token(wire.ServerAliveKey(other)); err != nil {
		t.Fatal(err)
	}
	args := []string{"--quiet", "--bus", b.Path(), "--calibration",
		filepath.Join("..", "..", "testdata", "demo", "so101.json"), "--connect", s.Endpoint, "--id", "arm", "--fps",
		"10"}
	code, _, stderr := edgeRT(t, args...)
	if code != 3 || !strings.Contains(stderr, "--service") || !strings.Contains(stderr, "still") ||
		!strings.Contains(stderr, "other") {
		t.Errorf("two services: code %d, %q; want 3 and both named beside --service", code, stderr)
	}
	if code, _, stderr = edgeRT(t, append(args, "--service", "still", "--duration", "500ms")...); code != 0 {
		t.Errorf("with --service still: code %d, %q", code, stderr)
	}
	if n := underTorque(b); n != 0 {
		t.Errorf("%d motors under torque", n)
	}
}
