package main

import (
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Three edges and a server that is killed once, run as users run them: they hold and recover by
// themselves, each in its own second session. Effects of a busy host, overruns and few targets, are
// not checked here but by make soak.
func TestAServerThatIsKilled(t *testing.T) {
	rttest.RealTime(t)
	if testing.Short() {
		t.Skip("runs three arms for 15 s")
	}
	manifest := "../../testdata/demo/server.yaml"
	bin, err := rttest.Programs(t.TempDir(), "edge-rt", "lean-server")
	if err != nil {
		t.Fatal(err)
	}
	check := exec.Command(filepath.Join(bin, "lean-server"), "check", "--manifest", manifest)
	if out, err := check.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ONNX Runtime") {
			t.Skipf("no ONNX Runtime here: %s", out)
		}
		t.Fatalf("lean-server check: %v\n%s", err, out)
	}
	err = soak(options{
		bin:      bin,
		manifest: manifest,
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
