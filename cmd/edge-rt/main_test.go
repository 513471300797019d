package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

var (
	binary          string
	leanServerBuilt func() (bin string, err error) // builds lean-server, once
)

// atOnce is the number of parallel tests on any machine, unless -parallel is given: they mostly
// wait for programs, which tick slowly. Tests that measure real time (rttest.RealTime) never run
// among them.
const atOnce = "2"

// TestMain builds the program once: the tests run it as a user without a calibration would.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", atOnce)
	}
	dir, err := os.MkdirTemp("", "edge-rt-test-")
	if err != nil {
		panic(err)
	}
	bin, err := rttest.Programs(dir, "edge-rt")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(bin, "edge-rt")
	leanServerBuilt = sync.OnceValues(func() (string, error) { return rttest.Programs(dir, "lean-server") })
	os.Setenv("HF_LEROBOT_CALIBRATION", filepath.Join(dir, "calibration"))
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// edgeRT runs the program to its end and returns its exit code and outputs.
func edgeRT(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return edgeRTFor(t, 30*time.Second, args...)
}

// edgeRTFor is edgeRT with another time limit.
func edgeRTFor(t *testing.T, limit time.Duration, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+t.TempDir())
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	overdue := time.AfterFunc(limit, func() { cmd.Process.Kill() })
	defer overdue.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), log.String()
}

