package jitter

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

func TestSummarizeTicks(t *testing.T) {
	const period = 10 * ms
	at := func(deadline, late time.Duration) loopSample {
		return loopSample{rt.Instant(0).Add(deadline), rt.Instant(0).Add(deadline + late)}
	}
	us := time.Microsecond
	r := summarize([]loopSample{at(10*ms, 5*us), at(20*ms, 9*us), at(30*ms, 2*us), at(50*ms, 500*us)}, period)
	if r.Lateness.Count() != 4 || r.Lateness.Quantile(0.5) != 5 || r.Lateness.Max() != 500 {
		t.Errorf("lateness: %d, p50 %v, max %v; want 4, 5, 500", r.Lateness.Count(), r.Lateness.Quantile(0.5),
			r.Lateness.Max())
	}
	// 4 us and 7 us difference; the step over the skipped tick is not jitter.
	if r.Jitter.P50 != 4 || r.Jitter.Max != 7 {
		t.Errorf("jitter p50 %v, max %v; want 4, 7", r.Jitter.P50, r.Jitter.Max)
	}
}

func TestLoopPart(t *testing.T) {
	var b bytes.Buffer
	if err := (LoopPart{FPS: 500, Duration: 200 * ms, CPU: -1}).Run(&b); err != nil {
		t.Fatal(err)
	}
	var r loopResult
	if err := json.Unmarshal(b.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Lateness.Count() != 100 || r.Lateness.Quantile(0.5) == 0 || r.Seconds < 0.2 || r.GCCycles != 0 {
		t.Errorf("result %+v with %d ticks; want 100, some time late, in at least 0.2 s, without a collection", r,
			r.Lateness.Count())
	}
}
