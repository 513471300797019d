package main

import (
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/wire"
)

// A bundle for simulation drives only a bus simulator with simulated cameras, and no real arm.
func TestABundleForSimulationIsRefusedOnARealArm(t *testing.T) {
	t.Parallel()
	s, b := newHoldServer(t), simBus(t)
	s.SetAck(func(a *wire.SessionAck) {
		a.Simulation = true
		a.ModelRevision = "main"
		a.ModelSHA256 = strings.Repeat("ab", 32)
	})
	for _, tt := range []struct {
		camera string
		code   int
		says   string
	}{
		{"--camera top=pattern", 3, "serves test/still@main (sha256 abababababab), which is for a simulated arm only"},
		{"--camera top=sim", 0, ""},
		{"", 0, ""},
	} {
		r := runOn(t, s, b, append(strings.Fields(tt.camera), "--record", "off", "--duration", "1500ms")...)
		if code := r.Start().End(); code != tt.code || underTorque(b) != 0 ||
			strings.Contains(r.Log.String(), "first time") {
			t.Errorf("%s: code %d, %d motors under torque, want %d, none and no slow start", tt.camera, code,
				underTorque(b), tt.code)
		}
		r.CheckSays(tt.says)
	}
}

// A bundle's first run on an arm starts slowly, and the run reports this; a later run does neither. A run that
// ends within the slow time does not count as the first run.
func TestTheFirstRunOfABundleStartsSlowly(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	s, b := newHoldServer(t), simBus(t)
	digest := strings.Repeat("cd", 32)
	s.SetAck(func(a *wire.SessionAck) { a.ModelSHA256 = digest })
	state := t.TempDir()
	const line = "this bundle runs on this arm for the first time: it starts slowly"
	check := func(first bool) {
		t.Helper()
		r := runOn(t, s, b, "--record", "off", "--duration", "2500ms") // arming takes more than 1 s of the 2.5 s
		r.Env = append(r.Env, "STATE_DIRECTORY="+state)
		code, sum := r.play()
		if log := r.Log.String(); code != 0 || sum.FirstRun != first || strings.Contains(log, line) != first ||
			first && !strings.Contains(log, digest) {
			t.Errorf("code %d, first_run %v, want %v and a line of it:\n%s", code, sum.FirstRun, first, log)
		}
	}
	check(true)
	check(true)
	calibration := rttest.Must(servo.LoadCalibration(demoCalibration))(t)
	rttest.Do(t, (&operator.Identity{ID: "arm", Dir: state}).NoteRun(calibration.Text(), digest))
	check(false)
}
