package server

import (
	"log/slog"
	"os"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// Goal: the model computes with the manifest's number of threads.
func TestManifestThreadsReachTheModel(t *testing.T) {
	stagetest.NeedsRuntime(t)
	count := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Skipf("no /proc here: %v", err)
		}
		return len(tasks)
	}
	threads := func(n int) int {
		cfg := manifest.Default()
		cfg.Model.RepoOrPath, cfg.Threads = "../testdata/demo/still", n
		before := count()
		m := rttest.Must(load(t.Context(), &cfg, slog.New(slog.DiscardHandler), nil))(t)
		started := count() - before
		rttest.Do(t, m.Close())
		return started
	}
	threads(1) // the first model makes the Go runtime start threads, which must not be in the counts below
	if one, many := threads(1), threads(40); many-one < 30 {
		t.Errorf("threads: 40 starts %d more than threads: 1, want 39", many-one)
	}
}

func TestProgressShowsNoPassword(t *testing.T) {
	cfg := manifest.Default()
	cfg.Model.Runtime, cfg.Model.URL = manifest.RuntimeOpenPI, "ws://user:secret@127.0.0.1:1"
	cfg.Model.Inputs = manifest.Inputs{
		FPS:         30,
		ChunkSize:   1,
		ActionNames: []string{"a"},
		ActionUnits: []string{"degrees"},
	}
	var shown string
	note := func(text string) { shown = text }
	rttest.Fails(t, rttest.Err(load(t.Context(), &cfg, slog.New(slog.DiscardHandler), note)))
	rttest.Want(t, shown, "connecting to ws://xxxxx@127.0.0.1:1", "progress")
}
