package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/edge-rt/edge-rt/bench/bus"
	"github.com/edge-rt/edge-rt/bench/camera"
	"github.com/edge-rt/edge-rt/bench/faults"
	"github.com/edge-rt/edge-rt/bench/gpu"
	"github.com/edge-rt/edge-rt/bench/jitter"
	"github.com/edge-rt/edge-rt/bench/jpeg"
	"github.com/edge-rt/edge-rt/bench/latency"
	"github.com/edge-rt/edge-rt/bench/recipe"
	"github.com/edge-rt/edge-rt/bench/safety"
	"github.com/edge-rt/edge-rt/bench/serve"
	"github.com/edge-rt/edge-rt/bench/wire"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/stage"
)

// The flags of a command are the Config of its measurement, the outputs of its report, and the amount of progress
// output.

// common are the flags of every command.
type common struct {
	JSON  string `name:"json" help:"Write the report as JSON to this file, - for standard output." placeholder:"FILE"`
	Quiet bool   `help:"No progress, only the table."`
}

type jitterFlags struct {
	jitter.Config
	HTML    string `name:"html" help:"Write the report as a page with histograms to this file, - for standard output." placeholder:"FILE"`
	Compare string `help:"Measure nothing; compare two files of --json: --compare OLD.json NEW.json." placeholder:"OLD.json"`
	New     string `arg:"" optional:"" name:"NEW.json" help:"With --compare: the newer report."`
	common
}

func (f *jitterFlags) Run(ctx context.Context, s *streams) error {
	switch {
	case (f.Compare == "") != (f.New == ""):
		return exit.Errorf(exit.Usage,
			"want --compare OLD.json NEW.json, two files of bench jitter --json; got only %s",
			cmp.Or(f.Compare, f.New))
	case f.Compare != "" && f.HTML != "":
		return exit.Errorf(exit.Usage,
			"--html is the page of a measurement, and --compare measures nothing: leave one out")
	case f.Compare != "":
		return measure(ctx, s, f.common, &f.Env, &f.Config,
			func(context.Context, jitter.Config) (*jitter.Comparison, error) {
				return jitter.Compare(f.Compare, f.New)
			})
	}
	f.Manifest = cmp.Or(f.Manifest, stage.DemoManifest("testdata/demo", f.Robot))
	userfile.Shipped(&f.Manifest)
	return measure(ctx, s, f.common, &f.Env, &f.Config, jitter.Measure,
		output[*jitter.Report]{"--html", f.HTML, (*jitter.Report).WriteHTML})
}

type busFlags struct {
	bus.Config
	common
}

func (f *busFlags) Run(ctx context.Context, s *streams) error {
	return measure(ctx, s, f.common, &f.Env, &f.Config, bus.Measure)
}

type wireFlags struct {
	wire.Config
	common
}

func (f *wireFlags) Run(ctx context.Context, s *streams) error {
	return measure(ctx, s, f.common, &f.Env, &f.Config, wire.Measure)
}

type cameraFlags struct {
	camera.Config
	common
}

func (f *cameraFlags) Run(ctx context.Context, s *streams) error {
	return measure(ctx, s, f.common, &f.Env, &f.Config, camera.Measure)
}

type jpegFlags struct {
	jpeg.Config
	common
}

func (f *jpegFlags) Run(ctx context.Context, s *streams) error {
	return measure(ctx, s, f.common, &f.Env, &f.Config, jpeg.Measure)
}

type gpuFlags struct {
	gpu.Config
	Markdown string `help:"Write the tables as Markdown to this file, - for standard output." placeholder:"FILE"`
	common
}

func (f *gpuFlags) Run(ctx context.Context, s *streams) error {
	for i := range f.Bundle {
		userfile.Shipped(&f.Bundle[i])
	}
	return measure(ctx, s, f.common, &f.Env, &f.Config, gpu.Measure,
		output[*gpu.Report]{"--markdown", f.Markdown, (*gpu.Report).WriteMarkdown})
}

type serveFlags struct {
	serve.Config
	common
}

func (f *serveFlags) Run(ctx context.Context, s *streams) error {
	userfile.Shipped(&f.Bundle)
	broken := ""
	err := measure(ctx, s, f.common, &f.Env, &f.Config,
		func(ctx context.Context, cfg serve.Config) (*serve.Report, error) {
			r, err := serve.Measure(ctx, cfg)
			if err == nil {
				broken = r.Steady.Broken()
			}
			return r, err
		})
	if err == nil && broken != "" {
		err = exit.Errorf(exit.Failure, "not steady: %s", broken)
	}
	return err
}

type recipeFlags struct {
	recipe.Config
	common
}

func (f *recipeFlags) Run(ctx context.Context, s *streams) error {
	userfile.Shipped(&f.Manifest, &f.Calibration)
	return measure(ctx, s, f.common, &f.Env, &f.Config, recipe.Measure)
}

