package gpu

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/stage"
)

// otherTimeout is how much longer than the measurement another program may take. Most of this time
// is for loading.
const otherTimeout = 15 * time.Minute

// measureOther runs another program on the same bundle to its end, and reads the figures that it
// prints.
func measureOther(ctx context.Context, cfg Config, b *policy.Bundle, device string, o bench.Other) (Run, error) {
	run := newRun(b, o.Name, device)
	var batches []string
	for _, n := range cfg.Batch {
		batches = append(batches, strconv.Itoa(n))
	}
	cmd := exec.Command("sh", "-c", o.Command)
	cmd.Env = append(os.Environ(), "BENCH_BUNDLE="+b.Dir, "BENCH_DEVICE="+device,
		"BENCH_BATCHES="+strings.Join(batches, ","),
		fmt.Sprintf("BENCH_SECONDS=%g", cfg.Duration.Seconds()), "BENCH_THREADS="+strconv.Itoa(cfg.Threads))
	child, err := stage.Start(cmd)
	if err != nil {
		return run, err
	}
	defer context.AfterFunc(ctx, child.Kill)()
	if err := child.Wait(cfg.Duration + otherTimeout); err != nil {
		run.Absent = err.Error()
		return run, ctx.Err()
	}
	var said struct {
		Batches []Batch `json:"batches"`
		OpenS   float64 `json:"open_s"`
		RSSMB   float64 `json:"rss_mb"`
	}
	untimed := func(b Batch) bool { return b.Batch < 1 || !(b.P50 > 0) } // its chunks per second cannot be computed
	if err := json.Unmarshal(child.Stdout(), &said); err != nil || len(said.Batches) == 0 ||
		slices.ContainsFunc(said.Batches, untimed) {
		return run, fmt.Errorf("%s printed %.200q, want {\"batches\": […]}, each with batch and p50_ms above 0: %v",
			o.Name, child.Stdout(), err) //nolint:errorlint // may be nil
	}
	run.Batches = said.Batches
	run.OpenS = said.OpenS
	run.RSSMB = said.RSSMB
	for i := range run.Batches {
		run.Batches[i].ChunksPerS = float64(run.Batches[i].Batch) * 1000 / run.Batches[i].P50
	}
	run.fit()
	return run, nil
}