// simBus serves a simulated arm as a device for another process.
func simBus(t *testing.T) *servosim.Bus {
	t.Helper()
	b, err := servosim.Open(servosim.Config{Clock: rt.KernelClock()})
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

const unreachable = "tcp/127.0.0.1:9" // the discard port: no server listens there

func TestBadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	arm := simBus(t)
	arm.Mute(3, true)
	whole := simBus(t)
	empty := simBus(t)
	taken := simBus(t)
	for id := range 6 {
		empty.Mute(byte(id+1), true)
	}
	port, err := servo.OpenPort(taken.Path(), 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	calibration := filepath.Join("..", "..", "testdata", "demo", "so101.json")
	tests := []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"no bus", nil, 2, []string{"--bus", "/dev/ttyACM0"}},
		{"unknown flag", []string{"--bsu", "sim"}, 2, []string{"--bsu"}},
		{"fps of zero", []string{"--bus", "sim", "--fps", "0"}, 2, []string{"--fps is 0", "1 to 1000"}},
		{"unknown robot", []string{"--bus", "sim", "--robot", "r2d2"}, 2, []string{"r2d2", "so101"}},
		{"a leader for a policy", []string{"--bus", "sim", "--robot", "so101_leader"}, 2,
			[]string{"so101_leader", "teleop"}},
		{"camera without a source", []string{"--bus", "sim", "--camera", "top"}, 2, []string{"top", "NAME=SOURCE"}},
		{"camera twice", []string{"--bus", "sim", "--camera", "top=sim", "--camera", "top=sim"}, 2,
			[]string{"top", "twice"}},
		{"a camera that is none", []string{"--bus", "sim", "--camera", "top=/dev/null,rotate=45"}, 2,
			[]string{"rotate=45", "90"}},
		{"unknown schedule", []string{"--bus", "sim", "--schedule", "magic"}, 2, []string{"magic", "drtc"}},
		{"unknown exit mode", []string{"--bus", "sim", "--on-exit", "dance"}, 2, []string{"dance", "park"}},
		{"fallback for velocity robots", []string{"--bus", "sim", "--fallback", "zero"}, 2, []string{"zero", "hold"}},
		{"bad duration", []string{"--bus", "sim", "--duration", "20"}, 2, []string{"duration"}},
		{"bad endpoint", []string{"--bus", "sim", "--connect", "localhost:7447", "--max-offline", "1s"}, 2,
			[]string{"localhost:7447", "tcp/"}},
		{"endpoint of another transport", []string{"--bus", "sim", "--connect", "quic/h:1"}, 2,
			[]string{"--connect", "quic/h:1", "tls/"}},
		{"certificate without a key", []string{"--bus", "sim", "--connect", "tls/h:1", "--tls-cert", "c.pem"}, 2,
			[]string{"--tls-cert", "--tls-key"}},
		{"certificates without tls/", []string{"--bus", "sim", "--tls-ca", "ca.pem"}, 2,
			[]string{"--tls-ca", "tls/HOST:PORT"}},
		{"absent authorities", []string{"--bus", "sim", "--connect", "tls/h:1", "--tls-ca",
			filepath.Join(dir, "ca.pem")}, 3, []string{"--tls-ca", "ca.pem", "no such file"}},
		{"authorities that are none", []string{"--bus", "sim", "--connect", "tls/h:1", "--tls-ca",
			file("junk.pem", "hello")}, 3, []string{"junk.pem", "no certificate"}},
		{"unknown key in the config file", []string{"--config", file("c.yaml", "bus: sim\nfbs: 60\n")}, 3,
			[]string{"c.yaml", "fbs"}},
		{"config file that is no map", []string{"--config", file("d.yaml", "- 1\n")}, 3, []string{"config file"}},
		{"missing config file", []string{"--config", filepath.Join(dir, "none.yaml")}, 2, []string{"none.yaml"}},
		{"a wrong type in the config file", []string{"--config", file("e.yaml", "bus: sim\nfps: fast\n")}, 2,
			[]string{"e.yaml, key fps", "fast"}},
		{"endpoint absent", []string{"--bus", "sim", "--connect", unreachable, "--max-offline", "1s"}, 4,
			[]string{"127.0.0.1:9", "lean-server"}},
		{"port absent", []string{"--bus", "/dev/ttyNONE", "--calibration", calibration, "--max-offline", "300ms",
			"--reconnect-initial-backoff", "100ms"}, 4, []string{"/dev/ttyNONE"}},
		{"motor missing", []string{"--bus", arm.Path(), "--calibration", calibration, "--connect", unreachable,
			"--max-offline", "300ms"}, 4, []string{"3", "elbow_flex", "cable"}},
		{"port without a motor", []string{"--bus", empty.Path(), "--calibration", calibration, "--connect", unreachable,
			"--max-offline", "300ms"}, 4, []string{empty.Path(), "no motor answered at 1000000 baud", "power"}},
		{"port busy", []string{"--bus", taken.Path(), "--calibration", calibration, "--connect", unreachable,
			"--max-offline", "300ms"}, 4, []string{taken.Path(), "another program"}},
		{"calibration of another arm", []string{"--bus", whole.Path(), "--calibration",
			file("other.json", otherArm(t, calibration, `"homing_offset": 0`, `"homing_offset": -123`))}, 3,
			[]string{"homing offset", "-123", "calibrat"}},
		{"calibration of another robot", []string{"--bus", whole.Path(), "--calibration",
			file("koch.json", otherArm(t, calibration, "shoulder_pan", "shoulder_yaw"))}, 3, []string{"shoulder_pan"}},
		{"no calibration", []string{"--bus", arm.Path(), "--calibration", filepath.Join(dir, "none.json")}, 3,
			[]string{"none.json"}},
		{"calibration that is no JSON", []string{"--bus", arm.Path(), "--calibration", file("bad.json", "{")}, 3,
			[]string{"bad.json"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := edgeRT(t, append([]string{"--quiet"}, tt.args...)...)
			if code != tt.code {
				t.Errorf("exit code %d, want %d; it said: %s", code, tt.code, stderr)
			}
			if lines := strings.Count(stderr, "\n"); lines != 1 || stdout != "" {
				t.Errorf("%d lines on stderr and %q on stdout, want one line:\n%s", lines, stdout, stderr)
			}
			for _, word := range tt.says {
				if !strings.Contains(stderr, word) {
					t.Errorf("message lacks %q: %s", word, stderr)
				}
			}
		})
	}
	for i, on := range arm.TorqueEnabled() {
		if on {
			t.Errorf("motor %d is under torque after all that", i+1)
		}
	}
}

