package dataset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/record/recordtest"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// A run without episodes is cut where an operator has changed its task. A refused change and the same task again cut
// nothing. A short part is left out, and the last part grows with the run. With --task nothing is cut.
func TestTasksCutARun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.mcap")
	write := func(seconds float64) {
		s := plainRun("one", seconds)
		for _, c := range []struct {
			at      float64
			refused int64
			text    string
		}{{1, 0, "task psh"}, {1.5, 0, "task push"}, {2, 0, "task  push "}, {2, 1, "task throw: the run is ending"},
			{2, 0, "pause"}} {
			e := record.Event{At: s.at(c.at) + testStart, Kind: "operator", B: c.refused}
			e.Text.Set(c.text)
			s.events = append(s.events, e)
		}
		s.write(t, "", file)
	}
	write(3)
	cfg := testConfig(t, file)
	d := data(t, cfg)
	same(t, "tasks", d.firsts(taskIndex), append(slices.Repeat([]float64{0}, 30), slices.Repeat([]float64{1}, 45)...))
	write(4)
	cfg.Append = true
	if r := exporting(t, cfg); r.Episodes != 2 || r.Frames != 105 || r.Replaced != 2 {
		t.Errorf("%+v, want 105 frames", r)
	}
	checked(t, cfg.Out)
	cfg.Task = "all"
	if r := exporting(t, cfg); r.Added != 0 || r.Replaced != 0 {
		t.Errorf("%+v, want that another task changes no episode", r)
	}
	cfg.Append, cfg.Out = false, cfg.Out+"2"
	if r := exporting(t, cfg); r.Episodes != 1 || r.Frames != 120 {
		t.Errorf("%+v, want one episode", r)
	}
}

// The rest of an episode whose beginning is in no file makes no episode of its own.
func TestAnEndWithoutABeginning(t *testing.T) {
	s := &scene{task: "x", episodes: []record.Episode{end(1, 1, record.Success)}}
	refused(t, s.config(t), "1 episodes whose beginning is in no file")
}

// The last outcome that the operator gave an episode is valid. An end without a beginning makes no episode.
func TestTheLastOutcomeCounts(t *testing.T) {
	r := new(run)
	var open *mark
	for _, e := range []record.Episode{
		{Number: 1}, {Number: 1, Ended: true, Outcome: record.Timeout},
		{Number: 1, Ended: true, Outcome: record.Failure},
		{Number: 2}, {Number: 2, Ended: true, Outcome: record.Success},
		{Number: 7, Ended: true, Outcome: record.Success},
		{Number: 3}, {Number: 2, Ended: true, Outcome: record.Discard},
		{Number: 3, Ended: true, Outcome: record.Success},
	} {
		open = r.addMark(open, &e)
	}
	var outcomes []string
	for _, m := range r.marks {
		outcomes = append(outcomes, m.outcome)
	}
	same(t, "outcomes", outcomes, []string{record.Failure, record.Discard, record.Success})
	same(t, "ends without a beginning, no episode in progress", []any{r.headless, open == nil}, []any{1, true})
}

// The times in a report are those of the newest file's clock, which may have been set during the run.
func TestTheNewestClockCounts(t *testing.T) {
	var files []string
	for i, wall := range []string{"5", fmt.Sprint(recordtest.Wall)} {
		file := filepath.Join(t.TempDir(), "a.mcap")
		f := recordtest.Create(t, file, map[string]string{"instance": "one", "clock_offset_ns": wall})
		f.Tick(&record.Tick{At: rt.Instant(i + 1)})
		f.Close()
		files = append([]string{file}, files...)
	}
	runs, _, err := runsOf(t.Context(), files, nil)
	if err != nil || len(runs) != 1 || runs[0].wall != recordtest.Wall {
		t.Errorf("%+v, %v, want one run with the newest file's time of day", runs, err)
	}
}

// Ctrl-C ends each reading of a run's files.
func TestEachReadingIsInterrupted(t *testing.T) {
	file := plainRun("one", 1).write(t, t.TempDir(), "a.mcap")
	runs, _, err := runsOf(t.Context(), []string{file}, nil)
	rttest.Do(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = runsOf(ctx, []string{file}, nil)
	same(t, "the first reading", err, context.Canceled)
	r := runs[0]
	r.cams = oneCamera
	for name, err := range map[string]error{"the sizes": r.measure(ctx), "the ticks": r.read(ctx)} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want %v", name, err, context.Canceled)
		}
	}
}

// A dataset's rate is a whole number, so a run with another rate is refused.
func TestNoDatasetHasTheRate(t *testing.T) {
	r := &run{info: map[string]string{"joints": "a.pos", "fps": "29.97"}}
	rttest.Fails(t, r.describe(0, nil), "record with a --fps that is one")
}

// A folder of links is a selection of records. A link without a target is refused, since its record
// would be missing. A hidden file is no record.
func TestAFolderOfLinks(t *testing.T) {
	dir := t.TempDir()
	chosen := filepath.Join(dir, "chosen")
	rttest.Do(t, errors.Join(os.Mkdir(chosen, 0o700), os.WriteFile(filepath.Join(chosen, "._.mcap"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "a.mcap"), nil, 0o600),
		os.Mkdir(filepath.Join(chosen, "b.mcap"), 0o700), os.Symlink("../a.mcap", filepath.Join(chosen, "a.mcap"))))
	if files, listed, err := find([]string{chosen}); err != nil || len(files) != 1 || !listed[files[0]] {
		t.Errorf("%q, %v, want the link", files, err)
	}
	rttest.Do(t, os.Symlink("../c.mcap", filepath.Join(chosen, "c.mcap")))
	if _, _, err := find([]string{chosen}); !rttest.Says(err, "c.mcap: no such file") {
		t.Errorf("%v, want that c.mcap does not exist", err)
	}
}
