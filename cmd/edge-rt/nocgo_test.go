package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// A build without cgo cannot encode JPEG. A run of this build with a camera ends before it touches the arm or a server;
// a run without a camera works.
func TestABuildWithoutCgoRefusesCameras(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the program")
	}
	program := filepath.Join(t.TempDir(), "edge-rt")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(args ...string) (int, string) {
		p := stagetest.Command(t, program, append(args, atNoServer...)...)
		return p.Start().End(), p.Log.String()
	}
	if code, log := run("--camera", "top=sim"); code != int(exit.Config) || !strings.Contains(log, "CGO_ENABLED=1") ||
		strings.Contains(log, unreachable) {
		t.Errorf("with a camera: code %d, want %d before anything is opened\n%s", code, exit.Config, log)
	}
	if code, log := run(); code != int(exit.Absent) {
		t.Errorf("without a camera: code %d, want %d\n%s", code, exit.Absent, log)
	}
}
