// Lean-server serves one exported policy to many robots.
//
//	lean-server --manifest server.yaml
//
// It ends with one of the codes of internal/exit.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/internal/program"
	"github.com/edge-rt/edge-rt/internal/terminal"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/capacity"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire/network"
	"github.com/edge-rt/edge-rt/wire/otlp"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
)

const description = `Serves one exported policy to many robots.

Only the newest observation of each robot is answered, robots take turns, and a robot that cannot take its chunk never delays another. The manifest, a YAML file, names the policy, the robots and the endpoints.

Examples:
  lean-server --demo                                                       the demo policy, on this machine only
  lean-server --demo --robot bi_so101                                      the same for two arms
  lean-server --manifest server.yaml --listen tcp/0.0.0.0:7447             for robots on the network, without a router
  lean-server --manifest server.yaml --connect tls/router:7447             at a Zenoh router, certificates in the manifest
  lean-server --manifest server.yaml --model.device cuda                   any key of the manifest, by its path
  lean-server check --manifest server.yaml                                 report the service and each setting
  lean-server --manifest server.yaml --audit - | jq .service_ms            one line for each request
  lean-server replay captures --manifest server.yaml                       answer captured requests again, compare
  lean-server plan --manifest server.yaml --round-trip 5ms,60ms            how many robots this machine can serve
  lean-server rollout set --bundle new --share 0.1 --manifest server.yaml  give a new model to a tenth of the robots
  lean-server rollout back --manifest server.yaml                          take it back
  lean-server acl --manifest server.yaml -o acl.json5                      access control of an official router, for its clients
  curl localhost:9100/readyz                                               503 until robots get chunks
  curl localhost:9100/metrics                                              Prometheus

Exit codes: 0 stopped by a signal, 1 failed while running or a port is in use, 2 wrong flag, 3 manifest, bundle or ONNX Runtime invalid or without the GPU part, 4 no router answers, no GPU was found, or the policy's own server is absent.`

// brief is the short help, which fits on a screen. A test compares its commands and flags with the grammar.
const brief = `lean-server serves one exported policy to many robots.

  lean-server --manifest server.yaml            serve the manifest's policy
  lean-server check --manifest server.yaml      load everything, report the service
  lean-server --demo                            serve the demo policy to a simulated arm

Commands:
  serve    serve until Ctrl-C or SIGTERM (the default command)
  check    load everything, run the bundle's test inputs, report the service
  plan     how many robots this machine feeds
  replay   answer captured requests again and compare
  rollout  give a new model to a share of the robots, and take it back
  acl      print the access control for an official Zenoh router
  version  print the version

Flags:
  --manifest FILE       settings of the service; see examples/server.yaml
  --demo                no manifest: the demo policy, for a simulated arm
  --robot NAME          with --demo: so101, bi_so101 or lekiwi
  --listen ENDPOINT     where to listen, such as tcp/0.0.0.0:7447, instead of the manifest's
  --connect ENDPOINT    routers to dial, instead of the manifest's
  --KEY VALUE           any key of the manifest by its path, such as model.device
  --health-port PORT    a page, /readyz and /metrics over HTTP; 0: off
  --ort PATH            ONNX Runtime's library, if the search does not find it
  --audit FILE          a JSON line for each request; --json FILE, the summary
  --quiet               no log
  --config FILE         any flags by name, in YAML; also as LEAN_SERVER_… variables

More: lean-server serve --help (all flags), lean-server COMMAND --help, --help-all, --version
`

type cli struct {
	program.Common `embed:""`
	flags          `embed:""`

	Serve  struct{} `cmd:"" default:"1" help:"Serve until SIGINT or SIGTERM (the default command)."`
	Check  struct{} `cmd:"" uses:"manifest,ort,json,listen,connect,health-port,quiet" help:"Load everything, run the bundle's test inputs (golden sets), and report the service."`
	Replay struct {
		Dir       string  `arg:"" optional:"" help:"Folder of the captured requests; default: the manifest's debug.capture_dir."`
		Tolerance float64 `range:"0..1;0 requires equal bytes" help:"Largest accepted difference of a chunk's values, in units of chunk_model: for inexact devices and batches."`
	} `cmd:"" uses:"manifest,ort,json,quiet" help:"Answer captured requests again, compare the answers byte for byte, and list those that differ."`
	Plan struct {
		capacity.Fleet
	} `cmd:"" uses:"manifest,ort,json,quiet" help:"Measure inferences on this machine, and compute how many robots of given rates and links a server can serve."`
	Rollout rolloutArgs `cmd:"" uses:"manifest,json,health-port,quiet" help:"Show or change the roll-out of a new model, in the manifest's block rollout, which a running server reads again."`
	Acl     struct {
		Output string `short:"o" help:"Write to this file instead of standard output." placeholder:"FILE"`
	} `cmd:"" uses:"manifest,quiet" help:"Print the access control for an official Zenoh router that limits each of the manifest's clients to its own keys."`
	Version struct{} `cmd:"" uses:"" help:"Print the version and which transport is built in."`
}

