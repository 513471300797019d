package lerobot

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// BenchmarkWorker compares the time of the worker with the time of the policy and processors that
// run in it, a small ACT of LeRobot's with two pictures of each size. added-ms is the time of a
// request less the time of policy and processors. policy-share is their part of the time while 8
// robots ask without a pause, once in turn and once all 8 in one call.
//
//	EDGERT_LEROBOT=$PWD/.venv-export/bin/python go test ./server/lerobot -run '^$' -bench Worker -benchtime 200x
func BenchmarkWorker(b *testing.B) {
	python := os.Getenv("EDGERT_LEROBOT")
	if python == "" {
		b.Skip("EDGERT_LEROBOT names no interpreter with LeRobot")
	}
	defer func(before []byte) { program = before }(program)
	program = slices.Concat(released, rttest.Must(os.ReadFile("testdata/cost.py"))(b))
	for _, size := range [][2]int{{96, 128}, {480, 640}} {
		for _, together := range []int{1, 8} {
			b.Run(fmt.Sprintf("%dx%d/batch=%d", size[1], size[0], together), func(b *testing.B) {
				measureWorker(b, python, size, together)
			})
		}
	}
}

func measureWorker(b *testing.B, python string, size [2]int, together int) {
	folder := b.TempDir()
	file := rttest.WriteFile(b, folder, "cost.py", program)
	made := exec.Command(python, file, folder, fmt.Sprint(size[0]), fmt.Sprint(size[1]))
	if text, err := made.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, text)
	}
	cfg := config(b)
	cfg.Model.Python, cfg.Model.RepoOrPath = python, folder
	joints := []string{"a.pos", "b.pos", "c.pos", "d.pos", "e.pos", "f.pos"}
	cfg.Model.Inputs.FPS = 30
	cfg.Model.Inputs.StateNames = joints
	cfg.Model.Inputs.ActionNames = joints
	b.Setenv("OMP_NUM_THREADS", "1")
	cfg.MaxBatch = together
	opened := rttest.Must(Open(b.Context(), cfg, slog.New(slog.DiscardHandler), func(string) {}))(b)
	m := rttest.Must(opened.Serve(together, 1))(b)
	defer m.Close()
	ask := func(turn int) (whole, policies time.Duration) {
		for i := range together {
			m.SetRequest(i, policy.Request{Session: fmt.Sprint((turn + i) % 8), Seed: uint64(turn)})
		}
		began := time.Now()
		rttest.Do(b, m.RunBuffer(0, together))
		worker := opened.Runtime.(*worker)
		return time.Since(began), time.Duration(binary.LittleEndian.Uint64(worker.answer))
	}
	report(b, ask)
}

// report calls ask until the benchmark ends, and reports the times that ask returns.
func report(b *testing.B, ask func(turn int) (whole, policies time.Duration)) {
	var added []float64
	var all, theirs time.Duration
	ask(0)
	for turn := 1; b.Loop(); turn++ {
		whole, policies := ask(turn)
		all, theirs = all+whole, theirs+policies
		added = append(added, float64(whole-policies)/float64(time.Millisecond))
	}
	slices.Sort(added)
	b.ReportMetric(added[len(added)/2], "added-ms-p50")
	b.ReportMetric(added[len(added)*99/100], "added-ms-p99")
	b.ReportMetric(theirs.Seconds()/all.Seconds(), "policy-share")
	b.ReportMetric(theirs.Seconds()/float64(len(added)), "policy-s/op")
}
