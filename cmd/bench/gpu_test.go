package main

import (
	"path/filepath"
	"testing"

	"github.com/edge-rt/edge-rt/bench/gpu"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// Goal: the report has the times of the policy in one graph and in two, of every batch size, and of one robot's
// request. The report counts no garbage collection.
func TestReportOfTwoForms(t *testing.T) {
	stagetest.NeedsRuntime(t)
	testdata := rttest.Must(filepath.Abs("../../testdata"))(t)
	markdown := filepath.Join(t.TempDir(), "gpu.md")
	var r gpu.Report
	measured(t, &r, "gpu", "--bundle", testdata+"/pi05,"+testdata+"/pi05-split", "--device", "cpu", "--batch", "1,3",
		"--duration", "600ms", "--markdown", markdown, "--beside",
		`bare=test "$BENCH_DEVICE" = cpu && echo '{"batches": [{"batch": 1, "p50_ms": 3, "p99_ms": 4}, {"batch": 3, "p50_ms": 7, "p99_ms": 8}]}'`)
	if len(r.Runs) != 4 {
		t.Fatalf("%d runs, want ours and another's on two bundles", len(r.Runs))
	}
	for i, run := range r.Runs {
		if run.Bundle != []string{"pi05", "pi05-split"}[i/2] || run.Subject != []string{"ours", "bare"}[i%2] ||
			run.Device != "cpu" || run.Absent != "" || len(run.Batches) != 2 {
			t.Errorf("run %d is %+v", i, run)
			continue
		}
		if i%2 == 0 && (run.Batches[1].Batch != 3 || run.Batches[1].P50 <= 0 || run.Batches[1].Overlapped <= 0 ||
			run.Request == nil || run.Request.P50 <= 0 || run.Collections != 0) {
			t.Errorf("ours on %s is %+v, %+v", run.Bundle, run, run.Request)
		}
	}
}