type faultsFlags struct {
	Virtual  bool     `help:"In virtual time: the same loop, schedules, policy and messages without clock, bus and network. Otherwise in real time, with edge-rt and lean-server."`
	Faults   []string `help:"Scenarios by name, or YAML files; compare: all of the published comparison; --list names them; default: none,loss_20,spikes,blackout." placeholder:"NAME,…"`
	Record   string   `help:"In virtual time: use the network and the server's times of this record of edge-rt instead of scenarios." placeholder:"FILE"`
	Schedule []string `default:"drtc" help:"Schedules to compare, with options, as in rtc+compat; --list names them. Plots show the first." placeholder:"NAME,…"`
	faults.Config
	List   bool   `help:"Name scenarios, schedules and options."`
	CSV    string `name:"csv" help:"In virtual time: write every tick of the first episode of each cell to this file, with the DRTC program's columns." placeholder:"FILE"`
	HTML   string `name:"html" help:"Write the report as a page with plots to this file." placeholder:"FILE"`
	SVG    string `name:"svg" help:"In virtual time: write a figure of the first episode of the first cell to this file." placeholder:"FILE"`
	Queues string `help:"In virtual time: write a figure of the remaining actions over time, for every schedule in the first scenario, to this file." placeholder:"FILE"`
	common
}

func (f *faultsFlags) Run(ctx context.Context, s *streams) error {
	userfile.Shipped(&f.Bundle, &f.Plain)
	if f.List {
		return faults.WriteList(s.out)
	}
	// --record has the times of the network and of the server, which only virtual time can use
	f.Virtual = f.Virtual || f.Record != ""
	for _, flag := range []struct{ name, file string }{{"--csv", f.CSV}, {"--svg", f.SVG},
		{"--queues", f.Queues}} {
		if flag.file != "" && !f.Virtual {
			return exit.Errorf(exit.Usage,
				"%s is for --virtual, and no single tick is kept of real time: add --virtual or leave it out",
				flag.name)
		}
	}
	if err := f.load(); err != nil {
		return err
	}
	play := faults.Live
	if f.Virtual {
		play = faults.Play
	}
	return measure(ctx, s, f.common, &f.Env, &f.Config, play,
		output[*faults.Report]{"--csv", f.CSV, (*faults.Report).WriteCSV},
		output[*faults.Report]{"--html", f.HTML, (*faults.Report).WriteHTML},
		output[*faults.Report]{"--svg", f.SVG, (*faults.Report).WriteSVG},
		output[*faults.Report]{"--queues", f.Queues, (*faults.Report).WriteQueues})
}

func (f *faultsFlags) load() error {
	names := f.Faults
	switch {
	case f.Record != "" && names != nil:
		return exit.Errorf(exit.Usage, "--record is in place of --faults: leave one of them out")
	case f.Record != "":
		if err := f.LoadRecord(f.Record); err != nil {
			return err
		}
	case names == nil:
		names = []string{"none", "loss_20", "spikes", "blackout"}
	case len(names) == 1 && names[0] == "compare":
		names = faults.Comparison
	}
	for _, name := range names {
		s, err := faults.LoadScenario(name)
		if err != nil {
			return fmt.Errorf("--faults: %w", err)
		}
		f.Scenarios = append(f.Scenarios, s)
	}
	for _, name := range f.Schedule {
		c, err := faults.ParseContender(name)
		if err != nil {
			return err
		}
		f.Contenders = append(f.Contenders, c)
	}
	return nil
}

type latencyFlags struct {
	latency.Config
	common
}

func (f *latencyFlags) Run(ctx context.Context, s *streams) error {
	userfile.Shipped(&f.Bundle)
	return measure(ctx, s, f.common, &f.Env, &f.Config, latency.Measure)
}

type safetyFlags struct {
	safety.Config
	List     bool   `help:"Name the faults."`
	Markdown string `help:"Write the table of docs/lab/safety.md to this file, - for standard output." placeholder:"FILE"`
	Into     string `help:"Write the table into this page, in place of the text below its heading \"The table\", or \"The table of bi_so101\"." placeholder:"FILE"`
	common
}

func (f *safetyFlags) Run(ctx context.Context, s *streams) error {
	userfile.Shipped(&f.Tree)
	if f.List {
		return safety.WriteList(s.out)
	}
	if f.Into != "" {
		if err := (&safety.Report{Robot: f.Robot, Apart: f.Apart}).WriteInto(f.Into); err != nil {
			return err
		}
	}
	broken := 0
	run := func(ctx context.Context, cfg safety.Config) (*safety.Report, error) {
		report, err := safety.Run(ctx, cfg)
		if err == nil {
			broken = report.Broken()
		}
		if err == nil && f.Into != "" {
			err = report.WriteInto(f.Into)
		}
		return report, err
	}
	err := measure(ctx, s, f.common, &f.Env, &f.Config, run,
		output[*safety.Report]{"--markdown", f.Markdown, (*safety.Report).WriteMarkdown})
	if err == nil && broken > 0 {
		err = exit.Errorf(exit.Failure, "%d violations of the rules in docs/lab/safety.md", broken)
	}
	return err
}
