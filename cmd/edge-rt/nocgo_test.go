package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
)

// A build without cgo has no JPEG: with a camera it ends before it touches the arm or a server, and
// without a camera it runs.
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
		cmd := exec.Command(program, append(args, "--bus", "sim", "--connect", "tcp/127.0.0.1:1", "--max-offline",
			"500ms")...)
		cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+t.TempDir())
		overdue := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
		defer overdue.Stop()
		out, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(out)
	}
	if code, out := run("--camera", "top=sim"); code != int(exit.Config) || !strings.Contains(out, "CGO_ENABLED=1") ||
		strings.Contains(out, "no link") {
		t.Errorf("with a camera: code %d, want %d before anything is opened\n%s", code, exit.Config, out)
	}
	if code, out := run(); code != int(exit.Absent) {
		t.Errorf("without a camera: code %d, want %d\n%s", code, exit.Absent, out)
	}
}
