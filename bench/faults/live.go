package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/sim/fleet"
	"github.com/edge-rt/edge-rt/sim/netfault"
	"github.com/edge-rt/edge-rt/stage"
)

const (
	// liveStart is about the time of an edge from its start to its first observation: the script's
	// times count from there, as in the edge's own plan.
	liveStart = 500 * time.Millisecond

	// liveGrace is the time that an edge may live beyond its episode.
	liveGrace = 30 * time.Second

	// liveTries bounds how often an episode is tried whose edge did not start: a very busy host
	// keeps the simulated motors from answering the first ping in time.
	liveTries = 4
)

// liveMetrics are the metrics in edge-rt's summary and record and lean-server's audit.
var liveMetrics = []string{"success", "reached", "starved_ticks", "seam_degrees", "age_ms", "inferences"}

// Live runs the comparison on edge-rt and lean-server in real time, every episode in a world of its
// own with the same faults for all contenders (netfault.Session; a restart kills the server). Each
// worker has a server and runs one edge at a time. Metrics that the two do not report are missing.
func Live(ctx context.Context, cfg Config) (*Report, error) {
	cfg.live = true
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.World != worldNames[0] {
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
			for _, m := range metrics {
				if !slices.Contains(liveMetrics, m.Key) {
					delete(row.Metrics, m.Key)
				}
			}
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
	again  *atomic.Int64 // episodes whose edge did not start, of all workers
}

func newLivePlayer(ctx context.Context, cfg *Config, dir string, again *atomic.Int64) (*livePlayer, error) {
	p := &livePlayer{
		ctx:   ctx,
		cfg:   cfg,
		dir:   dir,
		again: again,
	}
	flags := []string{"--audit", p.path("audit.jsonl")}
	if cfg.ORT != "" {
		flags = append(flags, "--ort", cfg.ORT)
	}
	server, err := stage.NewServer(cfg.Bin, p.path("server.yaml"), flags...)
	p.server = server
	return p, errors.Join(err, os.MkdirAll(dir, 0o700))
}

func (p *livePlayer) path(name string) string { return filepath.Join(p.dir, name) }

func (p *livePlayer) close() {
	if p.server.Child != nil {
		_ = p.server.Stop() // its exit code does not matter
	}
}

// play runs an episode, again when the edge finds no motors.
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

// once is one try. When Ctrl-C ended the edge well before its time, it is an error.
func (p *livePlayer) once(j job) (fleet.Outcome, error) {
	scenario, contender := &p.cfg.Scenarios[j.scenario], &p.cfg.Contenders[j.contender]
	if err := p.serve(contender.Plain); err != nil {
		return fleet.Outcome{}, err
	}
	script := p.path("faults.yaml")
	summary := p.path("edge.json")
	audit := p.path("audit.jsonl")
	records := p.path("record")
	// the server appends
	if err := errors.Join(os.WriteFile(script, scenario.Source, 0o600), os.WriteFile(audit, nil, 0o600),
		os.RemoveAll(records)); err != nil {
		return fleet.Outcome{}, err
	}
	seed, direction := p.cfg.episode(j.episode)
	cmd := stage.Edge(p.cfg.Bin, p.dir, append(slices.Clone(contender.flags),
		"--fps", strconv.Itoa(fleet.FPS), "--bus", "sim", "--camera", "top=sim", "--connect", p.server.Endpoint,
		"--seed", strconv.FormatUint(seed, 10),
		"--jpeg-quality", strconv.Itoa(p.cfg.Quality),
		"--duration", p.cfg.Duration.String(), "--on-exit", "hold", "--quiet", "--json", summary, "--record",
		"all", "--record-dir", records,
		"--wire-faults", script, "--fault-seed", strconv.FormatUint(fleet.FaultSeed(seed, direction), 10))...)
	began := time.Now()
	child, err := stage.Start(cmd)
	if err != nil {
		return fleet.Outcome{}, err
	}
	var restarts sync.WaitGroup
	restarts.Go(func() { p.restart(scenario.Script.Plan(0, fleet.Period), began.Add(liveStart), child) })
	err = p.wait(child)
	restarts.Wait()
	if took := time.Since(began); err == nil && took < p.cfg.Duration {
		err = fmt.Errorf("edge-rt ended after %v, want %v: something else has stopped it", took.Round(time.Millisecond),
			p.cfg.Duration)
	}
	if err != nil {
		return fleet.Outcome{}, err
	}
	o, err := readSummary(summary)
	if err != nil {
		return o, err
	}
	o.Seed, o.Direction = seed, direction
	if o.Inferences, err = countInferences(audit); err != nil {
		return o, err
	}
	return o, readRecord(records, &o)
}

// wait returns when the edge has ended, and ends it on an interrupt.
func (p *livePlayer) wait(edge *stage.Child) error {
	defer context.AfterFunc(p.ctx, func() { _ = edge.Stop() })()
	err := edge.Wait(p.cfg.Duration + liveGrace)
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	return err
}

// serve starts the server on the contender's policy, unless it runs already.
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

// restart kills the server and starts it again at the plan's times, which count from begin, for as
// long as the edge lives.
func (p *livePlayer) restart(plan *netfault.Plan, begin time.Time, edge *stage.Child) {
	at := time.Duration(0)
	for {
		from, until, ok := plan.NextOutage(at)
		if !ok || from >= p.cfg.Duration || !sleep(p.ctx, time.Until(begin.Add(from)), edge) {
			return
		}
		p.server.Kill()
		if !sleep(p.ctx, time.Until(begin.Add(until)), edge) {
			return // serve starts it again for the next episode
		}
		if !plan.ServerDown(until) {
			if err := p.server.Start(p.ctx); err != nil {
				p.cfg.Progress("the server did not come back: %v\n", err)
			}
		}
		at = max(until, time.Since(begin))
	}
}

// sleep waits; it returns false when the child or the context ended first.
func sleep(ctx context.Context, d time.Duration, child *stage.Child) bool {
	var exited <-chan struct{}
	if child != nil {
		exited = child.Exited()
	}
	select {
	case <-time.After(d):
		return true
	case <-exited:
	case <-ctx.Done():
	}
	return false
}
