package jitter

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"

	"github.com/edge-rt/edge-rt/internal/exit"
)

// fakePython writes a Python that prints this output.
func fakePython(t *testing.T, script string) string {
	t.Helper()
	name := rttest.WriteFile(t, t.TempDir(), "python", "#!/bin/sh\ncat >/dev/null\n"+script)
	return name
}

// A Python that the flag names is used, or refused with the reason; without the flag PATH is searched.
func TestFindLeRobot(t *testing.T) {
	good := fakePython(t, `echo '{"version": "9.9", "seconds": 0.05, "histogram": {"70": 3, "120": 1}}'`)
	if l, err := findLeRobot(good); err != nil || l.Version != "9.9" || l.Python != good || l.Missing != "" {
		t.Errorf("%+v, %v", l, err)
	}
	for _, tt := range []struct{ python, says string }{
		{filepath.Join(t.TempDir(), "none"), "no such file"},
		{fakePython(t, "echo \"ModuleNotFoundError: No module named 'lerobot'\" >&2; exit 1"),
			"No module named 'lerobot'"},
		{fakePython(t, "echo hello"), "unreadable"},
		{fakePython(t, `echo '{"seconds": 1, "histogram": {}}'`), "no turns"},
	} {
		_, err := findLeRobot(tt.python)
		rttest.Ends(t, err, exit.Usage, tt.says, "--lerobot "+tt.python)
	}
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	rttest.Want(t, rttest.Must(findLeRobot(lerobotAuto))(t).Missing, lerobotAbsent, "Missing with an empty PATH")
	text := "#!" + good + " -s\nimport lerobot\n"
	rttest.WriteFile(t, bin, "lerobot-record", text)
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	rttest.Want(t, rttest.Must(findLeRobot(lerobotAuto))(t).Python, good, "lerobot-record's Python")
}

// LeRobot's own loop keeps its period, a little late each time. EDGERT_LEROBOT names its Python.
func TestLeRobotsLoop(t *testing.T) {
	python := os.Getenv("EDGERT_LEROBOT")
	if python == "" {
		t.Skip("no LeRobot: set EDGERT_LEROBOT to the Python of its environment")
	}
	c := rttest.Must((&lerobotSubject{python, 100}).start(500*time.Millisecond, false))(t)
	rttest.Do(t, c.Wait(lerobotLimit))
	r := rttest.Must((&lerobotSubject{}).result(c))(t)
	if r.Ticks < 30 || r.Ticks > 50 || r.Lateness.P50 <= 0 || r.Seconds < 0.5 {
		t.Errorf("%+v", r)
	}
}
