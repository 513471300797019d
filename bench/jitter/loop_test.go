package jitter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edgert/bench"
	"edgert/rt"
)

func TestSummarizeTicks(t *testing.T) {
	const period = 10 * ms
	at := func(deadline, late time.Duration) loopSample {
		return loopSample{rt.Instant(0).Add(deadline), rt.Instant(0).Add(deadline + late)}
	}
	us := time.Microsecond
	r := summarize([]loopSample{at(10*ms, 5*us), at(20*ms, 9*us), at(30*ms, 2*us), at(50*ms, 500*us)}, period)
	if r.Lateness.Count() != 4 || r.Lateness.Quantile(0.5) != 5 || r.Lateness.Max() != 500 {
		t.Errorf("lateness: %d, p50 %v, max %v; want 4, 5, 500", r.Lateness.Count(), r.Lateness.Quantile(0.5), r.Lateness.Max())
	}
	// 4 us and 7 us off; the step over the skipped tick is not jitter.
	if r.Jitter.P50 != 4 || r.Jitter.Max != 7 {
		t.Errorf("jitter p50 %v, max %v; want 4, 7", r.Jitter.P50, r.Jitter.Max)
	}
}

func TestLoopPart(t *testing.T) {
	var b bytes.Buffer
	if err := (LoopPart{FPS: 500, Duration: 200 * ms, CPU: -1}).Run(&b); err != nil {
		t.Fatal(err)
	}
	var r LoopResult
	if err := json.Unmarshal(b.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Lateness.Count() != 100 || r.Lateness.Quantile(0.5) == 0 || r.Seconds < 0.2 || r.GCCycles != 0 {
		t.Errorf("result %+v with %d ticks; want 100, some time late, in at least 0.2 s, without a collection", r, r.Lateness.Count())
	}
}

func TestLoadsEnd(t *testing.T) {
	for _, name := range []string{"cpu", "alloc"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*ms)
		if err := LoadPart(ctx, name); err != nil || ctx.Err() == nil {
			t.Errorf("LoadPart(%s) = %v before its context ended", name, err)
		}
		cancel()
	}
	if err := LoadPart(t.Context(), "moon"); err == nil {
		t.Error("LoadPart of an unknown load has no error")
	}
	if none, err := startLoad("none", nil); none != nil || err != nil {
		t.Errorf("startLoad(none) = %v, %v, want nothing", none, err)
	}
	if _, err := startLoad("moon", nil); err == nil {
		t.Error("startLoad of an unknown load has no error")
	}
}

// A paused load does nothing, a resumed one goes on, and both end.
func TestLoadRests(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skipf("no shell here: %v", err)
	}
	ready := filepath.Join(t.TempDir(), "ready")
	c, err := bench.StartGroup(exec.Command("sh", "-c", "trap 'exit 0' TERM; : >"+ready+"; while :; do :; done"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Stop() })
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(ms) {
		if _, err := os.Stat(ready); err == nil { // it catches the signal now
			break
		}
	}
	l := &load{child: c}
	state := func() string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.PID()))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(b))[2]
	}
	l.pause()
	for end := time.Now().Add(5 * time.Second); state() != "T"; time.Sleep(ms) {
		if time.Now().After(end) {
			t.Fatalf("a paused load is in state %s, want T", state())
		}
	}
	l.resume()
	if s := state(); s == "T" {
		t.Error("a resumed load is still stopped")
	}
	l.pause()
	if err := l.stop(); err != nil || c.Running() {
		t.Errorf("stop of a paused load: %v, running %t", err, c.Running())
	}
	if err := l.stop(); err == nil {
		t.Error("a load that has ended by itself is no error")
	}
}
