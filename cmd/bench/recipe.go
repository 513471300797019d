package main

import (
	"context"
	"io"
	"time"

	"edgert/bench/recipe"
	"edgert/internal/exit"
)

type recipeFlags struct {
	FPS         float64       `name:"fps" default:"60" help:"Ticks per second; the demo policy was trained at 60."`
	Others      []string      `default:"nice-10,nice0,rr40" help:"Classes of all threads but the tick's: nice-10 (what edge-rt does), nice0, rr40 (SCHED_RR 40)."`
	GC          []string      `name:"gc" default:"off,on" help:"Go's collector while the arm moves: off (what edge-rt does), on."`
	Load        []string      `default:"none,stress,encode,alloc" help:"What else happens: none, stress (stress-ng on every core), encode (pictures on every core, in the edge's process), alloc (20 MB/s of garbage in it)."`
	Rounds      int           `default:"2" help:"How often each combination runs."`
	Slice       time.Duration `default:"10s" help:"How long each time; the first five seconds after arming warm up and do not count for the collector."`
	Bin         string        `help:"Folder of edge-rt and lean-server; default: where bench is." placeholder:"DIR"`
	Manifest    string        `default:"testdata/demo/server.yaml" help:"What lean-server serves." placeholder:"FILE"`
	Calibration string        `default:"testdata/demo/so101.json" help:"Calibration of the simulated arm." placeholder:"FILE"`
	JSON        string        `name:"json" help:"Write the report as JSON to this file, - for standard output." placeholder:"FILE"`
	Quiet       bool          `help:"No progress, only the table."`
}

func (f *recipeFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := ready(output{flag: "--json", name: f.JSON}); err != nil {
		return err
	}
	cells, err := recipe.Matrix(f.Others, f.GC, f.Load)
	if err != nil {
		return err
	}
	self, err := ownPath()
	if err != nil {
		return err
	}
	bin, err := folder(f.Bin)
	if err != nil {
		return err
	}
	cfg := recipe.Config{
		FPS: f.FPS, Cells: cells, Rounds: f.Rounds, Slice: f.Slice, Bin: bin, Manifest: f.Manifest, Calibration: f.Calibration,
		Self: []string{self}, Version: version, Log: progress(f.Quiet, stderr),
	}
	report, err := recipe.Measure(ctx, cfg)
	if err != nil {
		return err
	}
	return deliver(stdout, stderr, report.WriteTable, output{"--json", f.JSON, report.WriteJSON})
}

// edgePart is what recipe runs as processes of their own.
type edgePart struct {
	FPS         float64       `name:"fps" required:""`
	Duration    time.Duration `required:""`
	Connect     string        `required:""`
	Bus         string        `required:""`
	Calibration string        `required:""`
	Others      string        `required:""`
	GC          string        `name:"gc" required:""`
	Load        string        `required:""`
}

func (p *edgePart) run(ctx context.Context, stdout io.Writer) error {
	part := recipe.Part{Cell: recipe.Cell{Others: p.Others, GC: p.GC, Load: p.Load}, FPS: p.FPS, Duration: p.Duration, Connect: p.Connect, Bus: p.Bus, Calibration: p.Calibration}
	if err := part.Check(); err != nil {
		return exit.With(exit.Usage, err)
	}
	return part.Run(ctx, stdout)
}
