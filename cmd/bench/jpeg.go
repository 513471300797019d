package main

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"edgert/bench/jpeg"
	"edgert/internal/exit"
)

type jpegFlags struct {
	Size     string        `default:"640x480" help:"Of the picture."`
	Quality  int           `default:"90" help:"1 to 100."`
	Duration time.Duration `default:"30s" help:"In all; a round of all subjects takes some 3 s."`
	JSON     string        `name:"json" help:"Write the report as JSON to this file, - for standard output." placeholder:"FILE"`
	Quiet    bool          `help:"No progress, only the table."`
}

func (f *jpegFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := ready(output{flag: "--json", name: f.JSON}); err != nil {
		return err
	}
	w, h, ok := parseSize(f.Size)
	if !ok {
		return exit.Errorf(exit.Usage, "--size is %q, want WxH, such as 640x480", f.Size)
	}
	cfg := jpeg.Config{W: w, H: h, Quality: f.Quality, Duration: f.Duration, Version: version, Log: progress(f.Quiet, stderr)}
	report, err := jpeg.Measure(ctx, cfg)
	if err != nil {
		return err
	}
	return deliver(stdout, stderr, report.WriteTable, output{"--json", f.JSON, report.WriteJSON})
}

// parseSize reads 640x480.
func parseSize(text string) (w, h int, ok bool) {
	a, b, _ := strings.Cut(text, "x")
	w, errW := strconv.Atoi(a)
	h, errH := strconv.Atoi(b)
	return w, h, errW == nil && errH == nil
}
