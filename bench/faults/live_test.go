package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/fleet"
	"github.com/edge-rt/edge-rt/sim/netfault"
	"github.com/edge-rt/edge-rt/stage"
)

// An edge that finds no motors, as on a very busy host, is started again a few times. An edge that
// fails for another reason is not started again.
func TestLivePlaysAgain(t *testing.T) {
	for _, tt := range []struct {
		name            string
		code, failures  int
		again           int64
		wantCode        exit.Code
		wantReached, in int
	}{
		{"twice no motors", 4, 2, 2, exit.Clean, 5, 3},
		{"never any", 4, 99, liveTries - 1, exit.Absent, 0, liveTries},
		{"a bad configuration", 3, 99, 0, exit.Config, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			// The script's arguments are edge-rt's flags. The name of the summary follows --json,
			// and the record's folder follows --record-dir.
			script := fmt.Sprintf("#!/bin/sh\necho run >> %s/runs\n[ $(wc -l < %[1]s/runs) -gt %d ] || exit %d\n"+
				"while [ \"$1\" != --json ]; do shift; done\necho '{\"targets_reached\": 5}' > $2\ncp -R %[4]s $6\n",
				dir, tt.failures, tt.code, writeRecord(t, sim.DOF))
			rttest.WriteFile(t, dir, "edge-rt", script)
			cfg := config(t)
			var log bytes.Buffer
			cfg.Bin = dir
			cfg.Log = &log
			cfg.Duration = 1 // so short that the script's immediate end is not too early
			var again atomic.Int64
			p := playerOn(t, context.Background(), &cfg, &again)
			o, _, err := p.play(job{})
			runs := rttest.ReadFile(t, filepath.Join(dir, "runs"))
			if exit.Of(err) != tt.wantCode || o.Both().Reached != tt.wantReached ||
				strings.Count(runs, "run") != tt.in {
				t.Errorf("%d runs end in %d reached, %v, want %d, %d reached, code %d",
					strings.Count(runs, "run"), o.Both().Reached, err, tt.in, tt.wantReached, tt.wantCode)
			}
			if again.Load() != tt.again || strings.Count(log.String(), "played again") != int(tt.again) {
				t.Errorf("%d tries again, log %q, want %d", again.Load(), log.String(), tt.again)
			}
		})
	}
}

// playerOn returns a player whose server sleeps.
func playerOn(t *testing.T, ctx context.Context, cfg *Config, again *atomic.Int64) *livePlayer {
	t.Helper()
	p, err := newLivePlayer(ctx, cfg, filepath.Join(cfg.Bin, "0"), again)
	if err == nil {
		p.server.Child, err = stage.Start(exec.Command("sleep", "60"))
	}
	rttest.Do(t, err)
	t.Cleanup(func() { p.server.Kill() })
	return p
}

// The server's outages follow the script; restarts that overlap are one.
func TestOutagesFollowTheScript(t *testing.T) {
	for text, want := range map[string][]stage.Outage{
		"{kind: restart, at: 2s, for: 100ms, every: 3s}": {{At: liveStart + 2*time.Second,
			For: 100 * time.Millisecond}},
		"{kind: restart, at: 2s, for: 1s}, {kind: restart, at: 2500ms, for: 1s}": {
			{At: liveStart + 2*time.Second, For: 1500 * time.Millisecond}},
		"{kind: restart, for: 24h}":                {{At: liveStart, For: 24 * time.Hour}},
		"{kind: restart, at: 4s, for: 1s}":         nil,
		"{kind: blackout, for: 1s, every: 1500ms}": nil,
	} {
		s := rttest.Must(netfault.Parse([]byte("faults: [" + text + "]")))(t)
		var got []stage.Outage
		for o := range outages(s.Plan(1, time.Millisecond), 4*time.Second) {
			got = append(got, o)
		}
		rttest.Equal(t, got, want, "%s", text)
	}
}

func TestCountInferences(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.jsonl")
	text := `{"outcome": "ok"}
{"outcome": "bad_observation"}
{"outcome": "unsent"}
{"outcome": "inference_failed"}
{"outcome": "not_finite"}
{"outcome": "ok", "why": ""}
{"outcome": "o`
	rttest.Do(t, os.WriteFile(name, []byte(text), 0o600))
	rttest.Want(t, rttest.Must(countInferences(name))(t), 4, "countInferences()")
	rttest.Fails(t, rttest.Err(countInferences(name+"x")))
}

