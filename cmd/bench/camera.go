package main

import (
	"context"
	"io"
	"time"

	"edgert/bench/camera"
	"edgert/edge/capture"
	"edgert/internal/exit"
	"edgert/rt"
)

type cameraFlags struct {
	Camera   []string      `sep:"none" help:"As edge-rt's --camera; repeat for more. Default: two synthetic cameras of 640x480 at 30 frames a second." placeholder:"NAME=SOURCE"`
	Quality  *int          `name:"jpeg-quality" help:"As edge-rt's." placeholder:"N"`
	FPS      float64       `name:"fps" default:"60" help:"Ticks per second beside the cameras."`
	Duration time.Duration `default:"1m" help:"In all, half of it without the cameras."`
	Slice    time.Duration `default:"10s" help:"With the cameras and without take turns of this length."`
	RT       string        `name:"rt" default:"auto" enum:"auto,require,off" help:"As edge-rt's."`
	JSON     string        `name:"json" help:"Write the report as JSON to this file, - for standard output." placeholder:"FILE"`
	Quiet    bool          `help:"No progress, only the table."`
}

// twoCameras are measured when none is named.
var twoCameras = []string{"left=pattern:640x480@30", "right=pattern:640x480@30"}

func (f *cameraFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := ready(output{flag: "--json", name: f.JSON}); err != nil {
		return err
	}
	cfg := camera.Config{
		Quality: 90, FPS: f.FPS, Duration: f.Duration, Slice: f.Slice, Version: version, Log: progress(f.Quiet, stderr),
		RT: map[string]rt.Mode{"auto": rt.ModeAuto, "require": rt.ModeRequire, "off": rt.ModeOff}[f.RT],
	}
	if f.Quality != nil {
		if *f.Quality < 0 || *f.Quality > 100 {
			return exit.Errorf(exit.Usage, "--jpeg-quality is %d, want 1 to 100, or 0 for raw pictures", *f.Quality)
		}
		cfg.Quality, cfg.Asked = *f.Quality, true
	}
	names := f.Camera
	if len(names) == 0 {
		names = twoCameras
	}
	for _, text := range names {
		c, err := capture.Parse(text)
		if err != nil {
			return err
		}
		cfg.Cameras = append(cfg.Cameras, c)
	}
	report, err := camera.Measure(ctx, cfg)
	if err != nil {
		return err
	}
	return deliver(stdout, stderr, report.WriteTable, output{"--json", f.JSON, report.WriteJSON})
}
