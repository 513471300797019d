package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/edge"
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
		{"top=pattern", 3, "serves test/still@main (sha256 abababababab), which is for a simulated arm only"},
		{"top=sim", 0, ""},
		{"", 0, ""},
	} {
		args := []string{"--record", "off", "--duration", "1500ms"}
		if tt.camera != "" {
			args = append(args, "--camera", tt.camera)
		}
		cmd := edgeCommand(t, s, b, args...)
		said, _ := cmd.CombinedOutput() // the exit code is checked below
		if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(string(said), tt.says) {
			t.Errorf("--camera %s: code %d, want %d and %q:\n%s", tt.camera, code, tt.code, tt.says, said)
		}
		if n := underTorque(b); n != 0 {
			t.Errorf("--camera %s: %d motors under torque", tt.camera, n)
		}
		if strings.Contains(string(said), "first time") {
			t.Errorf("--camera %s: a simulated arm starts slowly:\n%s", tt.camera, said)
		}
	}
}

// A bundle's first run on an arm starts slowly and reports that; a later run does not. A run that
// ends within the slow time does not count as the first.
func TestTheFirstRunOfABundleStartsSlowly(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	s, b := newHoldServer(t), simBus(t)
	digest := strings.Repeat("cd", 32)
	s.SetAck(func(a *wire.SessionAck) { a.ModelSHA256 = digest })
	state := t.TempDir()
	run := func() (summary edge.Summary, said string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "summary.json")
		cmd := edgeCommand(t, s, b, "--record", "off", "--duration", "1500ms", "--json", file)
		cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+state)
		out, err := cmd.CombinedOutput()
		data, reading := os.ReadFile(file)
		if err != nil || reading != nil || json.Unmarshal(data, &summary) != nil {
			t.Fatalf("%v, %v: %s\n%s", err, reading, data, out)
		}
		return summary, string(out)
	}
	const line = "this bundle runs on this arm for the first time: it starts slowly"
	for range 2 {
		if summary, said := run(); !summary.FirstRun || strings.Count(said, line) != 1 ||
			!strings.Contains(said, digest) {
			t.Errorf("first_run %v, want true and one line of it:\n%s", summary.FirstRun, said)
		}
	}
	calibration, err := servo.LoadCalibration(filepath.Join("..", "..", "testdata", "demo", "so101.json"))
	if err != nil {
		t.Fatal(err)
	}
	arm := &operator.Identity{ID: "arm", Dir: state}
	if err := arm.NoteRun(calibration.Text(), digest); err != nil {
		t.Fatal(err)
	}
	if summary, said := run(); summary.FirstRun || strings.Contains(said, line) {
		t.Errorf("first_run %v of a known bundle, want false:\n%s", summary.FirstRun, said)
	}
}