type flags struct {
	Config program.ConfigFile `help:"YAML file with any of these flags by name; flags and LEAN_SERVER_* variables win over it." placeholder:"FILE"`

	Manifest   string   `help:"YAML file with the service's settings; examples/server.yaml is a commented example, testdata/demo/server.yaml the demo's." placeholder:"FILE"`
	Demo       bool     `help:"Serve the demo policy to a simulated arm on this machine: edge-rt --bus sim --camera top=sim."`
	Robot      string   `help:"With --demo, the simulated robot: so101, bi_so101 or lekiwi; default: so101." placeholder:"NAME"`
	Listen     []string `help:"Endpoint for robots and routers to connect to, instead of the manifest's listen_endpoints; repeat for more." placeholder:"tcp/HOST:PORT"`
	Connect    []string `help:"Routers to dial, instead of the manifest's connect_endpoints; repeat for more." placeholder:"tcp/HOST:PORT"`
	HealthPort *int     `range:"0..65535;0 is off" help:"HTTP port of /healthz, /readyz and /metrics, instead of the manifest's; 0: off." placeholder:"PORT"`
	ORT        string   `name:"ort" help:"ONNX Runtime library, or its folder; default: $EDGERT_ORT, .cache, .venv, the system's." placeholder:"PATH"`
	Traces     string   `help:"Send each request as a trace to this OpenTelemetry collector, by OTLP over HTTP." placeholder:"http://HOST:4318"`
	Audit      string   `help:"Write one JSON line for each request to this file, - for standard output; default: no audit." placeholder:"FILE"`
	JSON       string   `name:"json" help:"Write the summary as JSON to this file, - for standard output." placeholder:"FILE"`
	Quiet      bool     `help:"No log, only the summary and errors."`

	overrides []manifest.Override
	wrote     bool // JSON was written to --json
}

// version is set by the Makefile.
var version = "dev"

func versionLine() string {
	return fmt.Sprintf("lean-server %s, transport %s", version, network.Transport)
}

func main() { os.Exit(int(run(os.Args[1:], os.Stdout))) }

func run(args []string, stdout io.Writer) exit.Code {
	printed := program.NewOutput(stdout)
	stdout = plain.Writer(printed) // the names of bundles, audit files and robots are foreign text
	var c cli
	p := program.Program{
		Name:        "lean-server",
		Description: description,
		Brief:       brief,
		Version:     versionLine(),
		Env:         "LEAN_SERVER",
		Stdout:      printed,
		Stderr:      os.Stderr,
		Once:        []string{"manifest"},
	}
	if err := loadEnvironment(args, os.Stderr); err != nil {
		return report(os.Stderr, err)
	}
	args, overrides, err := manifest.Overrides(args, func(flag string) bool { return flag == "health-port" })
	if err != nil {
		return report(os.Stderr, exit.With(exit.Usage, err))
	}
	ctx, code, done := p.Parse(&c, args)
	if done {
		return code
	}
	stderr := terminal.New(os.Stderr) // a reader of standard error that stops must not block the server
	defer stderr.Flush()
	if ctx.Command() == "version" {
		_, err := fmt.Fprintln(stdout, versionLine())
		return report(stderr, err)
	}
	c.overrides = overrides
	repeated(overrides, plain.Writer(os.Stderr))
	command, _, _ := strings.Cut(ctx.Command(), " ") // the command without its arguments
	if command != "serve" {
		c.Audit, c.Traces = "", "" // a variable or --config may set these two, but only serve uses them
	}
	cfg, err := c.config()
	switch {
	case err != nil:
	case command == "check":
		err = c.check(cfg, stdout, stderr)
	case command == "plan":
		err = c.plan(cfg, stdout)
	case command == "replay":
		err = c.replay(cfg, stdout)
	case command == "rollout":
		err = c.rollout(cfg, stdout)
	case command == "acl":
		err = c.acl(cfg, stdout)
	default:
		err = c.serve(cfg, stdout, stderr)
	}
	if err != nil && !c.wrote && (c.JSON == "-" || codeOf(err) != exit.Usage) {
		end := server.Ending{Code: int(codeOf(err)), Reason: program.Line(err)}
		err = errors.Join(err, c.writeJSON(map[string]server.Ending{"exit": end}, stdout))
	}
	return report(stderr, cmp.Or(err, printed.Failed()))
}

