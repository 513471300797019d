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
	"strings"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/jitter"
	"github.com/edge-rt/edge-rt/bench/recipe"
	"github.com/edge-rt/edge-rt/bench/wire"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/program"
)

const description = `Measures edge-rt and lean-server on this machine, beside an independent judge where there is one.

Examples:
  bench jitter                                            two minutes at 60 Hz: bare loop, whole edge and cyclictest
  bench jitter --duration 10m --load stress --html j.html  under full load, with a page of histograms
  bench jitter --duration 1h --load stress --json new.json --html new.html   the tail, p99.9 and p99.99 with intervals
  bench jitter --compare old.json new.json                what changed beyond the spread of the slices
  bench jitter --lerobot ~/lerobot/.venv/bin/python       LeRobot's loop and ours
  bench jitter --subject loop --fps 1000 --duration 1m    the bare loop alone, at 1 kHz; needs no server
  bench jitter --duration 20s --json - | jq .figure       the one figure to quote
  bench faults --virtual --faults compare --html f.html   schedules under identical faults, with plots
  bench latency --duration 1m                             stages from a picture to the motors, over loopback, LAN, Wi-Fi and 4G
  bench bus --robot koch --baud 4000000                   six Dynamixel motors at 4 Mbaud, simulated
  bench bus --bus /dev/ttyACM0                            a real SO-101, limp
  bench wire --duration 2m                                round trips and throughput of our Zenoh and the official one
  bench jpeg                                              ms for a picture, in turn with tjbench
  bench camera --duration 5m                              the tick with two synthetic cameras and alone, in turn
  bench camera --camera front=/dev/video0                 capture to wire and CPU of a real one
  bench gpu --bundle act,smolvla --markdown gpu.md         policies on the GPU and the CPU, batches of 1 to 16 (docs/lab/gpu.md)
  bench serve --robots 1,32 --duration 2m                 robots with real messages at a real server, and ONNX Runtime alone
  bench safety --only blip-all,unplug                     the real programs on a simulated arm, one fault at a time
  bench recipe --load stress                              which class the other threads should have, under full load

Build first (make build), and run jitter as root, or with ulimit -r 80: it needs real-time priority.

Exit codes: 0 measured, 1 broke while running, 2 wrong flag or program missing, 3 manifest, bundle or ONNX Runtime invalid, 5 real time refused.`

// brief is the short help, which fits on a screen. A test compares its commands with the grammar.
const brief = `bench measures edge-rt and lean-server on this machine.

  bench jitter                                 two minutes: how late a tick wakes, and cyclictest
  bench jitter --load stress --html j.html     under full load, with a page of histograms

Commands:
  jitter   how late a tick wakes: the bare loop and the whole edge
  bus      a cycle of the servo bus, simulated or real (--bus PORT, limp)
  wire     round trips and throughput of our Zenoh and the official one
  faults   every schedule under identical faults
  latency  how long each stage from a picture to the motors takes, over four links
  safety   what the arm does in each of some fifty single faults
  recipe   how best to schedule the edge's other threads
  camera   how old pictures are when sent
  gpu      how long policies take on each device
  serve    how many chunks a second lean-server gives
  jpeg     what encoding and decoding a picture costs
  version  print the version

Each command has --json FILE (- for standard output) and --quiet; some have --html FILE.
--config FILE has flags by name, in YAML; also as BENCH_… variables. jitter needs real-time
priority: run it as root, or after ulimit -r 80.

More: bench COMMAND --help (its flags), --help-all (examples, exit codes), --version
`

type cli struct {
	program.Common
	Config program.ConfigFile `help:"YAML file with any of these flags by name; flags and BENCH_* variables win over it." placeholder:"FILE"`

	Jitter  jitterFlags    `cmd:"" help:"How late a tick wakes: the bare loop, the whole edge and cyclictest, in the same minute."`
	Bus     busFlags       `cmd:"" help:"How long a sync write and sync read take, compared with the bytes' own time and a C program."`
	Wire    wireFlags      `cmd:"" help:"Round trips and throughput of our Zenoh, the official one and a plain TCP echo, in turn."`
	Faults  faultsFlags    `cmd:"" help:"All schedules under identical faults: drop, duplicate, reorder, spikes, blackout, restart."`
	Latency latencyFlags   `cmd:"" help:"How long each stage from a picture to the motors takes, from edge-rt's record and lean-server's audit, over simulated links."`
	Safety  safetyFlags    `cmd:"" help:"What the arm does in each of some fifty single faults; checks every byte to its servos against nine rules."`
	Recipe  recipeFlags    `cmd:"" help:"How best to schedule the edge's other threads, with its garbage collector on and off, under four loads."`
	Camera  cameraFlags    `cmd:"" help:"How old pictures are when sent, what cameras cost, and whether they delay the tick."`
	GPU     gpuFlags       `cmd:"" name:"gpu" help:"How long exported policies take on each device by batch size, and one robot's request, compared with other programs."`
	Serve   serveFlags     `cmd:"" help:"How many chunks a second lean-server gives robots with real messages and pictures, compared with ONNX Runtime alone."`
	JPEG    jpegFlags      `cmd:"" name:"jpeg" help:"What encoding, decoding and passing on a picture costs, compared with libjpeg-turbo's tjbench."`
	Version versionCommand `cmd:"" help:"Print the version."`
	Part    partFlags      `cmd:"" hidden:"" help:"What bench runs as separate processes."`
}

// partFlags are the commands with which bench starts itself as a child process.
type partFlags struct {
	Loop jitter.LoopPart `cmd:""`
	Edge recipe.Part     `cmd:""`
	Load bench.LoadPart  `cmd:""`
	Wire wire.End        `cmd:""`
}

// version is set by the Makefile.
var version = "dev"

func main() {
	program.IgnoreSIGPIPE()
	os.Exit(int(run(os.Args[1:], os.Stdout, os.Stderr)))
}

func run(args []string, stdout, stderr io.Writer) exit.Code {
	stdout = program.NewOutput(stdout)
	var c cli
	p := program.Program{
		Name:        "bench",
		Description: description,
		Brief:       brief,
		Version:     "bench " + version,
		Env:         "BENCH",
		Stdout:      stdout,
		Stderr:      stderr,
	}
	parsed, code, done := p.Parse(&c, args)
	if done {
		return code
	}
	ctx, stop := program.Interruptible()
	defer stop()
	if strings.HasPrefix(parsed.Command(), "part wire") {
		stop() // the next signal ends the process at once, without a clean-up
		ctx = context.Background()
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	parsed.BindTo(os.Stdin, (*io.Reader)(nil))
	parsed.BindTo(stdout, (*io.Writer)(nil))
	return p.Report(parsed.Run(&streams{stdout, stderr, args}))
}

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(stdout io.Writer) error {
	_, err := fmt.Fprintf(stdout, "bench %s\n", version)
	return err
}
