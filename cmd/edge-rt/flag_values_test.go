package main

import (
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Before a run opens anything, it also refuses invalid values that no range tag describes, and its error quotes the
// value. It never replaces such a value with a valid one.
func TestNumbersThatAreNone(t *testing.T) {
	refuses(t, `
		--cpu=-2 => 2 --cpu is
		--cpu=4096 => 2 --cpu is
		--fps 60 --filter-cutoff=0.001 => 2 cutoff
		--fps 60 --filter-cutoff=31 => 2 cutoff
		--record=run.jsonl => 2 a folder: --record-dir
		--estimator=max_last_0 => 2 round trip
		--estimator=max_last_-1 => 2 round trip
		--estimator=max_last_1001 => 2 round trip
		--estimator=max_last_x => 2 round trip
	`, atNoServer...)
}

func TestSimBusRefusesLinksAndSpeedsThatAreNone(t *testing.T) {
	dir := t.TempDir()
	rttest.WriteFile(t, dir, "file", "")
	refuses(t, strings.ReplaceAll(`
		--link DIR/file => 2 --link
		--link DIR => 2 --link
		--link DIR/none/link => 2 --link
		--link= => 2 --link
		--baud 12345 --link DIR/link => 2 --baud
		--baud=-1 --link DIR/link => 2 --baud
	`, "DIR", dir), "sim-bus")
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
