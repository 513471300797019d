// Package latency measures the stages from a picture to the motors over links of different kinds:
// edge-rt and lean-server run on a simulated arm, netfault delays their messages, and package why
// joins edge-rt's record with the server's audit.
package latency

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/faults"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/record/why"
	"github.com/edge-rt/edge-rt/stage"
)

// Config configures a measurement; its tags are the flags of `bench latency`.
type Config struct {
	Links    []string      `default:"none,lan,wifi,cellular" help:"Scenarios of bench faults, or YAML files; none is this machine's loopback." placeholder:"NAME,…"`
	Duration time.Duration `range:"5s..1h" default:"30s" help:"Of the run over each link."`
	FPS      int           `name:"fps" range:"1..1000" default:"60" help:"Ticks per second."`
	Schedule string        `default:"drtc" help:"A contender of bench faults, as in drtc+s_min=20+jpeg=60."`
	Bundle   string        `default:"testdata/demo/bundle" help:"The policy." placeholder:"DIR"`
	Bin      string        `help:"Folder of edge-rt and lean-server; default: where bench is." placeholder:"DIR"`
	ORT      string        `name:"ort" env:"LEAN_SERVER_ORT" help:"ONNX Runtime's library." placeholder:"PATH"`
	bench.Env
}

const (
	linksMax = 16
	// grace is how long an edge may still run after the end of its time.
	grace = 30 * time.Second
	// quality is the JPEG quality of the pictures unless the contender sets it.
	quality = 90
)

// Measure runs edge-rt over each link.
func Measure(ctx context.Context, cfg Config) (*Report, error) {
	contender, err := faults.ParseContender(cfg.Schedule)
	if err != nil {
		return nil, err
	}
	if n := len(cfg.Links); n < 1 || n > linksMax {
		return nil, exit.Errorf(exit.Usage, "--links: %d links, want 1 to %d", n, linksMax)
	}
	var scenarios []faults.Scenario
	for _, name := range cfg.Links {
		scenario, err := faults.LoadScenario(name)
		if err != nil {
			return nil, fmt.Errorf("--links: %w", err)
		}
		scenarios = append(scenarios, scenario)
	}
	r := &Report{
		Bench:    "latency",
		Version:  cfg.Version,
		Machine:  bench.ReadMachine(os.DirFS("/")),
		Schedule: cfg.Schedule,
		FPS:      cfg.FPS,
		Seconds:  cfg.Duration.Seconds(),
	}
	for _, scenario := range scenarios {
		cfg.Progress("%s: %v\n", scenario.Name, cfg.Duration)
		link, err := cfg.run(ctx, &scenario, &contender)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", scenario.Name, err)
		}
		r.Links = append(r.Links, *link)
	}
	r.Fleets, err = fleets(r.Links[0].Requests)
	return r, err
}

// run measures one link, with a server of its own.
func (c *Config) run(ctx context.Context, s *faults.Scenario, contender *faults.Contender) (link *Link, err error) {
	dir, err := os.MkdirTemp("", "bench-latency-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	manifest, err := stage.WriteManifest(dir, c.Bundle)
	if err != nil {
		return nil, err
	}
	audit := filepath.Join(dir, "audit.jsonl")
	server, err := stage.Serve(ctx, c.Bin, manifest, "--audit", audit, "--ort="+c.ORT)
	if err != nil {
		return nil, err
	}
	trial := stage.Trial{
		Bin:      c.Bin,
		Dir:      dir,
		Server:   server,
		Duration: c.Duration,
		Grace:    grace,
		Flags:    contender.Flags(quality, "--fps", strconv.Itoa(c.FPS)),
		Records:  filepath.Join(dir, "record"),
		Script:   s.Source,
	}
	if err := errors.Join(trial.Play(ctx), server.Stop()); err != nil {
		return nil, err
	}
	return readLink(s, &trial, audit)
}

// readLink returns a link's stages, for which it joins the record of a trial with the audit of its server.
func readLink(s *faults.Scenario, trial *stage.Trial, audit string) (*Link, error) {
	names, err := record.Files(trial.Records, "")
	if err == nil && len(names) == 0 {
		err = errors.New("edge-rt has written no record")
	}
	if err != nil {
		return nil, err
	}
	log, _, err := why.ReadRun(names)
	if err != nil {
		return nil, err
	}
	lines, err := why.OpenAudit(audit, log)
	if err != nil {
		return nil, err
	}
	var link Link // its counts have the keys of the summary
	if err := stage.ReadJSON(trial.Summary(), &link); err != nil {
		return nil, fmt.Errorf("edge-rt's summary: %w", err)
	}
	link.Name, link.Title = s.Name, s.Script.Name
	link.Stages = why.Latency(log, lines)
	link.Requests /= trial.Duration.Seconds()
	return &link, nil
}
