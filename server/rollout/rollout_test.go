package rollout

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/manifest"
	"golang.org/x/sys/unix"
)

// fake is a second server.
type fake struct {
	robots  int
	done    chan struct{}
	stopped bool
}

func (f *fake) SHA256() string        { return "abcdef0123" }
func (f *fake) ServerID() string      { return "host-rollout" }
func (f *fake) Robots() int           { return f.robots }
func (f *fake) Done() <-chan struct{} { return f.done }
func (f *fake) Stop() error           { f.stopped = true; return nil }

// The roll-out has the right state after each edit of the manifest, and after each change of the second server.
func TestSteps(t *testing.T) {
	clock := rttest.NewClock(1)
	t.Chdir(t.TempDir())
	const file = "server.yaml"
	size := 0
	write := func(text string) {
		size++ // after two edits in a short time, only the size shows that the file has changed
		rttest.Do(t, os.WriteFile(file, []byte("model: {repo_or_path: old}\n"+text+strings.Repeat("\n", size)), 0o600))
	}
	write("rollout: {model: new, share: 0.5}\n")
	adopt := func() {
		text := strings.Replace(rttest.ReadFile(t, file), "old", "next", 1)
		rttest.Do(t, os.WriteFile(file, []byte(strings.Split(text, "rollout")[0]), 0o600))
	}
	var second *fake
	var broken error
	var k *Keeper
	loads := 0
	k = New(Config{
		Manifest: rttest.Must(manifest.Load(file))(t),
		Open: func(_ context.Context, read *manifest.Config) (Second, error) {
			if loads++; broken != nil {
				return nil, broken
			}
			during := map[float64]func(){0.75: func() { write("rollout: {model: next}\n") }, 0.8: adopt, 0.85: func() {
				write("rollout: {model: {repo_or_path: next, sha256: abcdef01}, share: 0.9}\n")
			}}[read.Rollout.Share]
			if during != nil {
				plan := k.Report().Plan
				during()
				withdrawn := read.Rollout.Share == 0.75
				seen := func() bool {
					r := k.Report()
					return r.State == Leaving || !withdrawn && (r.Plan.Share != plan.Share || len(r.Restart) > 0)
				}
				for i := 0; i < 1000 && !seen(); i++ {
					time.Sleep(10 * time.Millisecond) // not Eventually: it may end the goroutine for which load waits
				}
				time.Sleep(10 * time.Millisecond) // time for the state to follow the plan
				rttest.Want(t, k.Report().State == Leaving, withdrawn, "%v: withdrawn during the load", plan.Share)
			}
			second = &fake{done: make(chan struct{})}
			return second, nil
		},
		Clock: clock,
		Log:   slog.New(slog.DiscardHandler),
	})
	if got := k.Report(); got.State != Loading || !got.Expects("abc") || got.New("arm") {
		t.Errorf("at the start: %+v", got)
	}
	for _, tt := range []struct {
		name   string
		change func()
		state  State
		loads  int
		why    string
	}{
		{"the manifest's model is loaded", nil, Serving, 1, ""},
		{"a larger share", func() { write("rollout: {model: new, share: 0.6}\n") }, Serving, 1, ""},
		{"its content is pinned", func() {
			write("rollout: {model: {repo_or_path: new, sha256: abcdef01}, share: 0.6}\n")
		}, Serving, 1, ""},
		{"a broken edit", func() { write("rollout: {model: new, share: 2}\n") }, Serving, 1, ""},
		{"back, with a robot", func() { second.robots = 1; write("rollout: {model: new}\n") }, Leaving, 1, "it has 1"},
		{"forward again", func() { write("rollout: {model: new, robots: [a]}\n") }, Serving, 1, ""},
		{"the next model waits", func() { write("rollout: {model: next, share: 1}\n") }, Leaving, 1, "is loaded then"},
		{"the robot has left", func() { second.robots = 0 }, Leaving, 1, "it has 0"},
		{"not long enough", nil, Leaving, 1, "it has 0"},
		{"long enough", func() { clock.Advance(leaveTime) }, Off, 1, ""},
		{"the next model", nil, Serving, 2, ""},
		{"it ends", func() { close(second.done); broken = errors.New("a broken file") }, Failed, 2, "has ended"},
		{"it is not tried again", nil, Failed, 2, "has ended"},
		{"before an edit", func() { write("rollout: {model: next, share: 1}\n") }, Failed, 3, "a broken file"},
		{"back while it loads", func() { broken = nil; write("rollout: {model: next, share: 0.75}\n") }, Leaving, 4,
			"it has 0"},
		{"the block is removed", func() { write(""); clock.Advance(leaveTime) }, Off, 4, ""},
		{"pinned while it loads", func() { write("rollout: {model: next, share: 0.85}\n") }, Serving, 5, ""},
		{"back again", func() { write("") }, Leaving, 5, "it has 0"},
		{"unloaded", func() { clock.Advance(leaveTime) }, Off, 5, ""},
		{"adopted while it loads", func() { write("rollout: {model: next, share: 0.8}\n") }, Serving, 6, ""},
		{"and comes back", func() { write("rollout: {model: next, share: 1}\n") }, Serving, 6, ""},
		{"its model is the manifest's", adopt, Serving, 6, ""},
	} {
		if tt.change != nil {
			tt.change()
		}
		k.reread()
		k.step(t.Context())
		if got := k.Report(); got.State != tt.state || loads != tt.loads || !strings.Contains(got.Why, tt.why) ||
			tt.why == "" && got.Why != "" {
			t.Errorf("%s: %v (%s) after %d loads, want %v (%s) after %d", tt.name, got.State, got.Why, loads, tt.state,
				tt.why, tt.loads)
		}
		if got := k.Report(); tt.name == "a broken edit" && (got.Plan.Share != 0.6 ||
			!strings.Contains(got.Edit, "rollout.share must be 0..1")) {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	if got := k.Report(); !got.Plan.Takes("arm") || len(got.Restart) != 1 || k.counts.Models.Load() != 2 ||
		k.counts.Manifests.Load() != 1 {
		t.Errorf("at the end: %+v, %d models and %d manifests refused", got, k.counts.Models.Load(),
			k.counts.Manifests.Load())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if k.Run(ctx); !second.stopped {
		t.Error("the second server still runs")
	}
}

// An edit that comes while the server loads its first model, before New, is not lost.
func TestAnEditBeforeTheKeeper(t *testing.T) {
	file := rttest.WriteFile(t, t.TempDir(), "server.yaml", "model: {repo_or_path: old}\n")
	cfg := rttest.Must(manifest.Load(file))(t)
	rttest.Do(t, os.WriteFile(file, []byte("model: {repo_or_path: old}\nthreads: 2\nrollout: {model: new, share: 1}\n"),
		0o600))
	k := New(Config{Manifest: cfg, Log: slog.New(slog.DiscardHandler)})
	k.reread()
	if r := k.Report(); r.Plan.Share != 1 || !slices.Equal(r.Restart, []string{"threads"}) {
		t.Errorf("the report has share %g and restart %q, want 1 and threads", r.Plan.Share, r.Restart)
	}
}

// A manifest from a pipe, as in --manifest <(envsubst < server.yaml), cannot be edited: it is not read again, although
// the time of the pipe changes when its writer writes.
func TestAManifestFromAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "server.yaml")
	rttest.Do(t, unix.Mkfifo(pipe, 0o600))
	go func() {
		time.Sleep(20 * time.Millisecond) // Load has begun
		_ = os.WriteFile(pipe, []byte("model: {repo_or_path: old}\n"), 0o600)
	}()
	k := New(Config{Manifest: rttest.Must(manifest.Load(pipe))(t), Log: slog.New(slog.DiscardHandler)})
	k.reread()
	rttest.Want(t, k.Report().Edit, "", "the reason to refuse an edit")
	rttest.Want(t, k.Counted().Manifests.Load(), 0, "refused manifests")
}
