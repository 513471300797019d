// Bench measures edge-rt and lean-server on this machine.
//
//	bench jitter --duration 2m --html jitter.html
//
// It ends with one of the codes of internal/exit.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"edgert/bench"
	"edgert/internal/exit"
	"edgert/internal/flagfile"
)

const description = `Measures edge-rt and lean-server on this machine, beside an independent judge where there is one.

Examples:
  bench jitter                                            two minutes at 60 Hz: bare loop and whole edge beside cyclictest
  bench jitter --duration 10m --load stress --html j.html  under full load, with a page of histograms
  bench jitter --subject loop --fps 1000 --duration 1m    the bare loop alone, at 1 kHz; needs no server
  bench jitter --duration 20s --json - | jq .figure       the one figure to quote

Build first (make build) and run as root, or with ulimit -r 80: without real-time priority there is nothing to measure.

Exit codes: 0 measured, 1 broke while running, 2 wrong flag or program missing, 3 manifest, bundle or ONNX Runtime invalid, 5 real time refused.`

type cli struct {
	Config kong.ConfigFlag `help:"YAML file with any of these flags by name; flags and BENCH_* variables win over it." placeholder:"FILE"`

	Jitter  jitterFlags `cmd:"" help:"How late a tick wakes: the bare loop and the whole edge beside cyclictest, in the same minute."`
	Version struct{}    `cmd:"" help:"Print the version."`
	Part    partFlags   `cmd:"" hidden:"" help:"What bench runs as processes of their own."`
}

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

// partFlags are for bench itself.
type partFlags struct {
	Loop struct {
		FPS      float64       `name:"fps" required:""`
		Duration time.Duration `required:""`
		CPU      int           `name:"cpu" required:""`
		Require  bool
	} `cmd:""`
	Load struct {
		Name string `arg:"" enum:"cpu,alloc"`
	} `cmd:""`
}

// version is set by the Makefile.
var version = "dev"

func main() { os.Exit(int(run(os.Args[1:], os.Stdout, os.Stderr))) }

func run(args []string, stdout, stderr io.Writer) exit.Code {
	var c cli
	left := -1 // set when the parser wants to leave, after --help
	parser, err := kong.New(&c, kong.Name("bench"), kong.Description(description), kong.DefaultEnvars("BENCH"),
		kong.Configuration(flagfile.Load), kong.Writers(stdout, stderr), kong.Exit(func(code int) { left = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}))
	if err != nil {
		panic(err) // the grammar above is wrong
	}
	parsed, err := parser.Parse(args)
	if left >= 0 {
		return exit.Code(left)
	}
	if err != nil {
		code := exit.Of(err)
		if code == exit.Failure {
			code = exit.Usage
		}
		fmt.Fprintf(stderr, "bench: %v; see bench --help\n", err)
		return code
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	switch parsed.Command() {
	case "version":
		fmt.Fprintf(stdout, "bench %s\n", version)
	case "part loop":
		p := c.Part.Loop
		err = bench.LoopPart{FPS: p.FPS, Duration: p.Duration, CPU: p.CPU, Require: p.Require}.Run(stdout)
	case "part load <name>":
		err = bench.LoadPart(ctx, c.Part.Load.Name)
	default:
		err = c.Jitter.run(ctx, stdout, stderr)
	}
	return complain(stderr, err)
}

func (f *jitterFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if f.JSON == "-" && f.HTML == "-" {
		return exit.Errorf(exit.Usage, "--json - and --html -: only one of them goes to standard output")
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("bench does not find its own program: %w", err)
	}
	cfg := bench.JitterConfig{
		FPS: f.FPS, Duration: f.Duration, Slice: f.Slice, Load: f.Load, Subjects: f.Subject, CPU: f.CPU,
		Bin: f.Bin, Manifest: f.Manifest, Self: []string{self}, Version: version, Log: stderr,
	}
	if cfg.Bin == "" {
		cfg.Bin = filepath.Dir(self)
	}
	if f.Quiet {
		cfg.Log = io.Discard
	}
	report, err := bench.Jitter(ctx, cfg)
	if err != nil {
		return err
	}
	table := stdout
	if f.JSON == "-" || f.HTML == "-" {
		table = stderr
	}
	if err := report.WriteTable(table); err != nil {
		return err
	}
	if err := write("--json", f.JSON, stdout, report.WriteJSON); err != nil {
		return err
	}
	return write("--html", f.HTML, stdout, report.WriteHTML)
}

// write sends what a flag asks for to the file it names.
func write(flag, name string, stdout io.Writer, render func(io.Writer) error) error {
	switch name {
	case "":
		return nil
	case "-":
		return render(stdout)
	}
	f, err := os.Create(name)
	if err != nil {
		return exit.Errorf(exit.Usage, "%s: %w", flag, err)
	}
	if err := render(f); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", flag, err)
	}
	return f.Close()
}

// complain prints err, if there is one, in one line and returns its code.
func complain(stderr io.Writer, err error) exit.Code {
	if err != nil {
		fmt.Fprintf(stderr, "bench: %s\n", strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	}
	return exit.Of(err)
}
