package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/bringup"
	"github.com/edge-rt/edge-rt/internal/child"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Every bring-up command works on the real binary, against a simulated arm that another process
// serves as a device.
func TestBringUpCommands(t *testing.T) {
	t.Parallel()
	arm := simBus(t)
	on := func(args ...string) []string { return append(args, "--bus", arm.Path()) }
	tests := []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"scan", on("scan", "--robot", "so101", "--last", "7"), 0,
			[]string{"sts3215", "All 6 motors", "edge-rt calibrate"}},
		{"monitor", on("monitor", "--count", "1"), 0, []string{"shoulder_pan", "gripper", "edge-rt calibrate"}},
		{"monitor without a pause", on("monitor", "--every", "1ms"), 2, []string{"--every is 1ms", "20ms"}},
		{"monitor of less than nothing", on("monitor", "--count=-1"), 2, []string{"--count is -1"}},
		{"move before calibrating", on("move", "elbow_flex", "5"), 3, []string{"edge-rt calibrate"}},
		{"move to a negative position before calibrating", on("move", "elbow_flex", "-10"), 3,
			[]string{"edge-rt calibrate"}},
		{"move of no joint", on("move", "tail", "5"), 2, []string{"tail", "elbow_flex"}},
		{"calibrate without a person", on("calibrate"), 2, []string{"keyboard"}},
		{"setup-motors without a person", on("setup-motors"), 2, []string{"keyboard"}},
		{"teleop without a leader", on("teleop"), 2, []string{"--leader"}},
		{"teleop with flags of a run", on("teleop", "--leader", "/dev/ttyNONE", "--http", "8080", "--json", "-"), 2,
			[]string{"teleop has no use for --http, which is for run; nor for --json, which is for run, "}},
		{"teleop with its own flags", on("teleop", "--leader", "/dev/ttyNONE", "--fps", "30", "--id",
			"arm", "--on-exit", "off", "--rt", "off", "--cpu", "0", "--duration", "1s"), 3, []string{"no calibration"}},
		{"scan beyond the last id", on("scan", "--last", "253"), 2, []string{"--last is 253", "252"}},
		{"scan without a port", []string{"scan"}, 2, []string{"--bus", "edge-rt ports"}},
		{"scan of an absent port", []string{"scan", "--bus", "/dev/ttyNONE"}, 4, []string{"/dev/ttyNONE"}},
		{"monitor of a run's own arm", []string{"monitor", "--bus", "sim"}, 2,
			[]string{"edge-rt sim-bus --link /tmp/arm", "--bus /tmp/arm"}},
		{"teleop by a simulated arm", []string{"teleop", "--bus", "/dev/ttyNONE", "--leader", "sim"}, 2,
			[]string{"edge-rt sim-bus --robot so101_leader --link /tmp/leader"}},
		{"teleop of a run's own arm", []string{"teleop", "--bus", "sim", "--leader", "/dev/ttyNONE"}, 3,
			[]string{"no calibration"}},
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

