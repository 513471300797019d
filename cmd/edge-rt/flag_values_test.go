package main

import (
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Before a run opens anything, it also refuses invalid values that no range tag describes, and its error quotes the
// value. It never replaces such a value with a valid one.
func TestNumbersThatAreNone(t *testing.T) {
	for _, tt := range []struct{ with, flag, values, says string }{ // values are separated by blanks
		{"", "--cpu", "-2 4096", "--cpu is"},
		{"--fps 60 ", "--filter-cutoff", "0.001 31", "cutoff"},
		{"", "--record", "run.jsonl", "a folder: --record-dir"},
		{"", "--estimator", "max_last_0 max_last_-1 max_last_1001 max_last_x", "round trip"},
	} {
		for value := range strings.FieldsSeq(tt.values) {
			refusal{tt.with + tt.flag + "=" + value, 2, tt.says}.check(t, atNoServer...)
		}
	}
}

func TestSimBusRefusesLinksAndSpeedsThatAreNone(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []refusal{
		{"--link " + rttest.WriteFile(t, dir, "file", ""), 2, "--link"},
		{"--link " + dir, 2, "--link"},
		{"--link " + dir + "/none/link", 2, "--link"},
		{"--link=", 2, "--link"},
		{"--baud 12345 --link " + dir + "/link", 2, "--baud"},
		{"--baud=-1 --link " + dir + "/link", 2, "--baud"},
	} {
		tt.check(t, "sim-bus")
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
		code, _, stderr := edgeRT(t, append(atNoServer, args...)...)
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
