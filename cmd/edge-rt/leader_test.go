package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

var demoCalibration = filepath.Join("..", "..", "testdata", "demo", "so101.json")

// startLed starts an edge with a leader and --takeover push, and returns once the leader is held at
// the follower's position, where it stays until a hand moves it.
func startLed(t *testing.T) (cmd *exec.Cmd, follower, lead *servosim.Bus, log *rttest.Output) {
	t.Helper()
	follower, lead = simBus(t), simBus(t)
	cmd, log = edgeCommand(t, newHoldServer(t), follower, "--leader", lead.Path(), "--leader-calibration",
		demoCalibration, "--takeover", "push"), new(rttest.Output)
	cmd.Stderr, cmd.SysProcAttr = log, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	awaitTorque(t, follower, 6, "it was never armed")
	rttest.Eventually(t, "ctl correct", func() bool {
		ctl := exec.Command(binary, "ctl", "correct", "--id", "arm")
		ctl.Env = cmd.Env
		return ctl.Run() == nil
	})
	awaitTorque(t, lead, 6, "the leader was never driven")
	return cmd, follower, lead, log
}

// However a run with a leader under torque ends, both arms are limp afterwards.
func TestEveryWayOutLetsTheLeaderGo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		sig  []syscall.Signal
		code int
	}{
		{"SIGTERM", []syscall.Signal{syscall.SIGTERM}, 0},
		{"SIGTERM twice", []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, 0},
		{"SIGKILL", []syscall.Signal{syscall.SIGKILL}, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd, follower, lead, log := startLed(t)
			if tt.code < 0 {
				rttest.Eventually(t, "a watchdog process for each arm", func() bool {
					return len(watchdogs(t, follower.Path())) == 1 && len(watchdogs(t, lead.Path())) == 1
				})
			}
			for _, sig := range tt.sig {
				cmd.Process.Signal(sig)
			}
			awaitTorque(t, lead, 0, "the leader was not released")
			awaitTorque(t, follower, 0, "the follower was not released")
			cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("code %d, want %d; it says %s", code, tt.code, log)
			}
			awaitNoWatchdog(t, follower.Path())
			awaitNoWatchdog(t, lead.Path())
		})
	}
}

// A service's ExecStopPost= releases the leader, too.
func TestTorqueOffLetsTheLeaderGo(t *testing.T) {
	t.Parallel()
	follower, lead := simBus(t), simBus(t)
	torqueOnAll(t, follower.Path())
	torqueOnAll(t, lead.Path())
	code, stdout, stderr := edgeRT(t, "torque", "off", "--bus", follower.Path(), "--leader", lead.Path())
	if code != 0 || underTorque(follower)+underTorque(lead) != 0 || strings.Count(stdout, "off on 6 motors") != 2 {
		t.Errorf("code %d, %q, %q, %d and %d motors under torque, want 0 and none", code, stdout, stderr,
			underTorque(follower), underTorque(lead))
	}
}

// An arm that cannot be a leader is refused before anything moves.
func TestLeadersThatAreRefused(t *testing.T) {
	t.Parallel()
	b, other := simBus(t), simBus(t)
	for _, tt := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"the follower's port", []string{"--leader", b.Path()}, 2, "own adapter"},
		{"the run's own arm", []string{"--leader", "sim"}, 2, "edge-rt sim-bus"},
		{"another arm", []string{"--leader", other.Path(), "--leader-robot", "koch_leader"}, 3, "do not fit"},
		{"another arm's motors", []string{"--leader", other.Path(), "--leader-robot", "so101_leader",
			"--leader-calibration", "/none.json"}, 3, "edge-rt calibrate"},
		{"a push at nothing", []string{"--takeover", "push"}, 2, "--leader"},
	} {
		code, _, stderr := edgeRT(t, append([]string{"--bus", b.Path(), "--calibration", demoCalibration, "--id",
			"refused"}, tt.args...)...)
		if code != tt.code || !strings.Contains(stderr, tt.says) {
			t.Errorf("%s: code %d, %q, want code %d and %q", tt.name, code, stderr, tt.code, tt.says)
		}
	}
	if n := underTorque(b) + underTorque(other); n != 0 {
		t.Errorf("%d motors under torque", n)
	}
}
