// Package recipe measures which scheduling class the edge's other threads should have.
//
// The tick is SCHED_FIFO 80 in every cell. The cells differ in the class of all other threads of the process (camera,
// encoder, transport), in whether Go's collector runs, and in the load: none, another process, or, in the edge's own
// process, picture encoders on every core or garbage.
//
// Each cell is the whole edge in a separate process (part.go), with one real lean-server. The
// simulated arm is another process, whose threads have precedence over all others, because real
// motors do not share the edge's CPUs. A cell runs for a few seconds, and the cells take turns in
// rotating order, so that other work of the machine affects all of them.
//
// The result is in docs/real-time.md: bytes of a tty reach their reader through ordinary kernel
// workers. So real-time threads beside the tick can starve the bus for which the tick waits.
package recipe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/stage"
)

// Config configures Measure; its tags are the flags of `bench recipe`.
type Config struct {
	FPS         float64       `range:"1..1000" name:"fps" default:"60" help:"Ticks per second; the demo policy was trained at 60."`
	Others      []string      `enum:"nice-10,nice0,rr40" default:"nice-10,nice0,rr40" help:"Classes of all threads but the tick's: nice-10 (what edge-rt does), nice0, rr40 (SCHED_RR 40)."`
	GC          []string      `enum:"off,on" name:"gc" default:"off,on" help:"Go's collector while the arm moves: off (what edge-rt does), on."`
	Load        []string      `enum:"none,stress,encode,alloc" default:"none,stress,encode,alloc" help:"The load meanwhile: none, stress (stress-ng on every core), encode (pictures on every core, in the edge's process), alloc (20 MB/s of garbage in it)."`
	Rounds      int           `range:"1..1000" default:"2" help:"How often each combination runs."`
	Slice       time.Duration `range:"2s..;the arm is armed after half a second" default:"10s" help:"How long each time; the first five seconds after arming warm up and do not count for the collector."`
	Bin         string        `help:"Folder of edge-rt and lean-server; default: where bench is." placeholder:"DIR"`
	Manifest    string        `default:"testdata/demo/server.yaml" help:"What lean-server serves." placeholder:"FILE"`
	Calibration string        `default:"testdata/demo/so101.json" help:"Calibration of the simulated arm." placeholder:"FILE"`
	bench.Env
}

const (
	startTries = 3                // attempts to start a slice
	endLimit   = 20 * time.Second // longest time for a part to open, and longest time for its end
	armLink    = "arm"            // name of the arm's port in the temporary folder
)

// Cell is one recipe under one load.
type Cell struct {
	// class of the other threads: nice-10, nice0 or rr40
	Others string `json:"others" required:"" enum:"nice-10,nice0,rr40"`
	GC     string `json:"gc" name:"gc" required:"" enum:"off,on"` // Go's collector while the arm moves: off or on
	// none, stress, encode or alloc
	Load string `json:"load" required:"" enum:"none,stress,encode,alloc"`
}

func cellsOf(others, gcs, loads []string) (all []Cell) {
	for _, load := range loads {
		for _, o := range others {
			for _, gc := range gcs {
				all = append(all, Cell{Others: o, GC: gc, Load: load})
			}
		}
	}
	return all
}

// Slice is one cell in one round. Failed is the reason if it has no result: with some recipes the
// bus does not answer at all.
type Slice struct {
	Cell
	Round  int     `json:"round"`            // number of the round
	Failed string  `json:"failed,omitempty"` // why it has no result
	Result *Result `json:"result,omitempty"` // absent if it failed
}

