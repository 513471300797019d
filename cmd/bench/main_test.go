package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/bench/jitter"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

var (
	programs      string // the folder of bench, edge-rt and lean-server
	othersMissing error  // why edge-rt and lean-server could not be built
)

// TestMain builds the programs once. The tests run them as a user would.
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
	p := benchCommand(t, args...)
	p.Dir = root
	return p.Run()
}

// benchCommand returns bench, not yet started.
func benchCommand(t *testing.T, args ...string) *stagetest.Program {
	t.Helper()
	return stagetest.Command(t, filepath.Join(programs, "bench"), args...)
}

// measured runs a measurement to its end and reads its report into v. The programs that the measurement started must
// have ended. measured skips the test if this machine lacks something that the measurement needs.
func measured(t *testing.T, v any, args ...string) {
	t.Helper()
	before := children(t)
	code, stdout, stderr := runBench(t, append(args, "--quiet", "--json", "-")...)
	for _, absent := range []string{"no ONNX Runtime", "built without libjpeg-turbo", "the bus takes"} {
		if code == 3 && strings.Contains(stderr, absent) {
			t.Skip(stderr)
		}
	}
	if err := json.Unmarshal([]byte(stdout), v); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s", code, err, stderr)
	}
	rttest.Want(t, children(t), before, "processes of ours")
}

// refused checks a command line that bench refuses with one line on standard error.
func refused(t *testing.T, args string, code int, says string) {
	t.Helper()
	stagetest.Refusal{Args: args, Code: code, Says: says}.Check(t, runBench)
}

func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range stagetest.Refusals(strings.ReplaceAll(`
		jitter --fbs 60 => 2 --fbs
		jitter --fps 0 => 2 --fps is 0
		jitter --load moon => 2 moon
		jitter --subject moon => 2 moon
		jitter --subject loop --duration 100ms => 2 --duration
		jitter --json - --html - => 2 standard output
		jitter --compare a.json => 2 two files of bench jitter --json
		jitter b.json => 2 --compare OLD.json NEW.json
		jitter --compare a.json b.json => 3 a.json
		jitter --compare a.json b.json --html x.html => 2 --html
		jitter --lerobot /none/python => 2 --lerobot /none/python
		jitter --json DIR/x --html DIR/x => 2 --html
		faults --virtual --csv - --svg - => 2 standard output
		jitter --duration 1h --json DIR => 2 --json: open DIR
		faults --virtual --html DIR/none/x.html => 2 --html: open
		faults --svg DIR/x.svg => 2 --svg is for --virtual
		faults --csv DIR/x.csv => 2 --csv is for --virtual
		faults --network 5ms => 2 --network is for --virtual
		faults --compute 1s => 2 --compute is for --virtual
		safety --only blip-all,flod => 2 no fault "flod", want one of blip-one
		safety --soak 10ms => 2 --soak is 10ms
		safety --soak 10s --only wrong-baud => 2 wrong-baud cannot be mixed
		safety --only reset --bin DIR => 2 make build
		safety --only reset --into README.md => 2 it has no heading
		faults --quality 999 => 2 --quality is 999
		faults --virtual --network 0s --compute 0s => 2 --network and --compute are both 0s
		faults --virtual --episodes 3 => 2 half of them start on each side
		faults --virtual --schedule rtc+spans => 2 rtc+spans
		latency --links wifi7 => 2 --links: no scenario "wifi7"
		latency --schedule fast => 2 no schedule "fast"
		latency --duration 1s => 2 --duration is 1s
		faults --queues DIR/x.svg => 2 --queues is for --virtual
		faults --record DIR/x.mcap => 2 --record: open
		faults --virtual --record x.mcap --faults none => 2 in place of --faults
		faults --virtual --record DIR/x.mcap => 2 --record: open
		faults --virtual --cameras 640x480 => 2 as in 2x640x480
		faults --cameras 2x640x480 => 2 --cameras is for --virtual
		wire --size 4 => 2 --size is 4
		wire --duration 0s => 2 --duration is 0s
		recipe --others best => 2 best
		recipe --gc= => 2 --gc names nothing
		recipe --load none,none => 2 each once
		serve --quiet --robots 0 => 2 --robots
		serve --quiet --device abacus => 2 abacus
		serve --quiet --bundle nowhere => 3 nowhere
		serve --quiet --beside lerobot => 2 lerobot
		jitter --duration 5s --bin DIR => 2 make build
	`, "DIR", dir)) {
		tt.Check(t, runBench)
	}
	refused(t, "", 2, "jitter")
	needsPrograms(t)
	refused(t, "jitter --duration 5s --bin "+programs+" --manifest "+dir+"/none.yaml", 3, "none.yaml")
}