// demos are the manifests of --demo.
var demos = map[string]string{"": "server", "so101": "server", "bi_so101": "bi_so101", "lekiwi": "lekiwi"}

// demo names the manifest of --demo.
func (f *flags) demo() error {
	if !f.Demo && f.Robot != "" {
		return exit.Errorf(exit.Usage,
			"--robot %s chooses the robot of --demo: a manifest's policy names its own joints",
			f.Robot)
	}
	name, known := demos[f.Robot]
	if !known {
		return exit.Errorf(exit.Usage, "--robot is %q, and --demo has policies for so101, bi_so101 and lekiwi", f.Robot)
	}
	if !f.Demo {
		return nil
	}
	f.Manifest = "testdata/demo/" + name + ".yaml"
	userfile.Shipped(&f.Manifest)
	if _, err := os.Stat(f.Manifest); err != nil {
		prefix, _ := userfile.Prefix() // empty: unknown
		return exit.Errorf(exit.Config,
			"--demo: there is neither %s/share/edge-rt/demo, which an installation has, nor "+
				"testdata/demo, which a clone has: run the installed program, or this one in a clone", prefix)
	}
	return nil
}

// repeated prints a warning for each manifest key that the command line sets to several values.
func repeated(overrides []manifest.Override, stderr io.Writer) {
	last := map[string]manifest.Override{}
	for _, o := range overrides {
		if before, again := last[o.Key]; again && before != o {
			fmt.Fprintf(stderr, "lean-server: --%s is given more than once (%s, %s): the last one counts\n", o.Key,
				before.Shown(), o.Shown())
		}
		last[o.Key] = o
	}
}

// config returns the manifest with the flags' settings.
func (f *flags) config() (manifest.Config, error) {
	if f.Demo && f.Manifest != "" {
		return manifest.Config{}, exit.Errorf(exit.Usage,
			"--demo has a manifest of its own: give it or --manifest, not both")
	}
	if err := f.demo(); err != nil {
		return manifest.Config{}, err
	}
	if f.Manifest == "" {
		return manifest.Config{}, exit.Errorf(exit.Usage,
			"--manifest is missing: name the YAML file of the service, such as server.yaml; --demo serves the demo's "+
				"policy")
	}
	if err := otlp.Check(f.Traces); err != nil {
		return manifest.Config{}, exit.Errorf(exit.Usage, "--traces: %w", err)
	}
	cfg, err := manifest.Load(f.Manifest, f.overrides...)
	if err != nil {
		return cfg, err
	}
	for flag, endpoints := range map[string][]string{"--listen": f.Listen, "--connect": f.Connect} {
		for _, e := range endpoints {
			if _, err := endpoint.Parse(e, endpoint.Security{}); err != nil {
				return cfg, exit.Errorf(exit.Usage, "%s: %w", flag, err)
			}
		}
	}
	if len(f.Listen) > 0 {
		cfg.Zenoh.ListenEndpoints = f.Listen
		cfg.Given("zenoh.listen_endpoints", "--listen")
	}
	if len(f.Connect) > 0 {
		cfg.Zenoh.ConnectEndpoints = f.Connect
		cfg.Given("zenoh.connect_endpoints", "--connect")
	}
	if f.HealthPort != nil {
		cfg.HealthPort = *f.HealthPort
		cfg.Given("health_port", "--health-port")
	}
	cfg.Runtime = f.ORT
	cfg.Audit, cfg.Traces = f.Audit, f.Traces
	cfg.Version = version
	for _, out := range [][2]string{{"--json", f.JSON}, {"--audit", f.Audit}} {
		if out[1] != "" && out[1] != "-" { // checked now, not only after a run of days
			err = errors.Join(err, program.Writable(out[0], out[1]))
		}
	}
	return cfg, err
}

// serve runs the server until a signal; a second signal ends the process at once.
func (f *flags) serve(cfg manifest.Config, stdout io.Writer, stderr *terminal.Terminal) error {
	log, missing := slog.New(slog.DiscardHandler), server.LogMissing{Lost: stderr.Lost}
	if !f.Quiet {
		lines := terminal.NewLimiter(terminal.NewLines(stderr, slog.LevelInfo), rt.KernelClock())
		log, missing.LeftOut = slog.New(lines), lines.LeftOut
	}
	ctx, stop := program.Interruptible()
	defer stop()
	context.AfterFunc(ctx, stop)
	summary, err := server.Run(ctx, cfg, log, missing)
	if summary.Service == "" {
		return err
	}
	summary.Exit.Code, summary.Exit.Reason = int(codeOf(err)), "stopped"
	if err != nil {
		summary.Exit.Reason = err.Error()
	}
	var table bytes.Buffer
	summary.Print(&table)
	var printed error
	if f.JSON == "-" || f.Audit == "-" {
		stderr.Write(table.Bytes())
	} else {
		stderr.Flush() // stderr and stdout may be the same terminal
		printed = terminal.Print(stdout, table.Bytes())
	}
	switch {
	case errors.Is(printed, syscall.EPIPE):
		printed = nil // lean-server | head is not an error: the server has served until its end
	case printed != nil:
		printed = fmt.Errorf("standard output: %w", printed)
	}
	return errors.Join(err, printed, f.writeJSON(summary, stdout))
}

