package jitter

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The counts are exact to the microsecond, and ticks beyond the largest bin count as in the largest bin.
func TestLoopCounts(t *testing.T) {
	const us = time.Microsecond
	c := newLoopCounts(10 * ms)
	for _, tick := range []struct {
		deadline, late time.Duration
	}{{10 * ms, 5 * us}, {20 * ms, 9 * us}, {30 * ms, 2 * us},
		{50 * ms, 500 * us}, {90 * ms, 300 * ms}, {490 * ms, 200 * ms}} {
		c.add(rt.Instant(tick.deadline), rt.Instant(tick.deadline+tick.late))
	}
	late := c.late.tally()
	if late.Count() != 6 || late.Quantile(0.5) != 9 || late.Max() != 300_000 || late.Above(250*ms) != 2 {
		t.Errorf("lateness: %d, p50 %v, max %v, %d beyond the bins; want 6, 9, 300000, 2", late.Count(),
			late.Quantile(0.5), late.Max(), late.Above(250*ms))
	}
	// The periods differ by 4 us and by 7 us; the step over the skipped tick is not jitter.
	if q := c.jitter.tally().Quantiles(); q.P50 != 4 || q.Max != 7 {
		t.Errorf("jitter p50 %v, max %v; want 4, 7", q.P50, q.Max)
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