// otherArm returns the text of a calibration file with old replaced by new.
func otherArm(t *testing.T, path, old, new string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(b), old, new, 1)
	if changed == string(b) {
		t.Fatalf("%s holds no %q", path, old)
	}
	return changed
}

func TestConfigFilePrecedence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edge.yaml")
	text := "bus: sim\ncamera: [top=sim]\nconnect: [" + unreachable + "]\nmax_offline: 300ms\non-exit: dance\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := edgeRT(t, "--quiet", "--config", path)
	if code != 2 || !strings.Contains(stderr, "dance") {
		t.Errorf("file alone: code %d, %q; want its on-exit refused", code, stderr)
	}
	t.Setenv("EDGE_RT_ON_EXIT", "waltz")
	if _, _, stderr = edgeRT(t, "--quiet", "--config", path); !strings.Contains(stderr, "waltz") {
		t.Errorf("environment over file: %q, want waltz", stderr)
	}
	code, _, stderr = edgeRT(t, "--quiet", "--config", path, "--on-exit", "off")
	if code != 4 || !strings.Contains(stderr, "127.0.0.1:9") {
		t.Errorf("flag over both: code %d, %q; want it to get as far as the server", code, stderr)
	}
}

func TestHelpTeaches(t *testing.T) {
	code, stdout, _ := edgeRT(t, "--help-all")
	if code != 0 {
		t.Errorf("--help-all exits %d, want 0", code)
	}
	for _, word := range []string{"Examples", "--bus", "--camera", "--on-exit", "version", "Exit codes"} {
		if !strings.Contains(stdout, word) {
			t.Errorf("--help-all lacks %q", word)
		}
	}
}

// The help of each of these commands has an example.
func TestTheHelpOfACommandTeaches(t *testing.T) {
	for _, command := range []string{"ports", "scan", "setup-motors",
		"calibrate", "monitor", "move", "teleop", "sim-bus", "torque", "view", "replay"} {
		code, stdout, _ := edgeRT(t, command, "--help")
		if example := "\n    edge-rt " + command + " "; code != 0 || !strings.Contains(stdout, "Examples:") ||
			!strings.Contains(stdout, example) {
			t.Errorf("%s --help: code %d, no example on a line of its own:\n%s", command, code, stdout)
		}
	}
}

// The refusal of an arm outside its range names --rescue, so every command that refuses such an arm
// takes that flag.
func TestTeleopTakesRescue(t *testing.T) {
	code, _, stderr := edgeRT(t, "teleop", "--rescue", "--bus", "/dev/null")
	if code != 2 || !strings.Contains(stderr, "--leader is missing") {
		t.Errorf("teleop --rescue: code %d, %q, want only the leader to be missing", code, stderr)
	}
}

func TestVersionSaysTheTransport(t *testing.T) {
	code, stdout, _ := edgeRT(t, "version")
	if code != 0 || !strings.Contains(stdout, "edge-rt") || !strings.Contains(stdout, "zenoh") {
		t.Errorf("version: %d %q", code, stdout)
	}
}

// The summary of a run that did not begin gives the reason.
func TestSummaryOfARunThatDidNotBegin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "edge.json")
	code, _, stderr := edgeRT(t, "--quiet", "--bus", "sim", "--connect", unreachable, "--max-offline", "300ms",
		"--json",
		file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Dropped map[string]int `json:"chunks_dropped"`
		Exit    struct {
			Code   int
			Reason string
		}
	}
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatalf("%v:\n%s", err, b)
	}
	if code != 4 || s.Exit.Code != 4 || s.Dropped == nil || !strings.Contains(stderr, s.Exit.Reason) ||
		s.Exit.Reason == "" {
		t.Errorf("exit code %d, in the summary %d: %q; on stderr: %s", code, s.Exit.Code, s.Exit.Reason, stderr)
	}
}
