package server

import (
	"encoding/json"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/acl"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire"
)

// audited makes the bench's server write audit lines and captures to dir.
func (b *bench) audited(dir string) *audit.Writer {
	b.t.Helper()
	cfg := config()
	cfg.Audit, cfg.Debug = filepath.Join(dir, "audit.jsonl"),
		manifest.Debug{CaptureDir: filepath.Join(dir, "captures"), CaptureMax: 8}
	w := rttest.OrPanic(audit.Open(&cfg, rttest.NewClock(1), slog.New(slog.DiscardHandler)))
	b.server.audit, b.server.worker.publisher.audit = w, w
	b.server.counters = counters(b.server.stats, new(Links), new(acl.Service), b.server.others, w.Counted())
	b.t.Cleanup(func() { rttest.Do(b.t, w.Close()) })
	return w
}

type auditLine struct {
	TS         time.Time         `json:"ts"`
	Session    string            `json:"session_id"`
	Client     string            `json:"client_uuid"`
	Tags       map[string]string `json:"tags"`
	Epoch      uint32            `json:"session_epoch"`
	Model      string            `json:"model_sha256"`
	Seq        uint64            `json:"seq_id"`
	Episode    uint32            `json:"episode_id"`
	Mono       int64             `json:"client_mono_ns"`
	Wait       float64           `json:"queue_wait_ms"`
	Decode     float64           `json:"decode_ms"`
	Inference  float64           `json:"inference_ms"`
	Service    float64           `json:"service_ms"`
	Range      []int64           `json:"chunk_range"`
	Superseded uint64            `json:"superseded_seqs"`
	Batch      int               `json:"batch"`
	Row        int               `json:"row"`
	Mode       string            `json:"conditioning"`
	Delay      int               `json:"delay"`
	Stale      []string          `json:"stale_cameras"`
	Outcome    string            `json:"outcome"`
	Why        string            `json:"why"`
}

func readAudit(t *testing.T, path string) (lines []auditLine) {
	t.Helper()
	text := rttest.ReadFile(t, path)
	for line := range strings.Lines(text) {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		var a auditLine
		if err := d.Decode(&a); err != nil {
			t.Fatalf("audit line %q: %v", line, err)
		}
		lines = append(lines, a)
	}
	return lines
}

// Every request that had its turn has one line, whatever its outcome, and the lines are in the order of the requests.
func TestAuditTellsEveryRequest(t *testing.T) {
	dir := t.TempDir()
	var w *audit.Writer
	b := serve(t, config(), func(b *bench) {
		w = b.audited(dir)
		b.beforeRuns(func(int) error { b.clock.Advance(3 * time.Millisecond); return nil })
		b.model.Poison, b.model.Overflow = 1, 2
	})
	o := fakeOpen("arm")
	o.Tags = []wire.Tag{{Key: "site", Value: "lab \"2\""}, {Key: "shift", Value: "b"}}
	ack := b.open(o)
	r := b.robot("arm")
	ask := func(seq uint64, obs *wire.Observation) {
		h := obsHeader(2, seq)
		h.EpisodeID = 5
		b.clock.Advance(2 * eventInterval)
		r.send(h, obs)
		r.next()
	}
	good := prefixed(t)
	good.HasN, good.N = true, 40
	ask(1, good)
	bad := fakeObs(t)
	bad.State = bad.State[:1]
	ask(2, bad)
	good.State[0] = b.model.Poison
	ask(3, good)
	good.State[0] = b.model.Overflow
	ask(4, good)
	ask(5, fakeObs(t)) // a client of LeRobot's draft omits the field n
	b.end()
	lines := readAudit(t, filepath.Join(dir, "audit.jsonl"))
	type row struct {
		seq           uint64
		outcome, mode string
		delay         int
		first, last   int64
		inference     float64
		why           string
	}
	want := []row{
		{seq: 1, outcome: "ok", mode: "trained", delay: 2, first: 41, last: 49, inference: 3},
		{seq: 2, outcome: "bad_observation", mode: "free", why: "state"},
		{seq: 3, outcome: "inference_failed", mode: "trained", delay: 2, inference: 3, why: "inference failed"},
		{seq: 4, outcome: "not_finite", mode: "trained", delay: 2, inference: 3, why: "not finite"},
		{seq: 5, outcome: "ok", mode: "free", first: 0, last: 8, inference: 3},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d audit lines, want %d: %+v", len(lines), len(want), lines)
	}
	for i, w := range want {
		got := lines[i]
		ranged := len(got.Range) == 2 && got.Range[0] == w.first && got.Range[1] == w.last || got.Range == nil &&
			w.last == 0
		if got.Seq != w.seq || got.Outcome != w.outcome || got.Mode != w.mode || got.Delay != w.delay || !ranged ||
			got.Inference != w.inference ||
			!strings.Contains(got.Why, w.why) || (got.Why == "") != (w.why == "") ||
			!maps.Equal(got.Tags, map[string]string{"site": "lab \"2\"", "shift": "b"}) ||
			got.Session != ack.SessionID || got.Client != "arm" || got.Epoch != 2 || got.Episode != 5 ||
			got.Service < got.Inference {
			t.Errorf("line %d = %+v, want %+v", i, got, w)
		}
		// a wide margin, because this test's clock runs fast
		if age := time.Since(got.TS); age.Abs() > time.Minute {
			t.Errorf("line %d is %v old", i, age)
		}
	}
	c := &w.Counts
	if c.Lines.Load() != 5 || c.LinesDropped.Load() != 0 || c.Captures.Load() != 5 || c.CapturesDropped.Load() != 0 {
		t.Errorf("wrote %d lines and %d captures, want 5 of each and none dropped", c.Lines.Load(), c.Captures.Load())
	}
}

func TestOutcomesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for o := range audit.NumOutcomes {
		seen[o.String()] = true
	}
	for r := range numRefused {
		seen["refused "+r.String()] = true
	}
	if len(seen) != int(audit.NumOutcomes)+int(numRefused) || seen[""] || seen["refused "] {
		t.Errorf("names = %v, want one for each", seen)
	}
}
