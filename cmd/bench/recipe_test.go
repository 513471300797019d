package main

import (
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/bench/recipe"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// In a recipe, here in its shortest form, the real-time class, the garbage collector's setting and the load take
// effect.
func TestRecipeIsApplied(t *testing.T) {
	rttest.RealTime(t)
	needs(t)
	needsPrograms(t)
	var r recipe.Report
	measured(t, &r, "recipe", "--others", "nice0", "--gc", "on", "--load", "alloc", "--rounds", "1", "--slice", "7s")
	if len(r.Cells) != 1 || r.Cells[0].Rounds != 1 {
		if failed := strings.Join(r.Cells[0].Failed, "; "); strings.Contains(failed, "the bus takes") {
			t.Skipf("other programs keep the simulated bus from its pace: %s", failed)
		}
		t.Fatalf("cells %+v, want one that ran", r.Cells)
	}
	c := r.Cells[0]
	if c.Ticks < 100 || c.Lateness.P99 <= 0 || c.GCCycles == 0 || c.RTShare <= 0 || c.Children != "OTHER" {
		t.Errorf("cell %+v; want ticks, collections, a share of the tick, and children at SCHED_OTHER", c)
	}
	if !strings.HasPrefix(c.Threads, "1 FIFO 80, ") || strings.Contains(c.Threads, "nice") {
		t.Errorf("threads %q, want one at FIFO 80 and all others at nice 0", c.Threads)
	}
}
