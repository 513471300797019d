package main

import (
	"math"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// Three edges and a server that is killed once, run as users run them: they hold and recover by
// themselves, each in its own second session. Effects of a busy host, overruns and few targets, are
// not checked here but by make soak.
func TestAServerThatIsKilled(t *testing.T) {
	rttest.RealTime(t)
	if testing.Short() {
		t.Skip("runs three arms for 15 s")
	}
	stagetest.NeedsRuntime(t)
	bin := rttest.Must(rttest.Programs(t.TempDir(), "edge-rt", "lean-server"))(t)
	err := soak(options{
		bin:      bin,
		manifest: "../../testdata/demo/server.yaml",
		edges:    3,
		kills:    1,
		duration: 15 * time.Second,
		down:     3 * time.Second,
		own:      math.MaxUint64,
		back:     backLimit,
	})
	if err != nil {
		t.Error(err)
	}
}
