package main

import (
	"context"
	"io"
	"time"

	"edgert/bench/jitter"
)

type jitterFlags struct {
	FPS      float64       `name:"fps" default:"60" help:"Ticks per second; the demo policy was trained at 60."`
	Duration time.Duration `default:"2m" help:"In all; starting the programs comes on top."`
	Slice    time.Duration `default:"8s" help:"Each subject in turn runs for this long, round after round."`
	Load     string        `default:"none" enum:"none,cpu,alloc,stress" help:"What else the machine does: none, cpu (a busy thread per core), alloc (100 MB/s of garbage), stress (stress-ng)."`
	Subject  []string      `default:"loop,edge" help:"What to measure: loop (rt.Loop with an empty step), edge (edge-rt and lean-server)."`
	CPU      int           `name:"cpu" default:"-1" help:"Pin the subjects to this CPU; -1: as edge-rt does, the last one where there are at least four."`
	Bin      string        `help:"Folder of edge-rt and lean-server; default: where bench is." placeholder:"DIR"`
	Manifest string        `default:"testdata/demo/server.yaml" help:"What lean-server serves." placeholder:"FILE"`
	JSON     string        `name:"json" help:"Write the report as JSON to this file, - for standard output." placeholder:"FILE"`
	HTML     string        `name:"html" help:"Write the report as a page with histograms to this file, - for standard output." placeholder:"FILE"`
	Quiet    bool          `help:"No progress, only the table."`
}

func (f *jitterFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := ready(output{flag: "--json", name: f.JSON}, output{flag: "--html", name: f.HTML}); err != nil {
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
	cfg := jitter.Config{
		FPS: f.FPS, Duration: f.Duration, Slice: f.Slice, Load: f.Load, Subjects: f.Subject, CPU: f.CPU,
		Bin: bin, Manifest: f.Manifest, Self: []string{self}, Version: version, Log: progress(f.Quiet, stderr),
	}
	report, err := jitter.Measure(ctx, cfg)
	if err != nil {
		return err
	}
	return deliver(stdout, stderr, report.WriteTable, output{"--json", f.JSON, report.WriteJSON}, output{"--html", f.HTML, report.WriteHTML})
}
