package main

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// twoArms are the simulated buses of a bi_so101.
type twoArms struct{ left, right *servosim.Bus }

func (a twoArms) each() []*servosim.Bus { return []*servosim.Bus{a.left, a.right} }

// startTwo starts a run on two simulated buses and returns it once both arms are under torque.
func startTwo(t *testing.T, args ...string) (*process, twoArms) {
	t.Helper()
	at := t.TempDir() // folder of links, because an adapter may have another name after a replug
	a := twoArms{simBusAt(t, at+"/left"), simBusAt(t, at+"/right")}
	r := edgeCommand(t, []string{"--connect", newHoldServer(t).Endpoint, "--id", "arm", "--request-timeout", "1s",
		"--fps", "10"}, append([]string{"--robot", "bi_so101",
		"--bus", "left=" + at + "/left", "--bus", "right=" + at + "/right",
		"--calibration", "left=" + demoCalibration, "--calibration", "right=" + demoCalibration}, args...)...)
	r.Start()
	for _, b := range a.each() {
		awaitTorque(t, b, 6)
	}
	return r, a
}

// Every end of a run makes both arms limp, or holds both.
func TestEveryEndOfTwoArms(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, onExit string
		end          func(r *process, a twoArms)
		code, torque int
	}{
		{"SIGTERM", "park", func(r *process, _ twoArms) { r.Process.Signal(syscall.SIGTERM) }, 0, 0},
		{"held", "hold", func(r *process, _ twoArms) { r.Process.Signal(syscall.SIGTERM) }, 0, 6},
		{"released", "hold", func(r *process, _ twoArms) { r.ctl("release") }, 0, 0},
		{"one motor without torque confirmation", "off", func(r *process, a twoArms) {
			a.left.Mute(2, true)
			r.Process.Signal(syscall.SIGTERM)
		}, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, a := startTwo(t, "--on-exit", tt.onExit)
			tt.end(r, a)
			code := r.End()
			if on := underTorque(a.right); code != tt.code || on != tt.torque {
				t.Errorf("code %d with %d motors of right under torque, want %d and %d: %s", code, on, tt.code,
					tt.torque,
					r.Log)
			}
			if on := underTorque(a.left); on != tt.torque && on != tt.torque+1 {
				t.Errorf("%d motors of left under torque, want %d", on, tt.torque)
			}
			s := r.summary()
			if len(s.Parts) != 2 || s.Parts[0].Name != "left" || !strings.HasSuffix(s.Parts[1].Port, "/right") ||
				s.Parts[1].Bus.Cycles < 3 || s.Bus.Cycles != s.Parts[1].Bus.Cycles {
				t.Errorf("parts %+v, bus %+v", s.Parts, s.Bus)
			}
		})
	}
}

// Both arms of a killed run are soon limp.
func TestAKilledRunReleasesBothArms(t *testing.T) {
	t.Parallel()
	rttest.RealTime(t)
	r, a := startTwo(t, "--quiet", "--on-exit", "hold")
	killed := time.Now()
	r.Process.Kill()
	for _, b := range a.each() {
		awaitTorque(t, b, 0)
	}
	took := time.Since(killed)
	t.Logf("limp after %v", took)
	if took > 2*time.Second { // an idle machine needs 300 ms
		t.Errorf("limp after %v", took)
	}
	r.End()
}

// When one of two arms is unplugged and comes back, the run names this arm, and continues with both arms.
func TestOneOfTwoArmsIsUnplugged(t *testing.T) {
	t.Parallel()
	r, a := startTwo(t, "--record", "off")
	rttest.Do(t, a.right.Unplug())
	r.Await("silent_joints=6 part=right")
	if underTorque(a.left) != 6 {
		t.Error("left lost its torque")
	}
	rttest.Do(t, a.right.Replug())
	r.Await("the arm was away and is back\" part=right")
	rttest.Eventually(t, "torque on both", func() bool { return underTorque(a.right) == 6 && underTorque(a.left) == 6 })
	r.EndsWith(0, syscall.SIGTERM)
}

// With a leader for one of two arms, a person takes over that arm; the other arm holds.
func TestTakeoverOfOneOfTwoArms(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	lead := simBusAt(t, at+"/lead")
	r, a := startTwo(t, "--leader", "left="+at+"/lead", "--leader-calibration", "left="+demoCalibration)
	r.wants(1, "--leader right=PORT", "correct", "right")
	r.awaitCtl("correct", "left")
	rttest.Eventually(t, "left is taken", func() bool {
		reply := r.status()
		return reply.Phase == "correcting" && reply.Taken == "left"
	})
	if underTorque(a.left) != 6 || underTorque(a.right) != 6 || underTorque(lead) != 0 {
		t.Errorf("motors under torque: left %d, right %d, leader %d, want 6, 6 and 0", underTorque(a.left),
			underTorque(a.right), underTorque(lead))
	}
	r.EndsWith(0, syscall.SIGTERM)
}

