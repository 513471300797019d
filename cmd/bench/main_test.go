package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/bench/jitter"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

var (
	programs      string // the folder of bench, edge-rt and lean-server
	othersMissing error  // why edge-rt and lean-server could not be built
)

// TestMain builds the programs once: the tests run them as a user would.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bench-test-")
	if err != nil {
		panic(err)
	}
	if programs, err = rttest.Programs(dir, "bench"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, othersMissing = rttest.Programs(dir, "edge-rt", "lean-server")
	os.Setenv(marker, fmt.Sprint(os.Getpid()))
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// runBench runs bench in the repository's root, to its end.
func runBench(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "bench"), args...)
	cmd.Dir = filepath.Join("..", "..")
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	overdue := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
	defer overdue.Stop()
	err := cmd.Wait()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), log.String()
}

func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no command", nil, 2, "jitter"},
		{"unknown flag", []string{"jitter", "--fbs", "60"}, 2, "--fbs"},
		{"no rate", []string{"jitter", "--fps", "0"}, 2, "--fps is 0"},
		{"unknown load", []string{"jitter", "--load", "moon"}, 2, "moon"},
		{"unknown subject", []string{"jitter", "--subject", "moon"}, 2, "moon"},
		{"slices too short", []string{"jitter", "--subject", "loop", "--duration", "100ms"}, 2, "--duration"},
		{"two reports on one output", []string{"jitter", "--json", "-", "--html", "-"}, 2, "standard output"},
		{"two reports in one file", []string{"bus", "--json", filepath.Join(dir, "x"), "--html",
			filepath.Join(dir, "x")}, 2, "--html"},
		{"two of four on one output", []string{"faults", "--virtual", "--csv", "-", "--svg", "-"}, 2,
			"standard output"},
		{"a report into a folder", []string{"jitter", "--duration", "1h", "--json", dir}, 2, "--json: open " + dir},
		{"a report nowhere", []string{"faults", "--virtual", "--html", filepath.Join(dir, "none", "x.html")}, 2,
			"--html: open "},
		{"a figure of real time", []string{"faults", "--svg", filepath.Join(dir, "x.svg")}, 2,
			"--svg is for --virtual"},
		{"ticks of real time", []string{"faults", "--csv", filepath.Join(dir, "x.csv")}, 2, "--csv is for --virtual"},
		{"a network in real time", []string{"faults", "--network", "5ms"}, 2, "--network is for --virtual"},
		{"a policy's time in real time", []string{"faults", "--compute", "1s"}, 2, "--compute is for --virtual"},
		{"a fault that there is none of", []string{"safety", "--only", "blip-all,flod"}, 2,
			"no fault \"flod\", want one of blip-one"},
		{"faults in no time", []string{"safety", "--soak", "10ms"}, 2, "--soak is 10ms"},
		{"a soak of a fault that cannot be mixed", []string{"safety", "--soak", "10s", "--only", "wrong-baud"}, 2,
			"wrong-baud cannot be mixed"},
		{"a folder without programs", []string{"safety", "--only", "reset", "--bin", dir}, 2, "make build"},
		{"a page without the table's heading", []string{"safety", "--only", "reset", "--into", "README.md"}, 2,
			"it has no heading"},
		{"a quality beyond 100", []string{"faults", "--quality", "999"}, 2, "--quality is 999"},
		{"an answer in no time", []string{"faults", "--virtual", "--network", "0s", "--compute", "0s"}, 2,
			"--network and --compute are both 0s"},
		{"an odd number of episodes", []string{"faults", "--virtual", "--episodes", "3"}, 2,
			"half of them start on each side"},
		{"an option without a meaning", []string{"faults", "--virtual", "--schedule", "rtc+spans"}, 2, "rtc+spans"},
		{"a message too small", []string{"wire", "--size", "4"}, 2, "--size is 4"},
		{"no time", []string{"wire", "--duration", "0s"}, 2, "--duration is 0s"},
		{"no programs", []string{"jitter", "--bin", dir, "--duration", "5s"}, 2, "make build"},
		{"no manifest", []string{"jitter", "--bin", programs, "--manifest", filepath.Join(dir, "none.yaml"),
			"--duration", "5s"}, 3, "none.yaml"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "no manifest" {
				needsPrograms(t)
			}
			code, stdout, stderr := runBench(t, tt.args...)
			if code != tt.code || !strings.Contains(stderr, tt.says) || strings.Count(stderr, "\n") != 1 ||
				stdout != "" {
				t.Errorf("exit code %d, %q on stdout, said %q; want %d and one line with %q", code, stdout, stderr,
					tt.code, tt.says)
			}
		})
	}
}

