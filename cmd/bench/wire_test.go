package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/bench/wire"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// measureWire runs bench wire in its shortest form.
func measureWire(t *testing.T, python string) (r wire.Report) {
	t.Helper()
	if testing.Short() {
		t.Skip("measures for seconds")
	}
	measured(t, &r, "wire", "--duration", "1ms", "--size", "64,100000", "--python", python, "--rust", "none")
	for _, res := range r.RoundTrips {
		if res.Count < 60 || res.Min <= 0 || res.P50 < res.Min || res.P99 < res.P50 || res.CPU <= 0 || res.XTCP <= 0 ||
			res.XRust != 0 {
			t.Errorf("round trips of %s, %s, %d bytes: %+v", res.Subject, res.Path, res.Bytes, res)
		}
		rttest.Want(t, res.Mallocs == nil, res.Subject == wire.Python,
			"round trips of %s: no mallocs (%v)", res.Subject, res.Mallocs)
	}
	for _, res := range r.Floods {
		if res.Count < 60 || res.Lost != 0 || res.Rate <= 0 || res.MBytes <= 0 || res.CPU <= 0 {
			t.Errorf("flood of %s, %s, %d bytes: %+v", res.Subject, res.Path, res.Bytes, res)
		}
	}
	return r
}

// Where the official implementation is absent, the report states that and contains the rest.
func TestWireWithoutJudges(t *testing.T) {
	r := measureWire(t, "none")
	if len(r.Missing) != 2 || !strings.Contains(r.Missing[0], "--python") ||
		!strings.Contains(r.Missing[1], "tools/interop/rust-ping.sh") {
		t.Errorf("missing %q, want Python and Rust", r.Missing)
	}
	if len(r.RoundTrips) != 4 || len(r.Floods) != 4 || r.Rounds != 3 || len(r.Turns) != 24 {
		t.Errorf("%d and %d results of %d turns in %d rounds, want two subjects at two sizes", len(r.RoundTrips),
			len(r.Floods), len(r.Turns), r.Rounds)
	}
}

func TestWireBesidePython(t *testing.T) {
	python := os.Getenv("EDGERT_PYTHON")
	if out, err := exec.Command(python, "-c", "import zenoh; zenoh.open").CombinedOutput(); err != nil {
		t.Skipf("no official Zenoh: %v %s; run make test, or name an interpreter in EDGERT_PYTHON", err, out)
	}
	// bench measures TCP only directly, and our transport and the official one directly and through the router.
	if r := measureWire(t, python); len(r.Missing) != 1 || len(r.RoundTrips) != 10 || len(r.Floods) != 10 {
		t.Errorf("missing %q, %d and %d results; want Rust, 10 and 10", r.Missing, len(r.RoundTrips), len(r.Floods))
	}
}

// Child processes that do not react, here because they are stopped, neither delay Ctrl-C nor outlive a killed bench.
func TestWireLeavesNobody(t *testing.T) {
	rttest.RealTime(t)
	const soon = 4 * time.Second // less than the 5 s that a child may take if it is only asked to end
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			before := children(t)
			p := benchCommand(t, "wire", "--duration", "10m", "--size", "64", "--python", "none", "--rust",
				"none").Start()
			p.Await("pairs are up")
			ends := partsOf(t, p.Process.Pid)
			rttest.Want(t, len(ends), 4, "ends that run")
			for _, pid := range ends {
				syscall.Kill(pid, syscall.SIGSTOP)
				defer syscall.Kill(pid, syscall.SIGKILL) // the child may outlive bench
			}
			asked := time.Now()
			p.End(signal)
			rttest.Eventually(t, "nobody is left", func() bool { return children(t) <= before })
			if took := time.Since(asked); took > soon {
				t.Errorf("it ended with all it had started after %v, want at once", took)
			}
		})
	}
}

// partsOf lists the children of a process.
func partsOf(t *testing.T, pid int) (pids []int) {
	t.Helper()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, name := range files {
		b := rttest.ReadFile(t, name)
		for word := range strings.FieldsSeq(b) {
			n := rttest.Must(strconv.Atoi(word))(t)
			pids = append(pids, n)
		}
	}
	return pids
}