func TestHelpTeaches(t *testing.T) {
	for args, says := range map[string]string{
		"--help-all":    "Examples|jitter|version|Exit codes|ulimit -r 80",
		"jitter --help": "--fps|--slice|--load|--bin|--html|BENCH_DURATION",
		"wire --help":   "--size|--python|--rust|BENCH_DURATION",
		"version":       "bench ",
	} {
		code, stdout, _ := runBench(t, strings.Fields(args)...)
		if code != 0 || strings.Contains(stdout, "part ") {
			t.Errorf("%s: code %d, want 0 and no inner commands:\n%s", args, code, stdout)
		}
		stagetest.CheckSays(t, stdout, says)
	}
}

func TestFlagWinsOverEnvironment(t *testing.T) {
	t.Setenv("BENCH_FPS", "0")
	refused(t, "jitter", 2, "--fps is 0")
	refused(t, "jitter --fps 2000", 2, "--fps is 2000")
}

// needsPrograms skips the test where edge-rt and lean-server cannot be built.
func needsPrograms(t *testing.T) {
	t.Helper()
	if othersMissing != nil && rttest.Says(othersMissing, "turbojpeg.h") {
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

// The whole jitter measurement, in its shortest form. Two seconds give no meaningful figures; the test only checks that
// the figures are present and add up.
func TestJitterOfLoopAndEdge(t *testing.T) {
	rttest.RealTime(t)
	needs(t)
	needsPrograms(t)
	html := filepath.Join(t.TempDir(), "j.html")
	var r jitter.Report
	measured(t, &r, "jitter", "--duration", "4s", "--html", html)
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
		rttest.Want(t, res.Subject == jitter.Edge, res.BusP50 > 0,
			"%s %s: whether it is the edge, with a bus p50 of %v us", res.Subject, res.Form, res.BusP50)
		rttest.Want(t, res.Form == jitter.Beside, res.Reference != nil,
			"%s %s: whether cyclictest runs beside it (%+v)", res.Subject, res.Form, res.Reference)
	}
	if len(r.Server) == 0 || r.Machine.Kernel == "" || r.Machine.GOMAXPROCS != runtime.NumCPU()+2 {
		t.Errorf("server summary %d bytes, machine %+v", len(r.Server), r.Machine)
	}
	rttest.Contains(t, rttest.ReadFile(t, html), "<svg")
}

// Under load the loop continues, and the load ends with the measurement.
func TestJitterUnderLoad(t *testing.T) {
	rttest.RealTime(t)
	needs(t)
	var r jitter.Report
	measured(t, &r, "jitter", "--subject", "loop", "--duration", "3s", "--load", "cpu")
	if r.Load != "cpu" || len(r.Results) != 3 || r.Figure == nil || r.Figure.Subject != jitter.Loop {
		t.Errorf("load %q, %d results, figure %+v; want cpu, three and the loop's", r.Load, len(r.Results), r.Figure)
	}
}

// marker is the name of an environment variable that every program started by these tests has.
const marker = "EDGERT_BENCH_TEST"

// children counts the programs that these tests have started, orphans included. It recognises them by marker, because
// the tests of other packages run the same programs at the same time.
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
	p := benchCommand(t, "jitter", "--subject", "loop", "--slice", "1s", "--duration", "1m", "--json", "-")
	var out bytes.Buffer
	p.Stdout = &out
	p.Start()
	p.Await("round 1 of 20: loop apart")
	code := p.End(os.Interrupt)
	var r jitter.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || code != 0 || len(r.Slices) != 1 ||
		r.Slices[0].Subject != jitter.Cyclictest {
		t.Errorf("code %d, %v, %d slices; want the one that was complete", code, err, len(r.Slices))
	}
	rttest.Want(t, children(t), 0, "processes left")
}