// Measure runs every cell in every round. When ctx ends early the report covers the complete
// slices.
func Measure(ctx context.Context, cfg Config) (*Report, error) {
	if err := cmp.Or(bench.Distinct("--others", cfg.Others), bench.Distinct("--gc", cfg.GC),
		bench.Distinct("--load", cfg.Load)); err != nil {
		return nil, err
	}
	cells := cellsOf(cfg.Others, cfg.GC, cfg.Load)
	dir, err := os.MkdirTemp("", "edgert-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	machine := bench.ReadMachine(os.DirFS("/"))
	server, err := stage.Serve(ctx, cfg.Bin, cfg.Manifest)
	if err != nil {
		return nil, err
	}
	defer server.Stop() // a second Stop does nothing
	arm, err := stage.StartSimBus(cfg.Bin, filepath.Join(dir, armLink), "--robot", "so101")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSetup, err)
	}
	defer arm.Stop()
	var all []Slice
	for round := 0; round < cfg.Rounds && ctx.Err() == nil; round++ {
		for i, cell := range bench.Turned(cells, round) {
			cfg.Progress("round %d of %d, %d of %d: others %s, collector %s, load %s, %v\n",
				round+1, cfg.Rounds, i+1, len(cells), cell.Others, cell.GC, cell.Load, cfg.Slice)
			s := Slice{Cell: cell, Round: round + 1}
			// The edge refuses a bus that is too slow, as the simulated bus sometimes is on a busy
			// machine.
			for try := 1; ; try++ {
				if s.Result, err = cfg.slice(ctx, cell, server.Endpoint, arm, dir); err == nil || try == startTries ||
					ctx.Err() != nil {
					break
				}
			}
			if ctx.Err() != nil {
				break
			}
			if errors.Is(err, errSetup) {
				return nil, err
			}
			if err != nil {
				s.Failed = err.Error()
			}
			all = append(all, s)
		}
	}
	if err := server.Stop(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("ended before the first slice was complete")
	}
	return newReport(cfg, cells, machine, all), nil
}

// errSetup is the error for a load or a simulated bus that does not run, so that nothing can be
// measured.
var errSetup = errors.New("nothing to measure with")

// simPriority is the priority of the simulated arm's threads, in a separate process. Real motors do
// not share the edge's CPUs, so these threads have precedence over all others.
const simPriority = 85

// prioritize gives the simulator's threads precedence over all others. Call it repeatedly, since
// new threads appear.
func prioritize(arm *stage.Child) error {
	if !arm.Running() {
		return fmt.Errorf("%w: edge-rt sim-bus ended: %s", errSetup, arm.LastWords())
	}
	for _, t := range bench.ThreadsOf(arm.PID()) {
		if err := setRealTime(t.TID, fifo, simPriority); err != nil {
			return fmt.Errorf("%w: SCHED_FIFO %d for the simulated arm: %w; run as root", errSetup, simPriority, err)
		}
	}
	return nil
}

// slice runs one configuration for one time slice.
func (c *Config) slice(ctx context.Context, cell Cell, endpoint string, arm *stage.Child, dir string) (*Result, error) {
	if err := prioritize(arm); err != nil {
		return nil, err
	}
	name := "none"
	if cell.Load == "stress" {
		name = "stress"
	}
	load, err := bench.StartLoad(name)
	if err != nil {
		return nil, exit.Errorf(exit.Of(err), "%w: %w", errSetup, err)
	}
	defer load.Stop()
	cmd := bench.Part("edge", "--fps", strconv.FormatFloat(c.FPS, 'g', -1, 64),
		"--duration", c.Slice.String(), "--connect", endpoint, "--bus", filepath.Join(dir, armLink), "--calibration",
		c.Calibration,
		"--others", cell.Others, "--gc", cell.GC, "--load", cell.Load)
	cmd.Env = append(cmd.Env, "STATE_DIRECTORY="+dir) // the edge's id is not stored in the user's state folder
	part, err := stage.Start(cmd)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, part.Kill)()
	if err := part.Wait(c.Slice + endLimit); err != nil {
		return nil, err
	}
	var r Result
	if err := json.Unmarshal(part.Stdout(), &r); err != nil || r.Edge == nil {
		return nil, fmt.Errorf("the edge's result is unreadable: %w", err)
	}
	return &r, nil
}
