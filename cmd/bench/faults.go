package main

import (
	"context"
	"io"
	"time"

	"edgert/bench/faults"
	"edgert/internal/exit"
	"edgert/internal/program"
)

type faultsFlags struct {
	Virtual  bool           `help:"In virtual time: the same loop, schedules, policy and messages without clock, bus and network. Else in real time, on edge-rt and lean-server."`
	Faults   []string       `default:"none,loss_20,spikes,blackout" help:"Scenarios by name, or YAML files; compare: all of the published comparison; --list names them." placeholder:"NAME,…"`
	Schedule []string       `default:"drtc" help:"Contenders: a schedule and options, as in rtc+compat; --list names them. The first is the one that episodes are drawn of." placeholder:"NAME,…"`
	Episodes int            `default:"20" help:"Per cell and contender, each with the same seeds and faults; virtual: an even number, half of them start on each side."`
	Seed     uint64         `default:"1000" help:"Of the first world."`
	Duration time.Duration  `default:"10s" help:"Of an episode."`
	World    string         `default:"demo" enum:"demo,narrow" help:"demo, or narrow: less room beside the post, faster servos, two ticks late."`
	Network  *time.Duration `help:"Virtual: one way, without faults; default 4ms." placeholder:"TIME"`
	Compute  *time.Duration `help:"Virtual: of the policy, without faults; default 20ms." placeholder:"TIME"`
	Quality  int            `default:"90" help:"Of the JPEG pictures; 0: raw."`
	Limit    time.Duration  `help:"End early after this time, with the episodes played so far in every cell."`
	Workers  int            `default:"0" help:"Episodes at once; 0: one per CPU."`
	Bundle   string         `default:"testdata/demo/bundle" help:"The policy." placeholder:"DIR"`
	Plain    string         `default:"testdata/demo/plain" help:"The policy of contenders with +plain." placeholder:"DIR"`
	Bin      string         `help:"Real time: folder of edge-rt and lean-server; default: where bench is." placeholder:"DIR"`
	ORT      string         `name:"ort" env:"LEAN_SERVER_ORT" help:"ONNX Runtime's library." placeholder:"PATH"`
	List     bool           `help:"Name scenarios, schedules and options."`
	JSON     string         `name:"json" help:"Write the report as JSON to this file, - for standard output." placeholder:"FILE"`
	CSV      string         `name:"csv" help:"Virtual: write every tick of the first episode of each cell to this file, with the DRTC program's columns." placeholder:"FILE"`
	HTML     string         `name:"html" help:"Write the report as a page with plots to this file." placeholder:"FILE"`
	SVG      string         `name:"svg" help:"Virtual: write the figure of the first episode of the first cell to this file." placeholder:"FILE"`
	Quiet    bool           `help:"No progress, only the table."`
}

func (f *faultsFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if f.List {
		return faults.WriteList(stdout)
	}
	if err := f.check(); err != nil {
		return err
	}
	cfg, err := f.config(stderr)
	if err != nil {
		return err
	}
	if err := ready(output{flag: "--json", name: f.JSON}, output{flag: "--csv", name: f.CSV},
		output{flag: "--html", name: f.HTML}, output{flag: "--svg", name: f.SVG}); err != nil {
		return err
	}
	run := faults.Live
	if f.Virtual {
		run = faults.Play
	}
	report, err := run(ctx, cfg)
	if err != nil {
		return err
	}
	return deliver(stdout, stderr, report.WriteTable,
		output{"--json", f.JSON, report.WriteJSON}, output{"--csv", f.CSV, report.WriteCSV},
		output{"--html", f.HTML, report.WriteHTML}, output{"--svg", f.SVG, report.WriteSVG})
}

// check refuses flags that say nothing to what runs.
func (f *faultsFlags) check() error {
	for _, flag := range []struct {
		name, why string
		given     bool
	}{
		{"--csv", "no single tick is kept of real time", f.CSV != ""},
		{"--svg", "no single tick is kept of real time", f.SVG != ""},
		{"--network", "real time has the network that is there", f.Network != nil},
		{"--compute", "real time has the policy's own time", f.Compute != nil},
	} {
		if flag.given && !f.Virtual {
			return exit.Errorf(exit.Usage, "%s is for --virtual, and %s: add --virtual or leave it out", flag.name, flag.why)
		}
	}
	return nil
}

// The times of virtual time unless a flag names them.
const (
	defaultNetwork = 4 * time.Millisecond
	defaultCompute = 20 * time.Millisecond
)

func (f *faultsFlags) config(stderr io.Writer) (faults.Config, error) {
	bin, err := folder(f.Bin)
	if err != nil {
		return faults.Config{}, err
	}
	cfg := faults.Config{
		Episodes: f.Episodes, FirstSeed: f.Seed, Duration: f.Duration, World: f.World,
		Network: program.ValueOr(f.Network, defaultNetwork), Compute: program.ValueOr(f.Compute, defaultCompute),
		Quality: f.Quality, Workers: f.Workers, Bin: bin, Limit: f.Limit, Bundle: f.Bundle, Plain: f.Plain, ORT: f.ORT, Version: version, Log: progress(f.Quiet, stderr),
	}
	names := f.Faults
	if len(names) == 1 && names[0] == "compare" {
		names = faults.Comparison
	}
	for _, name := range names {
		s, err := faults.LoadScenario(name)
		if err != nil {
			return cfg, err
		}
		cfg.Scenarios = append(cfg.Scenarios, s)
	}
	for _, name := range f.Schedule {
		c, err := faults.ParseContender(name)
		if err != nil {
			return cfg, err
		}
		cfg.Contenders = append(cfg.Contenders, c)
	}
	return cfg, nil
}
