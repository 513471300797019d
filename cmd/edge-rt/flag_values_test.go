package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Values that a range tag cannot describe are also refused before anything is opened, and the error
// quotes them: no value is clamped or reinterpreted.
func TestNumbersThatAreNone(t *testing.T) {
	run := []string{"--quiet", "--bus", "sim", "--connect", unreachable, "--max-offline", "300ms"}
	for _, tt := range []struct {
		with   []string
		flag   string
		values string // separated by blanks
		says   string
	}{
		{nil, "--cpu", "-2 4096", "--cpu is"},
		{[]string{"--fps", "60"}, "--filter-cutoff", "0.001 31", "cutoff"},
		{nil, "--estimator", "max_last_0 max_last_-1 max_last_1001 max_last_x", "round trip"},
	} {
		for value := range strings.FieldsSeq(tt.values) {
			code, stdout, stderr := edgeRT(t, append(append(run, tt.with...), tt.flag+"="+value)...)
			if code != 2 || !strings.Contains(stderr, tt.says) || strings.Count(stderr, "\n") != 1 || stdout != "" {
				t.Errorf("%s=%s: exit code %d, %s%s; want 2 and one line with %q", tt.flag, value, code, stdout, stderr,
					tt.says)
			}
		}
	}
}

func TestSimBusRefusesLinksAndSpeedsThatAreNone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{
		{"--link", file}, {"--link", dir}, {"--link", filepath.Join(dir, "none", "link")}, {"--link", ""},
		{"--baud", "12345", "--link", dir + "/link"}, {"--baud=-1", "--link", dir + "/link"},
	} {
		flag, _, _ := strings.Cut(flags[0], "=")
		if code, stdout, stderr := edgeRTFor(t, patience, append([]string{"sim-bus"}, flags...)...); code != 2 ||
			!strings.Contains(stderr, flag) || strings.Count(stderr, "\n") != 1 || stdout != "" {
			t.Errorf("%q: exit code %d, %s%s; want 2 and one line that names the flag", flags, code, stdout, stderr)
		}
	}
}

// An invalid name ends a run with code 2 and an error that names the flag.
func TestNamesThatAreNone(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, args := range [][]string{
		{"--id", "//"}, {"--id", "server"}, {"--id", long}, {"--service", "//"}, {"--task", strings.Repeat("x", 5000)},
		{"--task", "pick\nplace"}, {"--task", "\xff\xfe"}, {"--expect-model", "0123"},
		{"--expect-model", strings.Repeat("g", 64)},
		{"--tag", "k=" + long + long}, {"--tag", long + long + "=v"}, {"--camera", long + long + "=sim"},
	} {
		code, _, stderr := edgeRT(t,
			append([]string{"--quiet", "--bus", "sim", "--connect", unreachable, "--max-offline",
				"300ms"}, args...)...)
		if code != 2 || !strings.Contains(stderr, args[0]) || strings.Count(stderr, "\n") != 1 || len(stderr) > 600 {
			t.Errorf("%.40q: exit code %d, %s; want 2 and one line that names the flag", args, code, stderr)
		}
		if args[0] != "--id" {
			continue
		}
		if code, _, said := edgeRT(t, "ctl", "status", "--id", args[1]); code != 2 || said != stderr {
			t.Errorf("ctl --id %.40q: exit code %d, %s; want 2 and what the run says: %s", args[1], code, said, stderr)
		}
	}
}
