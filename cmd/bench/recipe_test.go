package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/bench/recipe"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// One recipe in its shortest form: the real-time class, the garbage collector's setting and the
// load take effect.
func TestRecipeIsApplied(t *testing.T) {
	rttest.RealTime(t)
	needs(t)
	needsPrograms(t)
	code, stdout, stderr := runBench(t, "recipe", "--others", "nice0", "--gc", "on", "--load", "alloc", "--rounds", "1",
		"--slice", "9s", "--quiet", "--json", "-")
	if code == 3 && (strings.Contains(stderr, "no ONNX Runtime") ||
		strings.Contains(stderr, "built without libjpeg-turbo")) {
		t.Skip(stderr)
	}
	var r recipe.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, stderr)
	}
	if len(r.Cells) != 1 || r.Cells[0].Rounds != 1 {
		if failed := strings.Join(r.Cells[0].Failed, "; "); strings.Contains(failed, "the bus takes") {
			t.Skipf("other programs keep the simulated bus from its pace: %s", failed)
		}
		t.Fatalf("cells %+v, want one that ran: %s", r.Cells, stderr)
	}
	c := r.Cells[0]
	if c.Ticks < 100 || c.Lateness.P99 <= 0 || c.GCCycles == 0 || c.RTShare <= 0 || c.Children != "OTHER" {
		t.Errorf("cell %+v; want ticks, collections, a share of the tick, and children at SCHED_OTHER", c)
	}
	if !strings.HasPrefix(c.Threads, "1 FIFO 80, ") || strings.Contains(c.Threads, "nice") {
		t.Errorf("threads %q, want one at FIFO 80 and all others at nice 0", c.Threads)
	}
}

func TestRecipeRefusesNonsense(t *testing.T) {
	for _, tt := range []struct {
		says string
		args []string
	}{
		{"--others best", []string{"--others", "best"}},
		{"--gc names nothing", []string{"--gc="}},
	} {
		if code, _, stderr := runBench(t, append([]string{"recipe"}, tt.args...)...); code != 2 ||
			!strings.Contains(stderr, tt.says) {
			t.Errorf("bench recipe %s: code %d: %s; want 2 and %q", tt.args, code, stderr, tt.says)
		}
	}
}