func TestHelpTeaches(t *testing.T) {
	code, general, _ := runBench(t, "--help-all")
	_, jitter, _ := runBench(t, "jitter", "--help")
	_, wire, _ := runBench(t, "wire", "--help")
	if code != 0 {
		t.Errorf("--help-all exits %d, want 0", code)
	}
	for _, word := range []string{"Examples", "jitter", "version", "Exit codes", "ulimit -r 80"} {
		if !strings.Contains(general, word) {
			t.Errorf("--help-all lacks %q", word)
		}
	}
	if strings.Contains(general, "part ") {
		t.Errorf("--help shows the inner commands:\n%s", general)
	}
	for _, word := range []string{"--fps", "--slice", "--load", "--bin", "--html", "BENCH_DURATION"} {
		if !strings.Contains(jitter, word) {
			t.Errorf("jitter --help lacks %q", word)
		}
	}
	for _, word := range []string{"--size", "--python", "--rust", "BENCH_DURATION"} {
		if !strings.Contains(wire, word) {
			t.Errorf("wire --help lacks %q", word)
		}
	}
}

func TestVersion(t *testing.T) {
	if code, stdout, _ := runBench(t, "version"); code != 0 || !strings.HasPrefix(stdout, "bench ") {
		t.Errorf("version: %d %q", code, stdout)
	}
}

func TestFlagWinsOverEnvironment(t *testing.T) {
	t.Setenv("BENCH_FPS", "0")
	if code, _, stderr := runBench(t, "jitter"); code != 2 || !strings.Contains(stderr, "--fps is 0") {
		t.Errorf("environment alone: %d %q, want its rate refused", code, stderr)
	}
	if _, _, stderr := runBench(t, "jitter", "--fps", "2000"); !strings.Contains(stderr, "--fps is 2000") {
		t.Errorf("flag over environment: %q, want the flag's rate refused", stderr)
	}
}

// needsPrograms skips the test where edge-rt and lean-server cannot be built.
func needsPrograms(t *testing.T) {
	t.Helper()
	if othersMissing != nil && strings.Contains(othersMissing.Error(), "turbojpeg.h") {
		t.Skipf("needs libjpeg-turbo: %v", othersMissing)
	} else if othersMissing != nil {
		t.Fatal(othersMissing)
	}
}

// needs skips the test where a tool of the measurement is absent.
func needs(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("measures for seconds")
	}
	if r := jitter.FindCyclictest(t.Context()); r.Missing != "" {
		t.Skip(r.Missing)
	}
}