func (f *flags) check(cfg manifest.Config, stdout, stderr io.Writer) error {
	found, err := server.Examine(cfg, func(text string) { fmt.Fprintln(stderr, text) })
	if err != nil {
		return err
	}
	if f.JSON != "-" {
		err = found.Print(stdout)
	}
	return errors.Join(err, f.writeJSON(found, stdout))
}

func (c *cli) plan(cfg manifest.Config, stdout io.Writer) error {
	planned, err := server.Plan(cfg, c.Plan.Fleet)
	if err != nil {
		return err
	}
	if c.JSON != "-" {
		err = planned.Print(stdout)
	}
	return errors.Join(err, c.writeJSON(planned, stdout))
}

func (c *cli) replay(cfg manifest.Config, stdout io.Writer) error {
	dir := cmp.Or(c.Replay.Dir, cfg.Debug.CaptureDir)
	if dir == "" {
		return exit.Errorf(exit.Usage, "replay needs the folder of the captured requests: lean-server replay DIR, or "+
			"a manifest with debug.capture_dir")
	}
	replayed, err := server.Replay(cfg, dir, c.Replay.Tolerance)
	if err != nil {
		return err
	}
	if c.JSON != "-" {
		err = replayed.Print(stdout)
	}
	if !replayed.OK() {
		err = errors.Join(err, fmt.Errorf("replay: %d of %d captured requests are answered differently now, %d are "+
			"unreadable, %d were not compared",
			replayed.Otherwise(), replayed.Requests, replayed.Unreadable,
			replayed.Requests-replayed.Exact-replayed.Within-replayed.Otherwise()))
	}
	return errors.Join(err, c.writeJSON(replayed, stdout))
}

// acl prints a router's rules, or writes them to --output. If acl fails, it writes no part of the
// rules.
func (c *cli) acl(cfg manifest.Config, stdout io.Writer) error {
	var text bytes.Buffer
	if err := server.RouterRules(cfg, &text); err != nil {
		return err
	}
	if c.Acl.Output == "" {
		return terminal.Print(stdout, text.Bytes())
	}
	if err := userfile.Write(c.Acl.Output, text.Bytes()); err != nil {
		return exit.Errorf(exit.Usage, "--output: %w", err)
	}
	return nil
}

func (f *flags) writeJSON(v any, stdout io.Writer) error {
	if f.JSON == "" {
		return nil
	}
	f.wrote = true
	text, err := json.MarshalIndent(v, "", "  ")
	text = append(text, '\n')
	switch {
	case err != nil:
	case f.JSON == "-":
		err = terminal.Print(stdout, text)
	default:
		err = userfile.Write(f.JSON, text)
	}
	if err != nil {
		return fmt.Errorf("--json: %w", err)
	}
	return nil
}

// codeOf returns the exit code for an error of package server, such as exit.Config for an error that an operator must
// correct. A port in use gets exit.Failure, because the port may be free in a moment.
func codeOf(err error) exit.Code {
	for _, known := range []struct {
		err  error
		code exit.Code
	}{
		{manifest.ErrInvalid, exit.Config}, {policy.ErrBundle, exit.Config}, {policy.ErrGolden, exit.Config},
		{policy.ErrNoRuntime, exit.Config}, {policy.ErrNoProvider, exit.Config},
		{server.ErrAbsent, exit.Absent}, {policy.ErrNoDevice, exit.Absent}, {policy.ErrAway, exit.Absent},
		{audit.ErrNoCaptures, exit.Usage},
		{server.ErrOtherBundle, exit.Usage},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	return exit.Of(err)
}

// report prints err, if it is not nil, in one line and returns its exit code. Only the instructions
// for getting ONNX Runtime keep their line breaks, so that a person can paste them.
func report(stderr io.Writer, err error) exit.Code {
	if err != nil {
		text := err.Error()
		if !errors.Is(err, policy.ErrNoRuntime) {
			text = program.Line(err)
		}
		fmt.Fprintf(stderr, "lean-server: %s\n", text)
	}
	return codeOf(err)
}
