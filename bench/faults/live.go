package faults

import (
	"context"
	"errors"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/sim/fleet"
	"github.com/edge-rt/edge-rt/sim/netfault"
	"github.com/edge-rt/edge-rt/stage"
)

const (
	// liveStart is the approximate time from an edge's start to its first observation. The times in
	// the script count from that observation, as in the edge itself.
	liveStart = 500 * time.Millisecond

	// liveGrace is how long an edge may still run after its episode.
	liveGrace = 30 * time.Second

	// liveTries bounds the attempts at an episode whose edge does not start: a very busy host
	// keeps the simulated motors from answering the first ping in time.
	liveTries = 4
)

// liveMetrics are the metrics in edge-rt's summary and record and lean-server's audit.
var liveMetrics = []string{"success", "reached", "starved_ticks", "seam_degrees", "age_ms", "inferences", "requests",
	"actions_per_request"}

// Live runs the comparison on edge-rt and lean-server in real time, every episode in a world of its own.
// netfault.Session plays the same faults for all contenders, and a restart in the script kills the server. Each worker
// has a server and runs one edge at a time. The report lacks metrics that neither program reports.
func Live(ctx context.Context, cfg Config) (*Report, error) {
	cfg.live = true
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.World == "narrow" {
		return nil, exit.Errorf(exit.Usage,
			"--world %s is for --virtual: the programs' simulated arm lives in the demo world", cfg.World)
	}
	dir, err := os.MkdirTemp("", "bench-faults-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b := newComparison(&cfg)
	var again atomic.Int64
	b.player = func(worker int) (player, error) {
		return newLivePlayer(ctx, &cfg, filepath.Join(dir, strconv.Itoa(worker)), &again)
	}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	r := b.report()
	r.Virtual = false
	r.NetworkMs = 0
	r.ComputeMs = 0
	r.Again = int(again.Load())
	for _, c := range r.Cells {
		for _, row := range c.Rows {
			maps.DeleteFunc(row.Metrics, func(key string, _ Interval) bool {
				return !slices.Contains(liveMetrics, key)
			})
		}
	}
	return r, nil
}

// livePlayer is one worker's folder and server.
type livePlayer struct {
	ctx    context.Context
	cfg    *Config
	dir    string
	server *stage.Server // Child is nil before the first episode
	plain  bool          // kind of the bundle that server serves
	again  *atomic.Int64 // number of episodes of all workers whose edge did not start
}

func newLivePlayer(ctx context.Context, cfg *Config, dir string, again *atomic.Int64) (*livePlayer, error) {
	p := &livePlayer{
		ctx:   ctx,
		cfg:   cfg,
		dir:   dir,
		again: again,
	}
	server, err := stage.NewServer(cfg.Bin, p.path("server.yaml"), "--audit", p.path("audit.jsonl"), "--ort="+cfg.ORT)
	p.server = server
	return p, errors.Join(err, os.MkdirAll(dir, 0o700))
}

func (p *livePlayer) path(name string) string { return filepath.Join(p.dir, name) }

func (p *livePlayer) close() {
	if p.server.Child != nil {
		_ = p.server.Stop() // the exit code does not matter
	}
}

// play runs an episode. If the edge finds no motors, play runs the episode again, up to liveTries times in
// all.
func (p *livePlayer) play(j job) (o fleet.Outcome, _ []fleet.Tick, err error) {
	for try := 1; ; try++ {
		o, err = p.once(j)
		if exit.Of(err) != exit.Absent || try == liveTries {
			return o, nil, err
		}
		p.again.Add(1)
		p.cfg.Progress("played again: %v\n", err)
	}
}

// once runs an episode once. If Ctrl-C ended the edge well before its time, once returns an error.
func (p *livePlayer) once(j job) (o fleet.Outcome, err error) {
	scenario, contender := &p.cfg.Scenarios[j.scenario], &p.cfg.Contenders[j.contender]
	if err := p.serve(contender.Plain); err != nil {
		return o, err
	}
	audit, records := p.path("audit.jsonl"), p.path("record")
	// The server appends to the file.
	if err := errors.Join(os.WriteFile(audit, nil, 0o600), os.RemoveAll(records)); err != nil {
		return o, err
	}
	seed, direction := p.cfg.episode(j.episode)
	trial := stage.Trial{
		Bin:      p.cfg.Bin,
		Dir:      p.dir,
		Server:   p.server,
		Duration: p.cfg.Duration,
		Grace:    liveGrace,
		Flags: contender.Flags(p.cfg.Quality, "--fps", strconv.Itoa(fleet.FPS), "--seed",
			strconv.FormatUint(seed, 10), "--on-exit", "hold"),
		Records:    records,
		Script:     scenario.Source,
		ScriptSeed: fleet.FaultSeed(seed, direction),
		Outages:    outages(scenario.Script.Plan(0, fleet.Period), p.cfg.Duration),
	}
	if err := trial.Play(p.ctx); errors.Is(err, stage.ErrAway) {
		p.cfg.Progress("%v\n", err)
	} else if err != nil {
		return o, err
	}
	if o, err = readSummary(trial.Summary()); err != nil {
		return o, err
	}
	o.Seed, o.Direction = seed, direction
	if o.Inferences, err = countInferences(audit); err != nil {
		return o, err
	}
	return o, readRecord(records, &o)
}

// serve starts a server with the contender's policy, or with the plain policy if plain is true. It does nothing if that
// server already runs.
func (p *livePlayer) serve(plain bool) error {
	if p.server.Child != nil && p.server.Running() && p.plain == plain {
		return nil
	}
	p.close()
	p.plain = plain
	bundle := p.cfg.Bundle
	if plain {
		bundle = p.cfg.Plain
	}
	if _, err := stage.WriteManifest(p.dir, bundle); err != nil {
		return err
	}
	return p.server.Start(p.ctx)
}

// outages returns the times at which the plan's restarts stop the server. The episode of length d
// begins liveStart after the trial's beginning. Restarts that overlap count as one. A restart is
// left out if it ends before the server has started again.
func outages(plan *netfault.Plan, d time.Duration) iter.Seq[stage.Outage] {
	return func(yield func(stage.Outage) bool) {
		began := time.Now().Add(liveStart)
		from, until, ok := plan.NextOutage(0)
		for ok && from < d {
			for until < d && plan.ServerDown(until) {
				_, until, _ = plan.NextOutage(until)
			}
			if !yield(stage.Outage{At: liveStart + from, For: until - from}) {
				return
			}
			from, until, ok = plan.NextOutage(max(until, time.Since(began)))
		}
	}
}
