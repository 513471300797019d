package gpu

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

const still = "../../testdata/demo/still"

// Goal: the report is complete on a machine without a GPU: the CPU is measured, the report names
// the GPU as absent with the remedy, and contains another program's figures.
func TestReport(t *testing.T) {
	stagetest.NeedsRuntime(t)
	beside := `bare=test -d "$BENCH_BUNDLE" && test "$BENCH_BATCHES" = 1,3 && echo '{"open_s": 2, "batches": [{"batch": 1, "p50_ms": 3, "p99_ms": 4}, {"batch": 3, "p50_ms": 7, "p99_ms": 8}]}'`
	r := rttest.Must(Measure(t.Context(), Config{
		Bundle:   []string{still},
		Device:   []string{"cpu", "cuda"},
		Batch:    []int{3, 1},
		Duration: 300 * time.Millisecond,
		Threads:  1,
		Beside:   []string{beside, "broken=echo no such module >&2; exit 7"},
	}))(t)
	if len(r.Runs) != 6 {
		t.Fatalf("%d runs, want ours and two others on two devices", len(r.Runs))
	}
	ours := r.Runs[0]
	bare := r.Runs[1]
	broken := r.Runs[2]
	absent := r.Runs[3]
	if ours.Subject != "ours" || ours.Device != "cpu" || len(ours.Batches) != 2 || ours.Request == nil ||
		ours.OpenS <= 0 || ours.RSSMB <= 0 {
		t.Errorf("our run on the CPU is %+v", ours)
	}
	for i, n := range []int{1, 3} {
		if b := ours.Batches[i]; b.Batch != n || b.P50 <= 0 || b.P99 < b.P50 || b.Overlapped <= 0 || b.Runs == 0 ||
			b.ChunksPerS <= 0 {
			t.Errorf("batch of %d: %+v", n, b)
		}
	}
	// The runtime allocates a few objects when it starts threads. A run of the policy must allocate
	// none.
	if runs := ours.Batches[0].Runs; ours.Allocs > runs/4 || ours.Collections > 0 {
		t.Errorf("%d objects allocated and %d collections in %d runs and more, want hardly any and none", ours.Allocs,
			ours.Collections, runs)
	}
	if bare.Subject != "bare" || bare.FixedMS != 1 || bare.RowMS != 2 ||
		math.Abs(bare.Batches[1].ChunksPerS-3000.0/7) > 1e-9 || bare.OpenS != 2 {
		t.Errorf("the program beside is %+v, want T(B) = 1 + 2 B", bare)
	}
	if !strings.Contains(broken.Absent, "exit status 7: no such module") {
		t.Errorf("a program that fails is told as %q", broken.Absent)
	}
	if absent.Device != "cuda" || !strings.Contains(absent.Absent, "make setup-gpu") &&
		!strings.Contains(absent.Absent, "driver") {
		t.Skipf("cuda is there: %+v", absent)
	}
	var table, markdown strings.Builder
	rttest.Do(t, errors.Join(r.WriteTable(&table), r.WriteMarkdown(&markdown)))
	for _, text := range []string{table.String(), markdown.String()} {
		rttest.Contains(t, text, "on cpu: ours", "on cpu: bare", "T(B) = 1.000 + 2.000 B ms", "one request p50",
			"ot measured: policy: no GPU provider", "428.6")
	}
	if want := "| batch | p50 ms | p99 ms | overlapped ms | chunks/s | runs |\n|---|---|---|---|---|---|" +
		"\n| 1 | "; !strings.Contains(markdown.String(), want) {
		t.Errorf("no table in:\n%s", markdown.String())
	}
	rttest.Do(t, rttest.Err(json.Marshal(r)))
}

func TestMeasureRefuses(t *testing.T) {
	stagetest.NeedsRuntime(t)
	good := Config{
		Bundle:   []string{still},
		Device:   []string{"cpu"},
		Batch:    []int{1},
		Duration: time.Millisecond,
		Threads:  1,
	}
	for _, tt := range []struct {
		name   string
		change func(c *Config)
		code   exit.Code
		want   string
	}{
		{"no batch", func(c *Config) { c.Batch = nil }, exit.Usage, "--batch"},
		{"device", func(c *Config) { c.Device = []string{"gpu"} }, exit.Usage, "--device"},
		{"program without a name", func(c *Config) { c.Beside = []string{"true"} }, exit.Usage, "NAME=COMMAND"},
		{"bundle", func(c *Config) { c.Bundle = []string{"absent"} }, exit.Config, "absent"},
		{"only absent devices", func(c *Config) {
			c.Device = []string{"cuda:63"}
		}, exit.Config, "no device could be measured"},
		{"program without a time", func(c *Config) {
			c.Beside = []string{`fast=echo '{"batches": [{"batch": 1, "p50_ms": 0}]}'`}
		}, exit.Failure, "fast"},
		{"program that says nothing", func(c *Config) { c.Beside = []string{"mute=true"} }, exit.Failure, "mute"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := good
			tt.change(&c)
			rttest.Ends(t, rttest.Err(Measure(t.Context(), c)), tt.code, tt.want)
		})
	}
}
