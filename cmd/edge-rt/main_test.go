package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

var (
	binary          string
	leanServerBuilt func() (bin string, err error) // builds lean-server, once
)

// atOnce is the number of parallel tests on any machine, unless -parallel is given. The number is
// low enough for a small machine, because parallel tests mostly wait for programs that tick slowly.
// Tests that measure real time (rttest.RealTime) never run among them.
const atOnce = "2"

const (
	demo            = "../../testdata/demo"
	demoCalibration = demo + "/so101.json"
	unreachable     = "tcp/127.0.0.1:9" // the discard port: no server listens there
)

// TestMain builds the program once. The tests run it as a user without a calibration would.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", atOnce)
	}
	dir := rttest.OrPanic(os.MkdirTemp("", "edge-rt-test-"))
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
	return stagetest.Command(t, binary, args...).Run()
}

// refuses checks that edge-rt refuses the command lines in a text of stagetest.Refusals. Each of them starts with the
// arguments in before.
func refuses(t *testing.T, text string, before ...string) {
	t.Helper()
	for _, tt := range stagetest.Refusals(text) {
		tt.Check(t, edgeRT, before...)
	}
}

// atNoServer are flags of a run that reaches no server.
var atNoServer = []string{"--quiet", "--bus", "sim", "--connect", unreachable, "--max-offline", "300ms"}

// simBus serves a simulated arm as a device for another process.
func simBus(t *testing.T) *servosim.Bus {
	t.Helper()
	return simBusAt(t, "")
}

// simBusAt does the same as simBus, and creates a symbolic link to the device at the path link; empty: no link.
func simBusAt(t *testing.T, link string) *servosim.Bus {
	t.Helper()
	rttest.RealTime(t) // simulated motors answer within real time-outs
	return servosimtest.Open(t, servosim.Config{Link: link})
}

// startLeanServer starts lean-server at a free endpoint, and returns the server and the endpoint once it serves. The
// manifest must not have endpoints.
func startLeanServer(t *testing.T, manifest string, args ...string) (server *stagetest.Program, endpoint string) {
	t.Helper()
	stagetest.NeedsRuntime(t)
	endpoint, _ = stagetest.FreeEndpoint(t)
	server = stagetest.Command(t, buildLeanServer(t), append([]string{"--manifest", manifest, "--listen", endpoint,
		"--health-port", "0"}, args...)...).Start()
	server.Await("msg=serving")
	return server, endpoint
}

// buildLeanServer returns the path of lean-server, and builds it on the first call.
func buildLeanServer(t *testing.T) string {
	t.Helper()
	bin := rttest.Must(leanServerBuilt())(t)
	return filepath.Join(bin, "lean-server")
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"named.yaml": "name: named\nlike: so101\nrename: {cameras: {a: top}}\n",
		"junk.pem":   "hello",
		"c.yaml":     "bus: sim\nfbs: 60\n",
		"d.yaml":     "- 1\n",
		"e.yaml":     "bus: sim\nfps: fast\n",
		"other.json": otherArm(t, `"homing_offset": 0`, `"homing_offset": -123`),
		"koch.json":  otherArm(t, "shoulder_pan", "shoulder_yaw"),
		"bad.json":   "{",
	} {
		rttest.WriteFile(t, dir, name, text)
	}
	arm := simBus(t)
	whole := simBus(t)
	empty := simBus(t)
	taken := simBus(t)
	arm.Mute(3, true)
	for id := range 6 {
		empty.Mute(byte(id+1), true)
	}
	port := rttest.Must(servo.OpenPort(taken.Path(), 1_000_000))(t)
	defer port.Close()
	refuses(t, strings.NewReplacer("DIR", dir, "DEMO", demoCalibration, "ARM", arm.Path(), "WHOLE", whole.Path(),
		"EMPTY", empty.Path(), "TAKEN", taken.Path(),
		"NO-SERVER", "--connect "+unreachable+" --max-offline 300ms").Replace(`
		=> 2 --bus|/dev/ttyACM0
		--bsu sim => 2 --bsu
		--bus sim --fps 0 => 2 --fps is 0|1 to 1000
		--bus sim --robot r2d2 => 2 r2d2|so101
		--bus sim --robot so101_leader => 2 so101_leader|teleop
		--bus sim --camera top => 2 top|NAME=SOURCE
		--bus sim --camera top=sim --camera top=sim => 2 top|twice
		--bus sim --camera top=sim --camera a=sim --robot DIR/named.yaml => 2 top|twice
		--bus sim --camera top=/dev/video97 --camera front=/dev/video97 => 2 top and front are both /dev/video97
		--bus sim --camera top=/dev/null,rotate=45 => 2 rotate=45|90
		--bus sim --schedule magic => 2 magic|drtc
		--bus sim --on-exit dance => 2 dance|park
		// zero is for robots that move by velocity
		--bus sim --fallback zero => 2 zero|hold
		--bus sim --duration 20 => 2 duration
		--bus sim --connect localhost:7447 --max-offline 1s => 2 localhost:7447|tcp/
		--bus sim --connect quic/h:1 => 2 --connect|quic/h:1|tls/
		--bus sim --connect tls/h:1 --tls-cert c.pem => 2 --tls-cert|--tls-key
		--bus sim --tls-ca ca.pem => 2 --tls-ca|tls/HOST:PORT
		--bus sim --connect tls/h:1 --tls-ca DIR/ca.pem => 3 --tls-ca|ca.pem|no such file
		--bus sim --connect tls/h:1 --tls-ca DIR/junk.pem => 3 junk.pem|no certificate
		--config DIR/c.yaml => 3 c.yaml|fbs
		--config DIR/d.yaml => 3 config file
		--config DIR/none.yaml => 2 none.yaml
		--config DIR/e.yaml => 2 e.yaml, key fps|fast
		--bus sim NO-SERVER => 4 127.0.0.1:9|lean-server
		--bus /dev/ttyNONE --calibration DEMO --max-offline 300ms --reconnect-initial-backoff 100ms => 4 /dev/ttyNONE
		--bus ARM --calibration DEMO NO-SERVER => 4 3|elbow_flex|cable
		--bus EMPTY --calibration DEMO NO-SERVER => 4 EMPTY|no motor answered at 1000000 baud|power
		--bus TAKEN --calibration DEMO NO-SERVER => 4 TAKEN|another program
		--bus WHOLE --calibration DIR/other.json => 3 homing offset|-123|calibrat
		--bus WHOLE --calibration DIR/koch.json => 3 shoulder_pan
		--bus ARM --calibration DIR/none.json => 3 none.json
		--bus ARM --calibration DIR/bad.json => 3 bad.json
	`), "--quiet")
	rttest.Want(t, underTorque(arm), 0, "motors under torque after all that")
}

