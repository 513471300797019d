package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/bringup"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// Every bring-up command works on the real binary, against a simulated arm that another process
// serves as a device.
func TestBringUpCommands(t *testing.T) {
	t.Parallel()
	arm := simBus(t)
	on := " --bus " + arm.Path()
	for _, tt := range []struct {
		args string
		code int
		says string
	}{
		{"calibrate" + on, 2, "keyboard"},
		{"setup-motors" + on, 2, "keyboard"},
		{"scan --robot so101 --last 7" + on, 0, "sts3215|All 6 motors|edge-rt calibrate"},
		{"monitor --count 1" + on, 0, "shoulder_pan|gripper|edge-rt calibrate"},
	} {
		code, stdout, stderr := edgeRT(t, strings.Fields(tt.args)...)
		rttest.Want(t, code, tt.code, "%s: code", tt.args)
		stagetest.CheckSays(t, stdout+stderr, tt.says)
	}
	refuses(t, strings.ReplaceAll(`
		monitor --every 1ms @arm => 2 --every is 1ms|20ms
		monitor --count=-1 @arm => 2 --count is -1
		move elbow_flex 5 @arm => 3 edge-rt calibrate
		move elbow_flex -10 @arm => 3 edge-rt calibrate
		move tail 5 @arm => 2 tail|elbow_flex
		teleop @arm => 2 --leader
		teleop --jog --leader-robot so101_leader @arm => 2 --leader-robot|no leader arm
		teleop --leader zenoh:white --leader-id white @arm => 2 --leader-id|in --leader
		teleop --leader jog --leader-id white @arm => 2 --leader-id|no leader arm
		teleop --leader /dev/ttyNONE --service x --tag a=b @arm => 2 for run, doctor; nor for --tag, which
		teleop --leader /dev/ttyNONE --fps 30 --id arm --on-exit off --rt off --cpu 0 @arm => 3 no calibration
		scan --last 253 @arm => 2 --last is 253|252
		scan => 2 --bus|edge-rt ports
		scan --bus /dev/ttyNONE => 4 /dev/ttyNONE
		monitor --bus sim => 2 edge-rt sim-bus --link /tmp/arm|--bus /tmp/arm
		teleop --bus /dev/ttyNONE --leader sim => 2 edge-rt sim-bus --robot so101_leader --link /tmp/leader
		teleop --bus sim --leader /dev/ttyNONE => 3 no calibration
		// The refusal of an arm outside its range recommends --rescue, so teleop accepts that flag.
		teleop --rescue --bus /dev/null => 2 --leader is missing
		monitor --robot r2d2 @arm => 2 r2d2|so101
		view --rerun a.mcap => 2 --rerun|for --live
		view --live --viewer rerun+http://127.0.0.1:9876/proxy => 2 --viewer is for --rerun
		view --live --rerun --listen 127.0.0.1:8765 => 2 --listen|--viewer
	`, "@arm", on))
}

// A command refuses a flag on its command line that has no meaning for it, and the error lists the commands that accept
// the flag. In a config file, the command accepts such a flag, because a run may use the same file.
func TestFlagsOfOtherCommands(t *testing.T) {
	refuses(t, `
		--duration 2s scan --bus sim => 2 scan has no use for --duration, which is for run, monitor, teleop, leader;
		scan --every 1s --bus /dev/ttyNONE => 2 unknown flag --every here, which is for monitor, fleet top;
		version --quiet => 2 version has no use for --quiet, which is for run, teleop, leader, replay;
	`)
	refuses(t, "=> 2 ports has no use for --bus, which is for run, torque, doctor, scan, setup-motors, "+
		"calibrate, monitor, move, teleop, leader, replay;", "ports", "--bus", "/dev/ttyACM0")
	refuses(t, "=> 2 cameras list has no use for --camera, which is for run, cameras snapshot, doctor, teleop, replay;",
		"cameras", "--camera", "top=sim")
	dir := t.TempDir()
	summary := filepath.Join(dir, "run.json")
	config := rttest.WriteFile(t, dir, "run.yaml",
		"bus: sim\nfps: 30\ncamera: [top=sim]\nduration: 1s\nhttp: 8080\njson: "+summary+"\n")
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

// An interrupted scan writes no JSON. It keeps an earlier result file, and leaves no file that is
// not JSON.
func TestInterruptedScanLeavesNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for file, want := range map[string]string{
		filepath.Join(dir, "scan.json"): "", rttest.WriteFile(t, dir, "earlier.json", "earlier"): "earlier",
	} {
		bus := simBus(t)
		p := stagetest.Command(t, binary, "scan", "--bus", bus.Path(), "--robot", "so101", "--json", file).Start()
		rttest.Eventually(t, "a request", func() bool { return bus.Counters().Requests > 0 })
		p.End(os.Interrupt)
		if text, err := os.ReadFile(file); (err == nil) != (want != "") || string(text) != want {
			t.Errorf("%s has %q, %v, want %q", file, text, err, want)
		}
	}
}

// With --json - the commands write only JSON to standard output.
func TestJSONOfCommands(t *testing.T) {
	t.Parallel()
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

// A command that fails before it has a result writes JSON that describes its end.
func TestJSONOfFailures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, tt := range []struct {
		args string
		code int
	}{
		{"scan --bus /dev/ttyNONE9", 4}, {"monitor --bus /dev/ttyNONE9", 4}, {"dataset info " + dir, 3},
		{"dataset export " + dir + " out", 3}, {"why " + dir, 3}, {"why --record-dir " + dir, 4},
		{"fleet top --once --connect " + unreachable, 4}, {"replay " + dir + "/none.mcap --bus sim", 2},
	} {
		code, stdout, stderr := edgeRT(t, append(strings.Fields(tt.args), "--json", "-")...)
		var end struct {
			Exit drive.Ending `json:"exit"`
		}
		if err := json.Unmarshal([]byte(stdout), &end); err != nil || code != tt.code || end.Exit.Code != code ||
			!strings.Contains(stderr, end.Exit.Reason) || end.Exit.Reason == "" {
			t.Errorf("%s: code %d, %v, %q\n%s", tt.args, code, err, stdout, stderr)
		}
	}
}
