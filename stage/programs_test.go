package stage

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// A program in the folder "." must not be looked up in $PATH.
func TestProgramIsAbsolute(t *testing.T) {
	self := rttest.Must(os.Executable())(t)
	t.Chdir(t.TempDir())
	here := rttest.Must(os.Getwd())(t)
	for bin, want := range map[string]string{".": here, "a/../b": filepath.Join(here, "b"), "/usr/bin": "/usr/bin",
		"": filepath.Dir(self)} {
		rttest.Want(t, Program(bin, "edge-rt"), filepath.Join(want, "edge-rt"), "Program(%q) below %q", bin,
			want)
	}
}

func TestScrubbed(t *testing.T) {
	got := scrubbed([]string{"PATH=/bin", "EDGE_RT_FPS=1", "LEAN_SERVER_LISTEN=x", "LEAN_SERVER_ORT=/ort",
		"BENCH_FPS=1", "GOGC=1", "EDGERT_ORT=/o", "NOTIFY_SOCKET=/run/n", "HOME=/h=1"})
	want := []string{"PATH=/bin", "LEAN_SERVER_ORT=/ort", "EDGERT_ORT=/o", "HOME=/h=1"}
	rttest.Equal(t, got, want, "scrubbed")
}

// When its terminal closes, a tool ends in order: it can still remove its files and write its log.
func TestAHangupEndsALongTool(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("nohup keeps the signal away")
	}
	defer func(args []string) { os.Args = args }(os.Args)
	os.Args = os.Args[:1]
	LongTool(func(ctx context.Context, _ struct{}) error {
		rttest.Do(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		<-ctx.Done()
		return nil
	})
}
