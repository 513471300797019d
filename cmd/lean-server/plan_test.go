package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/server/capacity"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// With the demo policy, the measurements, simulations and results of the command plan are consistent, and the command
// refuses impossible robots.
func TestPlan(t *testing.T) {
	stagetest.NeedsRuntime(t)
	manifest := []string{"plan", "--manifest", demoManifest, "--round-trip", "5ms,20ms"}
	code, stdout, stderr := leanServer(t, nil, append(manifest, "--json", "-")...)
	var r capacity.Report
	if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil {
		t.Fatalf("code %d, %v: %s", code, err, stderr)
	}
	if r.Sessions < 1 || len(r.Sizes) != 4 || r.Sizes[0].Ms <= 0 || r.Device != "cpu" || r.MaxBatch < 1 ||
		r.MaxBatch > 8 || r.DelayMax != 30 {
		t.Errorf("the plan: %+v", r)
	}
	for _, row := range r.Tries {
		if row.OK && (row.Robots > r.Sessions || row.StarvedMs > 0 || row.Steps > r.DelayMax) || row.DelayP50 < 2.5 ||
			row.Load <= 0 || row.Load > 1.01 {
			t.Errorf("a try: %+v", row)
		}
	}
	if code, stdout, _ := leanServer(t, nil, manifest...); code != 0 || !strings.Contains(stdout, "\nmax_sessions: ") {
		t.Errorf("code %d, it prints\n%s", code, stdout)
	}
	refusal{"--fps 0", 2, "--fps"}.check(t, manifest...)
}
