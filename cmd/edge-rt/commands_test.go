package main

import (
	"strings"
	"testing"
)

// Every bring-up command on the real binary, against a simulated arm that is a
// device of another process's.
func TestBringUpCommands(t *testing.T) {
	arm := simBus(t)
	t.Setenv("HF_LEROBOT_CALIBRATION", t.TempDir())
	on := func(args ...string) []string { return append(args, "--bus", arm.Path()) }
	tests := []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"scan", on("scan", "--robot", "so101", "--last", "7"), 0, []string{"sts3215", "All 6 motors", "edge-rt calibrate"}},
		{"monitor", on("monitor", "--count", "1"), 0, []string{"shoulder_pan", "gripper", "edge-rt calibrate"}},
		{"monitor without a pause", on("monitor", "--every", "1ms"), 2, []string{"--every is 1ms", "20ms"}},
		{"monitor of less than nothing", on("monitor", "--count=-1"), 2, []string{"--count is -1"}},
		{"move before calibrating", on("move", "elbow_flex", "5"), 3, []string{"edge-rt calibrate"}},
		{"move to a negative position before calibrating", on("move", "elbow_flex", "-10"), 3, []string{"edge-rt calibrate"}},
		{"move of no joint", on("move", "tail", "5"), 2, []string{"tail", "elbow_flex"}},
		{"calibrate with nobody there", on("calibrate"), 2, []string{"keyboard"}},
		{"setup-motors with nobody there", on("setup-motors"), 2, []string{"keyboard"}},
		{"teleop without a leader", on("teleop"), 2, []string{"--leader"}},
		{"teleop with flags of a run", on("teleop", "--leader", "/dev/ttyNONE", "--http", "8080", "--json", "-"), 2, []string{"--http, --json", "edge-rt teleop --help"}},
		{"teleop with its own flags", on("teleop", "--leader", "/dev/ttyNONE", "--fps", "30", "--id", "arm", "--on-exit", "off", "--rt", "off", "--cpu", "0", "--duration", "1s"), 3, []string{"no calibration"}},
		{"scan beyond the last id", on("scan", "--last", "253"), 2, []string{"--last is 253", "252"}},
		{"scan without a port", []string{"scan"}, 2, []string{"--bus", "edge-rt ports"}},
		{"scan of an absent port", []string{"scan", "--bus", "/dev/ttyNONE"}, 4, []string{"/dev/ttyNONE"}},
		{"monitor of a run's own arm", []string{"monitor", "--bus", "sim"}, 2, []string{"edge-rt sim-bus --link /tmp/arm", "--bus /tmp/arm"}},
		{"teleop of a run's own arm", []string{"teleop", "--bus", "sim", "--leader", "/dev/ttyNONE"}, 2, []string{"edge-rt sim-bus --link /tmp/arm"}},
		{"monitor of another robot", on("monitor", "--robot", "r2d2"), 2, []string{"r2d2", "so101"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := edgeRT(t, tt.args...)
			if code != tt.code {
				t.Errorf("code %d, want %d\n%s%s", code, tt.code, stdout, stderr)
			}
			for _, want := range tt.says {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("it does not say %q:\n%s%s", want, stdout, stderr)
				}
			}
		})
	}
}
