package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// startLed starts an edge with a leader and --takeover push. It returns when the edge holds the leader at the
// follower's position; the leader stays there until a hand moves it.
func startLed(t *testing.T) (r *process, follower, lead *servosim.Bus) {
	t.Helper()
	follower, lead = simBus(t), simBus(t)
	r = startArmed(t, newHoldServer(t), follower, "--leader", lead.Path(), "--leader-calibration", demoCalibration,
		"--takeover", "push")
	r.awaitCtl("correct")
	awaitTorque(t, lead, 6)
	return r, follower, lead
}

// Whichever way a run with a leader under torque ends, both arms are limp afterwards.
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
			r, follower, lead := startLed(t)
			if tt.code < 0 {
				rttest.Eventually(t, "a watchdog process for each arm", func() bool {
					return len(watchdogs(t, follower.Path())) == 1 && len(watchdogs(t, lead.Path())) == 1
				})
			}
			for _, sig := range tt.sig {
				r.Process.Signal(sig)
			}
			awaitTorque(t, lead, 0)
			awaitTorque(t, follower, 0)
			r.EndsWith(tt.code)
			awaitNoWatchdog(t, follower.Path())
			awaitNoWatchdog(t, lead.Path())
		})
	}
}

// edge-rt torque off, which a service runs in ExecStopPost=, releases the leader, too.
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
	for _, far := range []string{"zenoh:white", "jog"} { // values that name no port of this machine
		if code, _, stderr := edgeRT(t, "torque", "off", "--bus", follower.Path(), "--leader", far); code != 0 {
			t.Errorf("--leader %s: code %d, %s", far, code, stderr)
		}
	}
}

// A run refuses an arm that cannot be a leader before anything moves.
func TestLeadersThatAreRefused(t *testing.T) {
	t.Parallel()
	b, other := simBus(t), simBus(t)
	refuses(t, strings.NewReplacer("OWN", b.Path(), "OTHER", other.Path()).Replace(`
		--leader OWN => 2 own adapter
		--leader sim => 2 edge-rt sim-bus
		--leader OTHER --leader-robot koch_leader => 3 do not fit
		--leader OTHER --leader-robot so101_leader --leader-calibration /none.json => 3 edge-rt calibrate
		--takeover push => 2 --leader
	`), "--quiet", "--bus", b.Path(), "--calibration", demoCalibration, "--id", "refused")
	rttest.Want(t, underTorque(b)+underTorque(other), 0, "motors under torque")
}
