package main

import (
	"context"
	"io"
	"path/filepath"
	"time"

	"edgert/bench/wire"
)

type wireFlags struct {
	Duration time.Duration `default:"1m" help:"In all; starting the programs comes on top."`
	Size     []int         `default:"64,4096,102400" help:"Bytes of a message."`
	Python   string        `default:".venv/bin/python" help:"An interpreter with the official wheel eclipse-zenoh; it is also the router." placeholder:"FILE"`
	Rust     string        `help:"The ping on the official Rust implementation, which make rust-ping builds; default: rust-ping where bench is." placeholder:"FILE"`
	JSON     string        `name:"json" help:"Write the report as JSON to this file, - for standard output." placeholder:"FILE"`
	Quiet    bool          `help:"No progress, only the table."`
}

// wireEnd is one end of a pair.
type wireEnd struct {
	Subject  string `arg:"" enum:"native,tcp"`
	Role     string `arg:"" enum:"ping,pong"`
	How      string `arg:"" enum:"listen,connect"`
	Endpoint string `arg:""`
	Key      string `arg:""`
}

func (e wireEnd) run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	return wire.End{Subject: e.Subject, Role: e.Role, How: e.How, Endpoint: e.Endpoint, Key: e.Key}.Run(ctx, stdin, stdout)
}

func (f *wireFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := ready(output{flag: "--json", name: f.JSON}); err != nil {
		return err
	}
	self, err := ownPath()
	if err != nil {
		return err
	}
	cfg := wire.Config{
		Duration: f.Duration, Sizes: f.Size, Python: f.Python, Rust: f.Rust,
		Self: []string{self}, Version: version, Log: progress(f.Quiet, stderr),
	}
	if cfg.Rust == "" {
		cfg.Rust = filepath.Join(filepath.Dir(self), "rust-ping")
	}
	report, err := wire.Measure(ctx, cfg)
	if err != nil {
		return err
	}
	return deliver(stdout, stderr, report.WriteTable, output{"--json", f.JSON, report.WriteJSON})
}
