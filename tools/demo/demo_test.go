package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/record/recordtest"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// runDemo runs the demo for some time, and returns its error and the edge's summary.
func runDemo(t *testing.T, robot, manifest string, duration time.Duration) (s edge.Summary, err error) {
	t.Helper()
	rttest.RealTime(t)
	if testing.Short() {
		t.Skip("runs the arm for seconds")
	}
	stagetest.NeedsRuntime(t)
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	keep := t.TempDir()
	bin := rttest.Must(rttest.Programs(keep, "edge-rt", "lean-server"))(t)
	t.Chdir("../..") // lean-server --demo expects this working directory
	err = demo(options{
		Bin:        bin,
		Robot:      robot,
		Manifest:   manifest,
		Keep:       keep,
		Duration:   duration,
		Seed:       1,
		Targets:    7,
		Collisions: 1,
	})
	rttest.ReadJSON(t, filepath.Join(keep, "edge.json"), &s)
	return s, err
}

// The demo must be able to fail: a policy that answers with the present position reaches no target.
func TestStandingStillFails(t *testing.T) {
	if s, err := runDemo(t, "so101", "testdata/demo/still.yaml", 4*time.Second); err == nil || s.Targets != 0 ||
		s.Ticks < 160 {
		t.Errorf("demo with the still bundle: %v, %d targets, %d ticks; want an error, 0, about 240", err, s.Targets,
			s.Ticks)
	}
}

// The test leaves out the robot of one arm, which make demo runs.
func TestTheDemoPolicyReachesTargets(t *testing.T) {
	for robot, arms := range map[string]int{"bi_so101": 2, "lekiwi": 0} {
		t.Run(robot, func(t *testing.T) {
			s, err := runDemo(t, robot, "", 5*time.Second)
			if s.Targets < max(1, arms) || len(s.Parts) != arms || s.Exit.Code != 0 {
				t.Errorf("%d targets in 5 s, %d parts, exit %d, %v", s.Targets, len(s.Parts), s.Exit.Code, err)
			}
			for _, p := range s.Parts {
				if p.Targets < 1 {
					t.Errorf("%s has reached no target in 5 s", p.Name)
				}
			}
		})
	}
}

// ended returns the folder of an ended demo: its summary, and a record with the tick n times.
func ended(t *testing.T, r *edge.Summary, tick *record.Tick, n int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	rttest.WriteFile(t, dir, summaryName, string(rttest.Must(json.Marshal(r))(t)))
	folder := filepath.Join(dir, recordsName)
	rttest.Do(t, os.Mkdir(folder, 0o777))
	f := recordtest.Create(t, filepath.Join(folder, "arm-20260101T000000.000Z.mcap"), nil)
	for range n {
		f.Tick(tick)
	}
	f.Close()
	return dir
}

// With two arms the demo fails if either arm reaches nothing or hits the post, or if the arms come too close.
func TestJudgeChecksEachArm(t *testing.T) {
	o := options{Duration: 20 * time.Second, Targets: 7, Collisions: 1}
	good := drive.PartSummary{Targets: 9}
	for name, tt := range map[string]struct {
		right drive.PartSummary
		pan   float32 // pan of the right arm, in degrees; 180: towards the left arm
		fails bool
	}{
		"both good":      {good, 60, false},
		"one is still":   {drive.PartSummary{}, 60, true},
		"one collides":   {drive.PartSummary{Targets: 9, Collisions: 2}, 60, true},
		"they come near": {good, 180, true},
	} {
		r := edge.Summary{SMin: 20}
		r.Ticks, r.FPS = 1200, 60
		r.Parts = []drive.PartSummary{good, tt.right}
		tick := record.Tick{State: record.Row{N: 2 * sim.DOF}} // the left arm is stretched to the right
		tick.State.V[sim.DOF] = tt.pan
		if err := judge(ended(t, &r, &tick, 1), 0, o); (err != nil) != tt.fails {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The error of a run that the machine spoiled names the machine; the error of a run that the
// programs spoiled does not.
func TestJudgeNamesABusyMachine(t *testing.T) {
	o := options{Duration: 20 * time.Second, Targets: 7, Collisions: 1}
	for _, tt := range []struct {
		late uint64
		busy bool
	}{{104, true}, {3, false}} {
		var r edge.Summary
		r.Ticks, r.OverrunsHost = 955, tt.late
		r.Targets, r.FPS = 6, 60
		r.SMin, r.LatencySteps = 20, 4
		err := judge(ended(t, &r, nil, 0), 0, o)
		if err == nil || errors.Is(err, errHost) || rttest.Says(err, "this machine was busy") != tt.busy {
			t.Errorf("%d late ticks: %v, want that the machine was busy: %v", tt.late, err, tt.busy)
		}
	}
}

// A base that does not drive fails the demo.
func TestJudgeChecksTheBase(t *testing.T) {
	o := options{Robot: "lekiwi", Duration: 20 * time.Second, Targets: 7, Collisions: 1}
	for speed, fails := range map[float32]bool{0.2: false, 0: true} {
		r := edge.Summary{SMin: 20}
		r.Ticks, r.FPS = 1200, 60
		r.Targets = 9
		tick := record.Tick{State: record.Row{N: sim.DOF + 3}}
		tick.State.V[sim.DOF] = speed
		if err := judge(ended(t, &r, &tick, 120), 0, o); (err != nil) != fails {
			t.Errorf("at %v m/s: %v", speed, err)
		}
	}
}
