package jitter

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The counts are exact to the microsecond, and times beyond the largest bin count as the longest time.
func TestMicroseconds(t *testing.T) {
	var late microseconds
	for _, us := range []time.Duration{5, 9, 2, 500, 300_000, 200_000} {
		late.add(us * time.Microsecond)
	}
	if got := late.tally(); got.Count() != 6 || got.Quantile(0.5) != 9 || got.Max() != 300_000 ||
		got.Above(250*ms) != 2 {
		t.Errorf("%d times, p50 %v, max %v, %d beyond the bins; want 6, 9, 300000, 2", got.Count(), got.Quantile(0.5),
			got.Max(), got.Above(250*ms))
	}
}

func TestLoopPart(t *testing.T) {
	var b bytes.Buffer
	rttest.Do(t, (LoopPart{FPS: 500, Duration: 200 * ms, CPU: -1}).Run(&b))
	var r loopResult
	rttest.Do(t, json.Unmarshal(b.Bytes(), &r))
	if r.Lateness.Count() != 100 || r.Lateness.Quantile(0.5) == 0 || r.Seconds < 0.2 || r.GCCycles != 0 {
		t.Errorf("result %+v with %d ticks; want 100, some time late, in at least 0.2 s, without a collection", r,
			r.Lateness.Count())
	}
}
