package stage

import (
	"os/exec"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestChildren(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skipf("no shell here: %v", err)
	}
	for _, tt := range []struct {
		name, script string
		code         exit.Code
		says         string
	}{
		{"ends well", "echo out", exit.Clean, ""},
		{"its exit code and last words become ours", "echo first >&2; echo 'no runtime' >&2; exit 3", exit.Config,
			"no runtime"},
		{"a recipe is cut", "echo 'a log line' >&2; printf 'sh: no runtime\\nget it so\\n' >&2; exit 3", exit.Config,
			": no runtime (its output is longer"},
		{"a code that is not of our table", "exit 42", exit.Failure, "42"},
		{"killed", "kill -KILL $$", exit.Failure, "killed"},
		{"hangs", "exec sleep 60", exit.Failure, "did not end within"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := rttest.Must(Start(exec.Command("sh", "-c", tt.script)))(t)
			limit := 10 * time.Second
			if tt.name == "hangs" {
				limit = 50 * time.Millisecond
			}
			err := c.Wait(limit)
			if exit.Of(err) != tt.code || err != nil && !rttest.Says(err, tt.says) {
				t.Errorf("Wait = %v (code %d), want code %d and %q", err, exit.Of(err), tt.code, tt.says)
			}
			if c.Running() {
				t.Error("the child is still there")
			}
		})
	}
	rttest.Ends(t, rttest.Err(Start(exec.Command("/nowhere/edge-rt"))), exit.Usage, "make build")
}
