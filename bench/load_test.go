package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage"
)

func TestLoadsEnd(t *testing.T) {
	for _, name := range []string{"cpu", "alloc"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := (LoadPart{name}).Run(ctx); err != nil || ctx.Err() == nil {
			t.Errorf("LoadPart(%s) = %v before its context ended", name, err)
		}
		cancel()
	}
	if none, err := StartLoad("none"); none != nil || err != nil {
		t.Errorf("StartLoad(none) = %v, %v, want nothing", none, err)
	}
	rttest.Fails(t, rttest.Err(StartLoad("moon")))
}

// A paused load does nothing and a resumed load continues; Stop ends a load in either state.
func TestLoadRests(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skipf("no shell here: %v", err)
	}
	ready := filepath.Join(t.TempDir(), "ready")
	c := rttest.Must(stage.StartGroup(exec.Command("sh", "-c",
		"trap 'exit 0' TERM; : >"+ready+"; while :; do :; done")))(t)
	t.Cleanup(func() { c.Stop() })
	rttest.Eventually(t, "the load catches the signal", func() bool {
		_, err := os.Stat(ready)
		return err == nil
	})
	l := &Load{child: c}
	state := func() string {
		b := rttest.ReadFile(t, fmt.Sprintf("/proc/%d/stat", c.PID()))
		return strings.Fields(b)[2]
	}
	l.Pause()
	rttest.Eventually(t, "a paused load is stopped", func() bool { return state() == "T" })
	l.Resume()
	if s := state(); s == "T" {
		t.Error("a resumed load is still stopped")
	}
	l.Pause()
	if err := l.Stop(); err != nil || c.Running() {
		t.Errorf("Stop of a paused load: %v, running %t", err, c.Running())
	}
	rttest.Fails(t, l.Stop())
}
