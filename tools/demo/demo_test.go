package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// buildAll returns the folder of both programs, and builds this one.
func buildAll(t *testing.T) (bin, demo string) {
	t.Helper()
	dir := t.TempDir()
	bin, err := rttest.Programs(dir, "edge-rt", "lean-server")
	if err != nil {
		t.Fatal(err)
	}
	demo = filepath.Join(dir, "demo")
	if out, err := exec.Command("go", "build", "-o", demo, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin, demo
}

// runDemo runs the demo as make does, for a few seconds, and returns its exit code, its output and
// the edge's summary.
func runDemo(t *testing.T, manifest string, seconds time.Duration) (code int, out string, r report) {
	t.Helper()
	bin, demo := buildAll(t)
	keep := t.TempDir()
	check := exec.Command(filepath.Join(bin, "lean-server"), "check", "--manifest", manifest)
	if text, err := check.CombinedOutput(); err != nil {
		if strings.Contains(string(text), "ONNX Runtime") {
			t.Skipf("no ONNX Runtime here: %s", text)
		}
		t.Fatalf("lean-server check: %v\n%s", err, text)
	}
	cmd := exec.Command(demo, "--bin", bin, "--manifest", manifest, "--duration",
		seconds.String(), "--json", keep, "--tries", "1")
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+t.TempDir())
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(keep, "edge.json"))
	if err != nil {
		t.Fatalf("no summary: %v\n%s", err, text)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text), r
}

// The demo must be able to fail: a policy that answers with the present position reaches no target.
func TestStandingStillFails(t *testing.T) {
	rttest.RealTime(t)
	if testing.Short() {
		t.Skip("runs the arm for seconds")
	}
	code, out, r := runDemo(t, "../../testdata/demo/still.yaml", 8*time.Second)
	if code != 1 || r.Targets != 0 || r.Ticks < 300 {
		t.Errorf("demo with the still bundle: exit %d, %d targets, %d ticks; want 1, 0, about 480\n%s", code, r.Targets,
			r.Ticks, out)
	}
	if !strings.Contains(out, "FAIL  targets reached 0") {
		t.Errorf("it does not say why:\n%s", out)
	}
}

func TestTheDemoPolicyReachesTargets(t *testing.T) {
	rttest.RealTime(t)
	if testing.Short() {
		t.Skip("runs the arm for seconds")
	}
	_, out, r := runDemo(t, "../../testdata/demo/server.yaml", 8*time.Second)
	if r.Targets < 2 || r.Exit.Code != 0 {
		t.Errorf("%d targets in 8 s, exit %d; want at least 2 and 0\n%s", r.Targets, r.Exit.Code, out)
	}
}

// The error of a run that the machine spoiled names the machine; the error of a run that the
// programs spoiled does not.
func TestJudgeNamesABusyMachine(t *testing.T) {
	o := options{duration: 20 * time.Second, targets: 7, collisions: 1}
	for _, tt := range []struct {
		late uint64
		busy bool
	}{{104, true}, {3, false}} {
		r := report{Ticks: 955, OverrunsHost: tt.late, Targets: 6, FPS: 60, SMin: 20, Estimate: 4}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "edge.json")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		err = judge(path, 0, o)
		if err == nil || errors.Is(err, errHost) || strings.Contains(err.Error(), "this machine was busy") != tt.busy {
			t.Errorf("%d late ticks: %v, want that the machine was busy: %v", tt.late, err, tt.busy)
		}
	}
}
