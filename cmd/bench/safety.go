package main

import (
	"context"
	"io"
	"time"

	"edgert/bench/safety"
	"edgert/internal/exit"
)

type safetyFlags struct {
	Only      []string      `help:"Play these faults; --list names them. Default: all." placeholder:"NAME,…"`
	Soak      time.Duration `help:"Instead: faults at random for so long, on one arm, with recovery in between." placeholder:"TIME"`
	Seed      uint64        `default:"1" help:"Of --soak."`
	Workers   int           `default:"2" help:"Runs at once."`
	Tree      string        `default:"testdata/demo" help:"Folder of the demo bundles." placeholder:"DIR"`
	Bin       string        `help:"Folder of edge-rt and lean-server; default: where bench is." placeholder:"DIR"`
	List      bool          `help:"Name the faults."`
	JSON      string        `name:"json" help:"Write the report as JSON to this file, - for standard output." placeholder:"FILE"`
	Markdown  string        `help:"Write the table as docs/safety.md has it to this file, - for standard output." placeholder:"FILE"`
	Into      string        `help:"Write the table into this page, in place of what is below its heading \"The table\"." placeholder:"FILE"`
	StepClock bool          `help:"Play clock-step too: it sets this machine's wall clock for 2 s (root)."`
	Trace     string        `help:"Write all that the servos heard and did, a file for each fault, to this folder." placeholder:"DIR"`
	Quiet     bool          `help:"No progress, only the table."`
}

func (f *safetyFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if f.List {
		return safety.WriteList(stdout)
	}
	bin, err := folder(f.Bin)
	if err != nil {
		return err
	}
	if err := ready(output{flag: "--json", name: f.JSON}, output{flag: "--markdown", name: f.Markdown}); err != nil {
		return err
	}
	if f.Into != "" {
		if err := safety.CheckInto(f.Into); err != nil {
			return err
		}
	}
	cfg := safety.Config{Bin: bin, Tree: f.Tree, Only: f.Only, Workers: f.Workers, Version: version, Trace: f.Trace, StepClock: f.StepClock, Log: progress(f.Quiet, stderr)}
	play := safety.Run
	if f.Soak != 0 {
		play = func(ctx context.Context, cfg safety.Config) (*safety.Report, error) {
			return safety.Soak(ctx, cfg, f.Soak, f.Seed)
		}
	}
	report, err := play(ctx, cfg)
	if err != nil {
		return err
	}
	if f.Into != "" {
		if err := report.WriteInto(f.Into); err != nil {
			return err
		}
	}
	if err := deliver(stdout, stderr, report.WriteTable, output{"--json", f.JSON, report.WriteJSON}, output{"--markdown", f.Markdown, report.WriteMarkdown}); err != nil {
		return err
	}
	if n := report.Broken(); n > 0 {
		return exit.Errorf(exit.Failure, "%d violations of the rules in docs/safety.md", n)
	}
	return nil
}
