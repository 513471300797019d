package edge

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"edgert/chunk"
	"edgert/chunk/stage"
	"edgert/record"
	"edgert/rt"
)

// recordInto gives the rig a log and a session to name.
func recordInto(t *testing.T, r *rig, w *bytes.Buffer) {
	t.Helper()
	log, err := record.NewLog(w, record.Header{FPS: 60, Names: []string{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	r.record = log
	r.flags.session.Store(&record.Session{ID: "first", Epoch: 1, SHA256: "aa"})
}

// Every action that ran is on record with its request, row, delay and source; what
// is left of an earlier session keeps that session's name.
func TestActionsAreRecorded(t *testing.T) {
	r, out := newRig(t), new(bytes.Buffer)
	recordInto(t, r, out)
	r.serve(40, 3, 10)
	r.flags.session.Store(&record.Session{ID: "second", Epoch: 2, SHA256: "bb"})
	r.flags.epoch.Store(2)
	for before := r.session.key; r.session.key == before; {
		r.step(1) // runs what the first session left
	}
	r.answer(r.session.key, 10)
	r.step(5)
	if err := r.record.Drain(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")[1:]
	if uint64(len(lines)) != r.stats.actions.Load() || len(lines) < 40 {
		t.Fatalf("%d lines for %d actions", len(lines), r.stats.actions.Load())
	}
	for i, text := range lines {
		var a struct {
			Step, Seq, Epoch, Delay, Dropped int64
			T                                int64 `json:"t_ns"`
			Source                           int64 `json:"source_ns"`
			Session                          string
			Goal                             []float32
		}
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatal(err)
		}
		want := map[int64]string{1: "first", 2: "second"}[a.Epoch]
		if a.Step != int64(i) || a.Session != want || a.Seq == 0 || a.Source >= a.T || len(a.Goal) != testDOF {
			t.Errorf("line %d: %s", i, text)
		}
		if a.Seq > 1 && a.Epoch == 1 && (a.Delay != 3 || a.Dropped != 3) {
			t.Errorf("line %d: announced %d, dropped %d rows, want 3 and 3", i, a.Delay, a.Dropped)
		}
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, `"second"`) {
		t.Errorf("the last action is of another session: %s", last)
	}
}

func TestTickWithEverythingNoAlloc(t *testing.T) {
	r, out := newRig(t), new(bytes.Buffer)
	out.Grow(1 << 22)
	recordInto(t, r, out)
	shape, err := stage.NewChain(stage.Config{Cutoff: 10, Gain: 1.4, Multiplier: 2, Velocity: 100, Accel: 1000}, 50, testDOF)
	if err != nil {
		t.Fatal(err)
	}
	r.core.Stages = shape
	r.serve(200, 3, 10)
	r.bus.writes = r.bus.writes[:0:0]
	if n := testing.AllocsPerRun(500, func() {
		now := r.time.Now()
		r.tick(rt.Tick{Deadline: now, Woke: now})
		if r.record.Drain() != nil {
			t.Error("drain failed")
		}
		r.time.SleepUntil(now.Add(testPeriod))
	}); n != 0 {
		t.Errorf("tick allocates %v times, want 0", n)
	}
}

// With two ticks per action the discipline counts actions: half as many run, and
// the runway is as long as they last.
func TestInterpolatedTicks(t *testing.T) {
	r := newRig(t)
	shape, err := stage.NewChain(stage.Config{Multiplier: 2}, 50, testDOF)
	if err != nil {
		t.Fatal(err)
	}
	r.core.Stages, r.slope = shape, 1
	r.serve(201, 3, 10)
	if n := r.core.Schedule.View().N; n < 95 || n > 101 {
		t.Errorf("%d actions in 201 ticks, want about 98", n)
	}
	if n := r.stats.starved.Load(); n != 0 {
		t.Errorf("starved %d ticks, want 0", n)
	}
	snap, _, _ := r.out.snapshots.Front()
	if want := time.Duration(2*snap.ask.Runway) * testPeriod; snap.runway != want || snap.ask.Runway == 0 {
		t.Errorf("runway %v for %d actions, want %v", snap.runway, snap.ask.Runway, want)
	}
}

// What conditions a chunk is what the arm will do: after the filter and the limits.
func TestPrefixIsWhatWillRun(t *testing.T) {
	r := newRig(t)
	shape, err := stage.NewChain(stage.Config{Cutoff: 5}, 100, testDOF)
	if err != nil {
		t.Fatal(err)
	}
	r.core.Stages, r.slope = shape, 0.7
	r.serve(100, 3, 10)
	before := r.session.key
	for r.session.key == before {
		r.step(1)
	}
	snap, _, _ := r.out.snapshots.Front()
	if snap.ask.Rows < 3 {
		t.Fatalf("%d rows of prefix", snap.ask.Rows)
	}
	r.bus.writes = r.bus.writes[:0]
	r.step(3)
	for i, w := range r.bus.writes {
		for j := range testDOF {
			if got := snap.ask.Robot[i*testDOF+j]; got != w[j] {
				t.Errorf("row %d, joint %d: the prefix says %v, the arm did %v", i, j, got, w[j])
			}
		}
	}
}

// A discipline that asks when nothing is left is not DEGRADED before it has waited.
func TestRareRequestsAreNotDegraded(t *testing.T) {
	r := newRig(t)
	schedule, err := chunk.New(chunk.Config{Schedule: "sync", Horizon: testHorizon, DOF: testDOF, FPS: 100, Epsilon: 1})
	if err != nil {
		t.Fatal(err)
	}
	r.core.Schedule, r.degradedAfter = schedule, 150*time.Millisecond // less than a chunk lasts
	degraded := false
	due := map[uint64]int64{}
	last := r.session.key
	for range 200 {
		if key, ok := due[r.index]; ok {
			r.answer(key, 10)
		}
		r.step(1)
		degraded = degraded || r.run.state == stateDegraded
		if r.session.key != last {
			last = r.session.key
			due[r.index+3] = last
		}
	}
	if degraded || r.stats.chunks.Load() < 5 {
		t.Errorf("degraded %v with %d chunks, want never", degraded, r.stats.chunks.Load())
	}
}