// WriteSVG and WriteCSV need single ticks, which a run in real time does not keep. They return an
// error and do not panic.
func TestNoTicksOfRealTime(t *testing.T) {
	cfg := config(t)
	cfg.live = true
	rttest.Do(t, cfg.check())
	b := newComparison(&cfg)
	r := b.report()
	for name, write := range map[string]func(io.Writer) error{"svg": r.WriteSVG, "csv": r.WriteCSV} {
		var out bytes.Buffer
		if err := write(&out); !errors.Is(err, errNoTicks) || out.Len() > 0 {
			t.Errorf("%s: %v, %q", name, err, out.String())
		}
	}
	if html := text(t, r.WriteHTML); strings.Contains(html, "<figure>") || strings.Contains(html, "NaN") {
		t.Error("the page of real time holds a figure or a NaN")
	}
}

func TestReportSaysHowItWasPlayed(t *testing.T) {
	live := &Report{Again: 3}
	if got := live.how(); !strings.Contains(got, "real time") || !strings.Contains(got, "3 tries again") ||
		strings.Contains(got, "ms") {
		t.Errorf("real time: %q", got)
	}
	virtual := &Report{Virtual: true, NetworkMs: 4, ComputeMs: 20}
	rttest.Want(t, virtual.how(), "virtual time, 4 ms of network each way, 20 ms for the policy", "virtual")
}

// ranTick is an action that ran the given number of ticks after the previous action.
type ranTick struct {
	ticks, age int64
	seq        uint64
	pan, elbow float32
}

// writeRecord writes a record with these actions, and with ticks without an action between them.
func writeRecord(t *testing.T, dof int, ticks ...ranTick) (dir string) {
	t.Helper()
	dir = t.TempDir()
	r := rttest.Must(record.New(record.Config{
		Mode:  record.All,
		Dir:   dir,
		Size:  1 << 30,
		ID:    "arm",
		Clock: rttest.NewClock(0),
	}))(t)
	put := func(m record.Tick, action ...float32) {
		slot := r.Ticks.Put()
		*slot = m
		slot.Action.Set(action)
		r.Ticks.Commit()
	}
	at := rt.Instant(time.Hour)
	put(record.Tick{At: at, Starved: true})
	for _, a := range ticks {
		at = at.Add(time.Duration(a.ticks) * fleet.Period)
		put(record.Tick{
			At:     at,
			Step:   7,
			Seq:    a.seq,
			Source: at.Add(-time.Duration(a.age) * fleet.Period),
		}, []float32{a.pan, 0, a.elbow, 0, 0, 0}[:dof]...)
		put(record.Tick{At: at + 1, Starved: true})
	}
	var stop atomic.Bool
	stop.Store(true)
	r.Collect()
	r.Write(&stop)
	return dir
}

// Ages and seams computed from the record equal those of virtual time: an arm that pauses for a
// tick starts again from rest.
func TestReadRecord(t *testing.T) {
	o := fleet.Outcome{Actions: 6}
	dir := writeRecord(t, sim.DOF, ranTick{1, 3, 1, 0, 0}, ranTick{1, 4, 1, 1, 0}, ranTick{1, 5, 1, 2, 0},
		ranTick{1, 3, 2, 3, 0},  // continues in a straight line
		ranTick{1, 4, 3, 9, 0},  // 5 beyond the straight line through the last two goals
		ranTick{3, 9, 4, 10, 2}) // after a pause: distances 1 and 2 from the standstill
	if err := readRecord(dir, &o); err != nil || !slices.Equal(o.Seams, []float64{0, 5, 2}) || o.Age(0.5) != 4 ||
		o.Age(1) != 9 {
		t.Errorf("seams %v, ages %d and %d, %v, want 0, 5 and 2, 4 and 9", o.Seams, o.Age(0.5), o.Age(1), err)
	}
	// The record must have been deleted.
	rttest.FailsAs(t, rttest.Err(os.Stat(dir)), os.ErrNotExist)
	// a record of another arm
	rttest.Fails(t, readRecord(writeRecord(t, 2, ranTick{1, 3, 1, 0, 0}), &o), "step 7 has 2 joints")
	torn := writeRecord(t, sim.DOF, ranTick{1, 3, 1, 0, 0})
	files, err := filepath.Glob(filepath.Join(torn, "*.mcap"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	rttest.Do(t, os.Truncate(files[0], 900))
	rttest.Fails(t, readRecord(torn, &o), "no end")
	for _, none := range []string{t.TempDir(), dir + "/none"} {
		if readRecord(none, &o) == nil {
			t.Errorf("%s: a record that is not there was read", none)
		}
	}
}
