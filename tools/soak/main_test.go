package main

import (
	"math"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// Three edges and a server that is killed once run as users run them. The edges hold and recover by
// themselves, each in its own second session. The test ignores overruns and few targets, which a
// busy host may cause; make soak checks them.
func TestAServerThatIsKilled(t *testing.T) {
	rttest.RealTime(t)
	if testing.Short() {
		t.Skip("runs three arms for 12 s")
	}
	stagetest.NeedsRuntime(t)
	bin := rttest.Must(rttest.Programs(t.TempDir(), "edge-rt", "lean-server"))(t)
	err := soak(options{
		Bin:      bin,
		Manifest: "../../testdata/demo/server.yaml",
		Edges:    3,
		Kills:    1,
		Duration: 12 * time.Second,
		Down:     2500 * time.Millisecond,
		Own:      math.MaxUint64,
		Back:     backLimit,
	})
	if err != nil {
		t.Error(err)
	}
}