// takesParts takes over each arm and then both, gives the arms back after each time, and returns once the
// function reached has returned true each time.
func (r *process) takesParts(reached func(operator.Reply) bool) {
	r.t.Helper()
	for part, want := range map[string]string{"left": "left", "right": "right", "": "left, right"} {
		r.awaitCtl("correct", part)
		rttest.Eventually(r.t, want+" is taken", func() bool {
			reply := r.status()
			return reply.Taken == want && reply.Leader != nil && reached(reply)
		})
		r.ctl("resume")
	}
}

// If one arm has a leader on this machine, and the other arm a leader on another machine, a person can take over either
// arm or both.
func TestTakeoverByALeaderHereAndOneFarAway(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	simBusAt(t, at+"/left")
	simBusAt(t, at+"/right")
	endpoint, _ := stagetest.FreeEndpoint(t)
	lead := stagetest.Command(t, binary, "leader", "--robot", "so101", "--id", "white", "--listen", endpoint,
		"--bus", at+"/right", "--calibration", demoCalibration).Start()
	r, _ := startTwo(t, "--leader", "left="+at+"/left", "--leader-calibration", "left="+demoCalibration,
		"--leader", "right=zenoh:white@"+endpoint)
	r.takesParts(func(reply operator.Reply) bool { return reply.Leader.Parts["right"].RTTms > 0 })
	for _, p := range []*process{r, {Program: lead}} {
		p.EndsWith(0, syscall.SIGTERM)
	}
}

// The leaders of two arms on another machine are one leader, and take over one arm or both.
func TestTwoLeadersOnAnotherMachine(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	leaders := twoArms{simBusAt(t, at+"/left"), simBusAt(t, at+"/right")}
	endpoint, _ := stagetest.FreeEndpoint(t)
	lead := stagetest.Command(t, binary, "leader", "--robot", "bi_so101", "--id", "white", "--listen", endpoint,
		"--bus", "left="+at+"/left", "--bus", "right="+at+"/right",
		"--calibration", "left="+demoCalibration, "--calibration", "right="+demoCalibration).Start()
	r, _ := startTwo(t, "--leader", "zenoh:white@"+endpoint)
	r.takesParts(func(reply operator.Reply) bool { return reply.Leader.RTTms > 0 })
	for _, p := range []*process{r, {Program: lead}} {
		p.EndsWith(0, syscall.SIGTERM)
	}
	rttest.Want(t, underTorque(leaders.left)+underTorque(leaders.right), 0,
		"motors of the leaders under torque")
}

// A run can simulate both arms itself: each arm has a world, and one state vector has the joints of both.
func TestTwoSimulatedArms(t *testing.T) {
	t.Parallel()
	rttest.RealTime(t)
	r := edgeCommand(t, []string{"--connect", newHoldServer(t).Endpoint, "--id", "arm", "--fps", "20"}, "--robot",
		"bi_so101", "--bus", "sim", "--duration", "2s", "--record", "all", "--record-dir", t.TempDir())
	code, s := r.play()
	if code != 0 || len(s.Parts) != 2 || s.Actions == 0 {
		t.Errorf("code %d, parts %+v, %d actions: %s", code, s.Parts, s.Actions, r.Log)
	}
}

// A robot of several parts refuses a --bus whose parts or ports are wrong, and the error names the defect.
func TestPartFlagsAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"--bus", "left=/dev/ttyA"}, "no --bus for the part right"},
		{[]string{"--bus", "/dev/ttyA"}, "left=PORT"},
		{[]string{"--bus", "left=/dev/ttyA", "--bus", "right=/dev/ttyA"}, "its own adapter"},
		{[]string{"--bus", "left=/dev/ttyA", "--bus", "top=/dev/ttyB"}, "no part top"},
	} {
		p := stagetest.Command(t, binary, append([]string{"--robot", "bi_so101"}, tt.args...)...).Start()
		if code := p.End(); code != 2 || !strings.Contains(p.Log.String(), tt.says) {
			t.Errorf("%s: code %d, %s; want 2 and %q", slices.Clone(tt.args), code, p.Log, tt.says)
		}
	}
}
