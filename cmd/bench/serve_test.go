package main

import (
	"math"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/serve"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The report on a real server, with one link for each robot, has every part. The test does not check the figures, which
// need a quiet machine and a longer run.
func TestServe(t *testing.T) {
	rttest.RealTime(t)
	needsPrograms(t)
	var r serve.Report
	measured(t, &r, "serve", "--robots", "3", "--sessions", "4", "--duration", "1s", "--slice", "100ms", "--max-batch",
		"2", "--beside",
		`other=test -s "$BENCH_PICTURES/top.rgb" && test -d "$BENCH_BUNDLE" && echo ready; while read s; do echo "{\"seconds\": $s, \"trip_ms\": [5, 10]}"; done`,
		"--beside", `dies=echo ready; read s; echo no chunk for you >&2; exit 7`, "--beside",
		`lacks=echo there is no LeRobot >&2; exit 3`)
	if len(r.Crowds) != 1 || len(r.Schedulers) != 2 || r.MaxBatch != 2 {
		t.Fatalf("%d crowds, %d schedulers, batches of %d; want 1, 2 and 2", len(r.Crowds), len(r.Schedulers),
			r.MaxBatch)
	}
	c := r.Crowds[0]
	if c.Robots != 3 || c.Answered == 0 || c.Lost != 0 || c.ChunksPerS <= 0 || c.BarePerS <= 0 || c.Ratio <= 0 ||
		c.Jain < 0.5 || c.Busy <= 0 || c.Busy > 1.01 || c.MeanBatch < 1 || c.MeanBatch > 2 {
		t.Errorf("the crowd: %+v", c)
	}
	for _, q := range []bench.Spread{c.Own, c.Decode, c.Inference, c.RoundTrip} {
		if q.P50 <= 0 || q.P99 < q.P50 || q.Max < q.P99 {
			t.Errorf("quantiles %+v of %+v", q, c)
		}
	}
	if r.Many.Sessions != 4 || r.Many.Left != 4 || r.Many.Lost != 0 || r.Many.Answered < 4 {
		t.Errorf("many: %+v", r.Many)
	}
	for i, s := range r.Schedulers {
		if s.Scheduler != []string{"runway", "round_robin"}[i] || s.Requests == 0 || s.Lost != 0 || s.Seconds <= 0 ||
			s.StarvedMs < 0 {
			t.Errorf("scheduler: %+v", s)
		}
	}
	if len(r.Beside) != 4 {
		t.Fatalf("%d beside, want 4: %+v", len(r.Beside), r.Beside)
	}
	if b := r.Beside[0]; b.Name != "other" || b.Absent != "" || b.Rounds != c.Rounds ||
		math.Abs(b.ChunksPerS-20) > 0.1 || b.RoundTrip.P50 != 5 || b.RoundTrip.Max != 10 {
		t.Errorf("beside: %+v, want a turn in each of %d rounds, 2 chunks in 100 ms", b, c.Rounds)
	}
	for i, says := range []string{"no chunk for you", "there is no LeRobot", "not asked for"} {
		if b := r.Beside[1+i]; !strings.Contains(b.Absent, says) || b.Rounds != 0 {
			t.Errorf("beside: %+v, want it absent with %q", b, says)
		}
	}
}

// A real server with batches and audit, busy here for seconds instead of minutes, allocates nothing and starts no
// garbage collection. Collections that the measurement starts delay no request.
func TestServeSteadily(t *testing.T) {
	rttest.RealTime(t)
	needsPrograms(t)
	var r serve.Report
	measured(t, &r, "serve", "--bundle", "testdata/demo/still", "--steady", "2s", "--robots", "6", "--max-batch", "4")
	s := r.Steady
	if len(r.Crowds) != 0 || s.Robots != 6 || s.Seconds < 2 || s.Shared == 0 || s.Requests == 0 || s.ScrapeCost == 0 ||
		s.RSSBeginMB < 10 || s.Provoked.Requests == 0 {
		t.Errorf("the report: %+v", r)
	}
	if s.ScrapeCost*2 > s.Requests {
		t.Errorf("%d objects may be allocated and %d requests were served: one for each request would not show",
			2*s.ScrapeCost, s.Requests)
	}
}