// A flag without a meaning for a command is refused on the command line, and the error lists the
// commands that take it; in a run's config file it is accepted as the run's.
func TestFlagsOfOtherCommands(t *testing.T) {
	for _, tt := range []struct{ args, says string }{
		{"ports --bus /dev/ttyACM0", "ports has no use for --bus, which is for run, torque, scan, setup-motors, " +
			"calibrate, monitor, move, teleop, replay;"},
		{"--duration 2s scan --bus /dev/ttyNONE", "scan has no use for --duration, which is for run, monitor, teleop;"},
		{"cameras --camera top=sim",
			"cameras list has no use for --camera, which is for run, cameras snapshot, teleop;"},
		{"scan --every 1s --bus /dev/ttyNONE", "unknown flag --every here, which is for monitor;"},
		{"version --quiet", "version has no use for --quiet, which is for run, teleop, replay;"},
	} {
		code, stdout, stderr := edgeRT(t, strings.Fields(tt.args)...)
		if code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tt.says) {
			t.Errorf("%s: code %d, %s%s; want 2 and %q", tt.args, code, stdout, stderr, tt.says)
		}
	}
	dir := t.TempDir()
	config, summary := filepath.Join(dir, "run.yaml"), filepath.Join(dir, "run.json")
	if err := os.WriteFile(config, []byte("bus: sim\nfps: 30\ncamera: [top=sim]\nduration: 1s\nhttp: 8080\njson: "+
		summary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("EDGE_RT_MAX_OFFLINE", "1s")
	// torque off works whatever flags a run has
	for _, args := range [][]string{{"--config", config}, {"--bus", "sim", "--http", "8080", "--fps", "30"}} {
		if code, stdout, stderr := edgeRT(t, append([]string{"torque", "off"}, args...)...); code != 0 {
			t.Errorf("torque off %v: code %d, %s%s", args, code, stdout, stderr)
		}
	}
	if code, _, stderr := edgeRT(t, "monitor", "--config", config, "--bus", simBus(t).Path(), "--count",
		"1"); code != 0 {
		t.Errorf("monitor --config: code %d, %s", code, stderr)
	}
	if _, err := os.Stat(summary); err == nil {
		t.Error("monitor has written the run's --json")
	}
}

// An interrupted scan writes no JSON, and leaves no file that is not JSON.
func TestInterruptedScanLeavesNoFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "scan.json")
	cmd := exec.Command(binary, "scan", "--bus", simBus(t).Path(), "--robot", "so101", "--json", file)
	if err := child.Start(cmd); err != nil {
		t.Fatal(err)
	}
	rttest.Eventually(t, "the file of --json", func() bool { _, err := os.Stat(file); return err == nil })
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	if text, err := os.ReadFile(file); err == nil {
		t.Errorf("the file is there, with %q", text)
	}
}

// With --json - the commands write only JSON to standard output.
func TestJSONOfCommands(t *testing.T) {
	bus := simBus(t)
	bus.Mute(6, true)
	code, stdout, stderr := edgeRT(t, "scan", "--bus", bus.Path(), "--robot", "so101", "--last", "7", "--json", "-")
	var scan bringup.ScanReport
	if err := json.Unmarshal([]byte(stdout), &scan); err != nil || code != 4 ||
		!strings.Contains(stderr, "missing: motor 6 (gripper)") {
		t.Fatalf("scan: code %d, %v\n%s%s", code, err, stdout, stderr)
	}
	if len(scan.Servos) != 5 || scan.Servos[0] != (bringup.ServoFound{
		ID:       1,
		Model:    "sts3215",
		Protocol: "Feetech STS/SMS",
		Baud:     1_000_000,
		SupplyV:  scan.Servos[0].SupplyV,
		State:    "ok",
	}) ||
		len(scan.Missing) != 1 || len(scan.Wrong) != 0 {
		t.Errorf("scan: %+v", scan)
	}
	bus.Mute(6, false)
	file := filepath.Join(t.TempDir(), "tables.json")
	code, stdout, stderr = edgeRT(t, "monitor", "--bus", bus.Path(), "--duration", "1s", "--every", "100ms", "--json",
		file)
	text, err := os.ReadFile(file)
	if err != nil || code != 0 || !strings.Contains(stdout, "shoulder_pan") {
		t.Fatalf("monitor: code %d, %v\n%s%s", code, err, stdout, stderr)
	}
	tables := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	var first, last bringup.MonitorReport
	if json.Unmarshal(tables[0], &first) != nil || json.Unmarshal(tables[len(tables)-1], &last) != nil ||
		len(tables) < 2 || len(tables) > 10 ||
		first.AtS != 0 || last.AtS <= 0 || last.AtS > 1.5 || last.AtS != math.Round(last.AtS*1000)/1000 {
		t.Errorf("monitor: %d tables, want 2 to 10 in a second, the first at 0, all at whole milliseconds\n%s",
			len(tables), text)
	}
	if m := last.Motors[5]; len(last.Motors) != 6 || m.Joint != "gripper" || m.ID != 6 || m.Raw == 0 ||
		m.SupplyV == 0 || m.Torque || m.Error != "" || m.Position != nil {
		t.Errorf("monitor: %+v", last.Motors)
	}
	for _, command := range []string{"ports", "cameras"} {
		code, stdout, stderr := edgeRT(t, command, "--json", "-")
		var found map[string][]any
		if err := json.Unmarshal([]byte(stdout), &found); err != nil || found[command] == nil || code != 0 &&
			code != 4 || (code == 4) != (len(found[command]) == 0) {
			t.Errorf("%s: code %d, %v\n%s%s", command, code, err, stdout, stderr)
		}
	}
}