// otherArm returns the demo's calibration with old replaced by new.
func otherArm(t *testing.T, old, new string) string {
	t.Helper()
	b, err := os.ReadFile(demoCalibration)
	if err != nil || !strings.Contains(string(b), old) {
		t.Fatalf("%s holds no %q, %v", demoCalibration, old, err)
	}
	return strings.Replace(string(b), old, new, 1)
}

func TestConfigFilePrecedence(t *testing.T) {
	path := rttest.WriteFile(t, t.TempDir(), "edge.yaml",
		"bus: sim\ncamera: [top=sim]\nconnect: ["+unreachable+"]\nmax_offline: 300ms\non-exit: dance\n")
	refuses(t, "=> 2 dance", "--quiet", "--config", path)
	t.Setenv("EDGE_RT_ON_EXIT", "waltz")
	refuses(t, "=> 2 waltz", "--quiet", "--config", path)
	refuses(t, "--on-exit off => 4 127.0.0.1:9", "--quiet", "--config", path)
}

// The help of the program and of each of these commands has an example on a separate line.
func TestHelpTeaches(t *testing.T) {
	for command := range strings.SplitSeq(
		"|ports|scan|setup-motors|calibrate|monitor|move|teleop|sim-bus|torque|view|replay", "|") {
		args, says := []string{command, "--help"}, "Examples:|\n    edge-rt "+command+" "
		if command == "" {
			args, says = []string{"--help-all"}, "Examples|--bus|--camera|--on-exit|version|Exit codes"
		}
		code, stdout, _ := edgeRT(t, args...)
		rttest.Want(t, code, 0, "%q: code", args)
		stagetest.CheckSays(t, stdout, says)
	}
	code, stdout, _ := edgeRT(t, "version")
	if code != 0 || !strings.Contains(stdout, "edge-rt") || !strings.Contains(stdout, "zenoh") {
		t.Errorf("version: %d %q", code, stdout)
	}
}

// The summary of a run that did not begin gives the reason.
func TestSummaryOfARunThatDidNotBegin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "edge.json")
	code, _, stderr := edgeRT(t, append(atNoServer, "--json", file)...)
	var s edge.Summary
	rttest.ReadJSON(t, file, &s)
	if code != 4 || s.Exit.Code != 4 || s.ChunksDropped == nil || !strings.Contains(stderr, s.Exit.Reason) ||
		s.Exit.Reason == "" {
		t.Errorf("exit code %d, in the summary %+v; on stderr: %s", code, s.Exit, stderr)
	}
}
