package stage

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// A log keeps the beginning of the output, and returns a line once the line is complete.
func TestLog(t *testing.T) {
	var l Log
	for _, text := range []string{"serving a", "t robot\nhalf", " a line\nno e", "nd"} {
		if n, err := l.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", text, n, err)
		}
	}
	all := l.Lines(regexp.MustCompile(""))
	if len(all) != 2 || all[0].Text != "serving at robot" || all[1].Text != "half a line" || all[1].At.IsZero() {
		t.Errorf("Lines = %+v, want the two complete ones with their times", all)
	}
	if got := l.Lines(regexp.MustCompile("^half")); len(got) != 1 || got[0] != all[1] {
		t.Errorf("Lines(half) = %+v, want the second", got)
	}
	if tail := l.Tail(1); strings.Contains(tail, "robot") || !strings.HasSuffix(tail, " half a line") {
		t.Errorf("Tail(1) = %q", tail)
	}
	rttest.Want(t, l.String(), "serving at robot\nhalf a line\nno end", "String()")
	chunk := make([]byte, 1<<20)
	for range logMax>>20 + 2 {
		if n, err := l.Write(chunk); n != len(chunk) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	rttest.Want(t, len(l.String()), logMax, "bytes kept")
}

func TestAwait(t *testing.T) {
	for _, tt := range []struct{ script, says string }{
		{"echo first >&2; echo it is ready >&2; exec sleep 60", ""},
		{"echo no port >&2; exit 1", "no port"},
		{"echo still busy >&2; exec sleep 60", "still busy"},
	} {
		log := new(Log)
		cmd := exec.Command("sh", "-c", tt.script)
		cmd.Stdout, cmd.Stderr = log, log
		c, err := Start(cmd)
		if err != nil {
			t.Skipf("no shell here: %v", err)
		}
		defer c.Kill()
		limit := 10 * time.Second
		if tt.says == "still busy" {
			limit = 300 * time.Millisecond
		}
		line, err := c.Await("ready$", limit)
		if tt.says == "" && (err != nil || line.Text != "it is ready") ||
			tt.says != "" && (!rttest.Says(err, tt.says)) {
			t.Errorf("%s: Await = %+v, %v, want it ready or %q", tt.script, line, err, tt.says)
		}
	}
}