// The whole measurement runs in its shortest form. Two seconds give no meaningful figures; the test
// checks that they are present and add up.
func TestJitterOfLoopAndEdge(t *testing.T) {
	rttest.RealTime(t)
	needs(t)
	needsPrograms(t)
	dir := t.TempDir()
	before := children(t)
	code, stdout, stderr := runBench(t, "jitter", "--duration", "4s", "--quiet", "--json", "-", "--html",
		filepath.Join(dir, "j.html"))
	if code == 3 && (strings.Contains(stderr, "no ONNX Runtime") ||
		strings.Contains(stderr, "built without libjpeg-turbo")) {
		t.Skip(stderr)
	}
	if strings.Contains(stderr, "the bus takes") {
		t.Skipf("other programs keep the simulated bus from its pace: %s", stderr)
	}
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var r jitter.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	if len(r.Results) != 5 || len(r.Slices) != 5 || r.Figure == nil || r.Figure.Subject != jitter.Edge ||
		r.Figure.Ratio.P99 <= 0 {
		t.Fatalf("%d results of %d slices, figure %+v; want 5 of 5 and the edge's", len(r.Results), len(r.Slices),
			r.Figure)
	}
	for _, res := range r.Results {
		if res.Ticks < 20 || res.Lateness.P50 <= 0 || res.Lateness.P99 < res.Lateness.P50 ||
			res.Lateness.Max < res.Lateness.P99 {
			t.Errorf("%s %s: %d ticks, lateness %+v", res.Subject, res.Form, res.Ticks, res.Lateness)
		}
		if !strings.HasPrefix(res.Threads, "1 FIFO 80, ") {
			t.Errorf("%s %s: threads %q, want one at FIFO 80", res.Subject, res.Form, res.Threads)
		}
		if (res.Subject == jitter.Edge) != (res.BusP50 > 0) {
			t.Errorf("%s %s: bus p50 %v us", res.Subject, res.Form, res.BusP50)
		}
		if (res.Form == jitter.Beside) != (res.Reference != nil) {
			t.Errorf("%s %s: cyclictest beside %+v", res.Subject, res.Form, res.Reference)
		}
	}
	if len(r.Server) == 0 || r.Machine.Kernel == "" || r.Machine.GOMAXPROCS != runtime.NumCPU()+2 {
		t.Errorf("server summary %d bytes, machine %+v", len(r.Server), r.Machine)
	}
	if page, err := os.ReadFile(filepath.Join(dir, "j.html")); err != nil || !bytes.Contains(page, []byte("<svg")) {
		t.Errorf("page: %v, %d bytes", err, len(page))
	}
	if after := children(t); after != before {
		t.Errorf("%d processes of ours are left, before there were %d", after, before)
	}
}

// Under load the loop continues, and the load ends with the measurement.
func TestJitterUnderLoad(t *testing.T) {
	rttest.RealTime(t)
	needs(t)
	before := children(t)
	code, stdout, stderr := runBench(t, "jitter", "--subject", "loop", "--duration", "3s", "--quiet", "--json", "-",
		"--load", "cpu")
	var r jitter.Report
	if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s", code, err, stderr)
	}
	if r.Load != "cpu" || len(r.Results) != 3 || r.Figure == nil || r.Figure.Subject != jitter.Loop {
		t.Errorf("load %q, %d results, figure %+v; want cpu, three and the loop's", r.Load, len(r.Results), r.Figure)
	}
	if after := children(t); after != before {
		t.Errorf("%d processes of ours are left, before there were %d", after, before)
	}
}

// marker names a variable of the environment that every program below this test has.
const marker = "EDGERT_BENCH_TEST"

// children counts the programs that these tests have started, orphans included. Other packages run
// the same programs at the same time.
func children(t *testing.T) (n int) {
	t.Helper()
	ours := marker + "=" + os.Getenv(marker) + "\x00"
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, l := range links {
		exe, err := os.Readlink(l)
		if err != nil || !strings.HasPrefix(exe, programs) {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join(filepath.Dir(l), "environ"))
		if strings.Contains(string(environ)+"\x00", ours) {
			n++
		}
	}
	return n
}

// An interrupted measurement ends the programs that it started and reports its results so far.
func TestInterrupted(t *testing.T) {
	rttest.RealTime(t)
	needs(t)
	cmd := exec.Command(filepath.Join(programs, "bench"), "jitter", "--subject", "loop", "--slice", "1s", "--duration",
		"1m", "--json", "-")
	var out bytes.Buffer
	log := &watched{word: "round 1 of 20: loop apart"}
	cmd.Stdout, cmd.Stderr = &out, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	rttest.Eventually(t, "the first slice is complete", log.seen)
	cmd.Process.Signal(os.Interrupt)
	err := cmd.Wait()
	var r jitter.Report
	if jsonErr := json.Unmarshal(out.Bytes(), &r); err != nil || jsonErr != nil || len(r.Slices) != 1 ||
		r.Slices[0].Subject != jitter.Cyclictest {
		t.Errorf("%v, %v, %d slices; want the one that was complete", err, jsonErr, len(r.Slices))
	}
	if n := children(t); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

// watched is a program's output, searched for a word.
type watched struct {
	rttest.Output
	word string
}

func (w *watched) seen() bool { return strings.Contains(w.String(), w.word) }
