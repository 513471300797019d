package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A number that makes no sense is refused before anything is opened, with what it
// was: none is clamped, and none means something else than it says.
func TestNumbersThatAreNone(t *testing.T) {
	run := []string{"--quiet", "--bus", "sim", "--connect", nobody, "--max-offline", "300ms"}
	async, rtc := []string{"--schedule", "async"}, []string{"--schedule", "rtc"}
	filter := []string{"--filter-cutoff", "3"}
	for _, tt := range []struct {
		with   []string
		flag   string
		values string // separated by blanks
		says   string
	}{
		{nil, "--fps", "-1 0 0.5 1001 1e300 NaN Inf", "--fps is"},
		{nil, "--epsilon", "-1 1024 9000000000", "epsilon is"},
		{nil, "--s-min", "-3 0 1024", "s"},
		{nil, "--cpu", "-2 4096", "--cpu is"},
		{nil, "--jpeg-quality", "-1 101", "--jpeg-quality is"},
		{nil, "--duration", "-1s 900000h", "--duration is"},
		{nil, "--max-action-age", "0 -1s 900000h", "--max-action-age is"},
		{nil, "--degraded-after", "0 -1s 900000h", "--degraded-after is"},
		{nil, "--request-timeout", "0 -1s 900000h", "--request-timeout is"},
		{nil, "--reconnect-initial-backoff", "0 -1s 900000h", "--reconnect-initial-backoff is"},
		{nil, "--reconnect-max-backoff", "0 -1s 900000h", "--reconnect-max-backoff is"},
		{nil, "--max-offline", "0 -1s 900000h", "--max-offline is"},
		{nil, "--interpolation-multiplier", "-1 0 65", "ticks per action"},
		{nil, "--max-velocity", "-1 NaN Inf", "velocity"},
		{nil, "--max-acceleration", "-1 NaN Inf", "acceleration"},
		{nil, "--filter-cutoff", "-1 496 NaN Inf", "cutoff"},
		{[]string{"--fps", "60"}, "--filter-cutoff", "-1 0.001 31 NaN Inf", "cutoff"},
		{filter, "--filter-order", "-1 0 5", "order"},
		{filter, "--filter-gain", "-1 0 2 NaN Inf", "gain"},
		{rtc, "--buffer-time", "-1s 0s 2m", "buffer"},
		{async, "--chunk-size-threshold", "-0.1 1.1 NaN Inf", "threshold"},
		{async, "--similarity", "-1 NaN Inf -Inf", "similarity"},
		{[]string{"--estimator", "jk"}, "--estimator-k", "-1 0 101 NaN Inf", "is"},
		{[]string{"--estimator", "fixed"}, "--estimator-fixed", "-1s 0s 2m", "fixed"},
		{nil, "--estimator", "max_last_0 max_last_-1 max_last_1001 max_last_x", "round trip"},
	} {
		for value := range strings.FieldsSeq(tt.values) {
			code, stdout, stderr := edgeRT(t, append(append(run, tt.with...), tt.flag+"="+value)...)
			if code != 2 || !strings.Contains(stderr, tt.says) || strings.Count(stderr, "\n") != 1 || stdout != "" {
				t.Errorf("%s=%s: exit code %d, %s%s; want 2 and one line with %q", tt.flag, value, code, stdout, stderr, tt.says)
			}
		}
	}
}

func TestSimBusRefusesLatenciesThatAreNone(t *testing.T) {
	for _, value := range []string{"-1ms", "256ms", "900000h"} {
		if code, _, stderr := edgeRTFor(t, patience, "sim-bus", "--link", t.TempDir()+"/link", "--latency="+value); code != 2 || !strings.Contains(stderr, "--latency is") {
			t.Errorf("--latency=%s: exit code %d, %s; want 2", value, code, stderr)
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
		if code, stdout, stderr := edgeRTFor(t, patience, append([]string{"sim-bus"}, flags...)...); code != 2 || !strings.Contains(stderr, flag) || strings.Count(stderr, "\n") != 1 || stdout != "" {
			t.Errorf("%q: exit code %d, %s%s; want 2 and one line that names the flag", flags, code, stdout, stderr)
		}
	}
}

// A name is a mistake of the command line in the run as in ctl.
func TestNamesThatAreNone(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, args := range [][]string{
		{"--id", "//"}, {"--id", "server"}, {"--id", long}, {"--service", "//"}, {"--task", strings.Repeat("x", 5000)},
		{"--tag", "k=" + long + long}, {"--tag", long + long + "=v"}, {"--camera", long + long + "=sim"},
	} {
		code, _, stderr := edgeRT(t, append([]string{"--quiet", "--bus", "sim", "--connect", nobody, "--max-offline", "300ms"}, args...)...)
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
