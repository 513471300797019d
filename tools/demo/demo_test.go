package main

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// runDemo runs the demo for a few seconds, and returns its error and the edge's summary.
func runDemo(t *testing.T, manifest string) (s edge.Summary, err error) {
	t.Helper()
	rttest.RealTime(t)
	if testing.Short() {
		t.Skip("runs the arm for seconds")
	}
	stagetest.NeedsRuntime(t)
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	keep := t.TempDir()
	bin, err := rttest.Programs(keep, "edge-rt", "lean-server")
	if err != nil {
		t.Fatal(err)
	}
	err = demo(options{
		bin:        bin,
		manifest:   "../../testdata/demo/" + manifest,
		keep:       keep,
		duration:   8 * time.Second,
		seed:       1,
		targets:    7,
		collisions: 1,
	})
	stagetest.ReadJSON(t, filepath.Join(keep, "edge.json"), &s)
	return s, err
}

// The demo must be able to fail: a policy that answers with the present position reaches no target.
func TestStandingStillFails(t *testing.T) {
	if s, err := runDemo(t, "still.yaml"); err == nil || s.Targets != 0 || s.Ticks < 300 {
		t.Errorf("demo with the still bundle: %v, %d targets, %d ticks; want an error, 0, about 480", err, s.Targets,
			s.Ticks)
	}
}

func TestTheDemoPolicyReachesTargets(t *testing.T) {
	if s, err := runDemo(t, "server.yaml"); s.Targets < 2 || s.Exit.Code != 0 {
		t.Errorf("%d targets in 8 s, exit %d, %v; want at least 2 and 0", s.Targets, s.Exit.Code, err)
	}
}

// The error of a run that the machine spoiled names the machine; the error of a run that the
// programs spoiled does not.
func TestJudgeNamesABusyMachine(t *testing.T) {
	o := options{duration: 20 * time.Second, targets: 7, collisions: 1}
	for _, tt := range []struct {
		late uint64
		busy bool
	}{{104, true}, {3, false}} {
		var r edge.Summary
		r.Ticks, r.OverrunsHost = 955, tt.late
		r.Targets, r.FPS = 6, 60
		r.SMin, r.LatencySteps = 20, 4
		text, err := json.Marshal(&r)
		if err != nil {
			t.Fatal(err)
		}
		path := stagetest.WriteFile(t, t.TempDir(), "edge.json", string(text))
		err = judge(path, 0, o)
		if err == nil || errors.Is(err, errHost) || strings.Contains(err.Error(), "this machine was busy") != tt.busy {
			t.Errorf("%d late ticks: %v, want that the machine was busy: %v", tt.late, err, tt.busy)
		}
	}
}
