package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"edgert/bench"
	"edgert/internal/exit"
	"edgert/internal/fleet"
	"edgert/wire/faulty"
)

const (
	// liveStart is what an edge needs from its start to its first observation,
	// about: the script's times count from there, as in the edge's own plan.
	liveStart = 500 * time.Millisecond

	// liveGrace is how much longer than its episode an edge may live.
	liveGrace = 30 * time.Second

	// liveTries bounds how often an episode is tried whose edge did not come up:
	// a host that is busy enough keeps the simulated motors from answering the
	// first ping in time.
	liveTries = 4
)

// liveMetrics are those that edge-rt's summary and record and lean-server's audit
// know.
var liveMetrics = []string{"success", "reached", "starved_ticks", "seam_degrees", "age_ms", "inferences"}

// Live runs the comparison on the real edge-rt and lean-server, in real time,
// every episode in a world of its own that all contenders meet, with the same
// fates: edge-rt's session is wrapped into the plan (faulty.Session), and a
// restart kills the real server. Each worker has a server of its own and runs one
// edge at a time. What the two do not say is missing in the report.
func Live(ctx context.Context, cfg Config) (*Report, error) {
	cfg.live = true
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.World != WorldNames[0] {
		return nil, exit.Errorf(exit.Usage, "--world %s is for --virtual: the programs' simulated arm lives in the demo world", cfg.World)
	}
	dir, err := os.MkdirTemp("", "bench-faults-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b := newBoard(&cfg)
	var again atomic.Int64
	b.player = func(worker int) (player, error) {
		return newLivePlayer(ctx, &cfg, filepath.Join(dir, strconv.Itoa(worker)), &again)
	}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	r := b.report()
	r.Virtual, r.NetworkMs, r.ComputeMs, r.Again = false, 0, 0, int(again.Load())
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
	server *liveServer
	plain  bool          // what server serves
	again  *atomic.Int64 // episodes whose edge did not come up, of all workers
}

func newLivePlayer(ctx context.Context, cfg *Config, dir string, again *atomic.Int64) (*livePlayer, error) {
	return &livePlayer{ctx: ctx, cfg: cfg, dir: dir, again: again}, os.MkdirAll(dir, 0o700)
}

func (p *livePlayer) close() {
	if p.server != nil {
		p.server.stop()
	}
}

// play runs one edge through one episode, from the start again when it finds no
// motors.
func (p *livePlayer) play(j job) (o fleet.Outcome, _ []fleet.Tick, err error) {
	for try := 1; ; try++ {
		o, err = p.once(j)
		if exit.Of(err) != exit.Absent || try == liveTries {
			return o, nil, err
		}
		p.again.Add(1)
		fmt.Fprintf(p.cfg.Log, "played again: %v\n", err)
	}
}

// once is one try at an episode. One that was cut off is none: edge-rt, which
// heard the same Ctrl-C, ends well before its time.
func (p *livePlayer) once(j job) (fleet.Outcome, error) {
	scenario, contender := &p.cfg.Scenarios[j.scenario], &p.cfg.Contenders[j.contender]
	if err := p.serve(contender.Plain); err != nil {
		return fleet.Outcome{}, err
	}
	script, summary := filepath.Join(p.dir, "faults.yaml"), filepath.Join(p.dir, "edge.json")
	audit, record := filepath.Join(p.dir, auditName), filepath.Join(p.dir, "actions.jsonl")
	if err := errors.Join(os.WriteFile(script, scenario.Source, 0o600), os.WriteFile(audit, nil, 0o600)); err != nil { // the server appends
		return fleet.Outcome{}, err
	}
	seed, direction := p.cfg.episode(j.episode)
	cmd := exec.Command(filepath.Join(p.cfg.Bin, "edge-rt"), append(contender.flags(),
		"--fps", strconv.Itoa(fleet.FPS), "--bus", "sim", "--camera", "top=sim", "--connect", p.server.endpoint, "--seed", strconv.FormatUint(seed, 10),
		"--jpeg-quality", strconv.Itoa(p.cfg.Quality),
		"--duration", p.cfg.Duration.String(), "--on-exit", "hold", "--quiet", "--json", summary, "--record", record,
		"--wire-faults", script, "--fault-seed", strconv.FormatUint(fleet.FaultSeed(seed, direction), 10))...)
	cmd.Env = append(bench.Scrubbed(cmd.Environ()), "STATE_DIRECTORY="+p.dir)
	began := time.Now()
	child, err := bench.Start(cmd)
	if err != nil {
		return fleet.Outcome{}, err
	}
	var restarts sync.WaitGroup
	restarts.Go(func() { p.restart(scenario.Script.Plan(0, fleet.Period), began.Add(liveStart), child) })
	err = p.wait(child)
	restarts.Wait()
	if took := time.Since(began); err == nil && took < p.cfg.Duration {
		err = fmt.Errorf("edge-rt ended after %v, want %v: something else has stopped it", took.Round(time.Millisecond), p.cfg.Duration)
	}
	if err != nil {
		return fleet.Outcome{}, err
	}
	o, err := readSummary(summary)
	if err != nil {
		return o, err
	}
	o.Seed, o.Direction = seed, direction
	if o.Inferences, err = computed(audit); err != nil {
		return o, err
	}
	return o, executed(record, &o)
}

// wait returns when the edge has ended, and ends it when somebody interrupts.
func (p *livePlayer) wait(edge *bench.Child) error {
	defer context.AfterFunc(p.ctx, func() { _ = edge.Stop() })()
	err := edge.Wait(p.cfg.Duration + liveGrace)
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	return err
}

// serve starts a server on the contender's policy, unless it is there.
func (p *livePlayer) serve(plain bool) (err error) {
	if p.server != nil && p.plain == plain && p.server.child.Running() {
		return nil
	}
	if p.server != nil {
		p.server.stop()
	}
	p.plain = plain
	bundle := p.cfg.Bundle
	if plain {
		bundle = p.cfg.Plain
	}
	p.server, err = startLiveServer(p.ctx, p.cfg, p.dir, bundle)
	return err
}

// restart kills the server and brings it back at the plan's times, which count
// from begin, for as long as the edge lives.
func (p *livePlayer) restart(plan *faulty.Plan, begin time.Time, edge *bench.Child) {
	at := time.Duration(0)
	for {
		from, until, ok := plan.Absence(at)
		if !ok || from >= p.cfg.Duration || !sleep(p.ctx, time.Until(begin.Add(from)), edge) {
			return
		}
		p.server.kill()
		if !sleep(p.ctx, time.Until(begin.Add(until)), edge) {
			return // serve starts it for the next episode
		}
		if !plan.Away(until) {
			if err := p.server.start(); err != nil {
				fmt.Fprintf(p.cfg.Log, "the server did not come back: %v\n", err)
			}
		}
		at = max(until, time.Since(begin))
	}
}

// sleep waits; false when the child or the context ended first.
func sleep(ctx context.Context, d time.Duration, child *bench.Child) bool {
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

// auditName is the file in a worker's folder to which the server writes a line for
// each request.
const auditName = "audit.jsonl"

// liveServer is a lean-server that can be killed and come back at its place.
type liveServer struct {
	ctx               context.Context
	program           string
	flags             []string
	endpoint, address string
	child             *bench.Child
}

// startLiveServer serves a bundle on a free port.
func startLiveServer(ctx context.Context, cfg *Config, dir, bundle string) (*liveServer, error) {
	abs, err := filepath.Abs(bundle)
	if err != nil {
		return nil, err
	}
	manifest := filepath.Join(dir, "server.yaml")
	text := fmt.Sprintf("model: {repo_or_path: %q, id: demo/around-the-post}\nservice: demo\ndefault_task: around the post\n", abs)
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &liveServer{ctx: ctx, program: filepath.Join(cfg.Bin, "lean-server"), address: l.Addr().String()}
	s.endpoint = "tcp/" + s.address
	s.flags = []string{"--manifest", manifest, "--listen", s.endpoint, "--health-port", "0", "--quiet", "--audit", filepath.Join(dir, auditName)}
	if cfg.ORT != "" {
		s.flags = append(s.flags, "--ort", cfg.ORT)
	}
	if err := l.Close(); err != nil {
		return nil, err
	}
	return s, s.start()
}

// start starts the server and returns when it listens.
func (s *liveServer) start() (err error) {
	cmd := exec.Command(s.program, s.flags...)
	cmd.Env = bench.Scrubbed(cmd.Environ())
	if s.child, err = bench.Start(cmd); err != nil {
		return err
	}
	for end := time.Now().Add(bench.ServerLimit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if s.ctx.Err() != nil {
			s.kill()
			return context.Cause(s.ctx)
		}
		if !s.child.Running() {
			return errors.Join(s.child.Wait(0), errors.New("lean-server ended by itself"))
		}
		if c, err := net.DialTimeout("tcp", s.address, time.Second); err == nil {
			return c.Close()
		}
	}
	s.kill()
	return fmt.Errorf("lean-server did not listen within %v", bench.ServerLimit)
}

func (s *liveServer) kill() { s.child.Kill() }

func (s *liveServer) stop() {
	if s.child != nil {
		_ = s.child.Stop() // a server of ours that ends badly has done its work
	}
}

// readSummary reads what edge-rt says about an episode.
func readSummary(name string) (o fleet.Outcome, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return o, err
	}
	var s struct {
		Targets    int    `json:"targets_reached"`
		Collisions int    `json:"collisions"`
		Timeouts   int    `json:"targets_timed_out"`
		Actions    int    `json:"actions"`
		Starved    int    `json:"starved_ticks"`
		StarvedBus int    `json:"starved_by_bus"` // of them
		Requests   int    `json:"requests"`
		Estimate   int    `json:"latency_estimate_steps"`
		Schedule   string `json:"schedule"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return o, fmt.Errorf("edge-rt's summary: %w", err)
	}
	o.Runs = 1
	o.Right.Reached, o.Right.Collided, o.Right.TimedOut = s.Targets, s.Collisions, s.Timeouts
	o.Actions, o.Starved, o.Requests, o.MaxEstimate = s.Actions, s.Starved-s.StarvedBus, s.Requests, s.Estimate
	return o, nil
}

// flags are the contender's, for edge-rt.
func (c *Contender) flags() (flags []string) {
	flags = []string{"--schedule", c.Schedule.Schedule}
	for _, option := range strings.Split(c.Name, "+")[1:] {
		switch {
		case option == "plain":
		case option == "compat":
			flags = append(flags, "--compat")
		case option == "spans":
			flags = append(flags, "--prefix", "spans")
		case option == "bare":
			flags = append(flags, "--prefix", "none")
		case option == "counts":
			flags = append(flags, "--cooldown", "counts")
		case strings.HasPrefix(option, sMinOption):
			flags = append(flags, "--s-min", strings.TrimPrefix(option, sMinOption))
		default:
			flags = append(flags, "--estimator", option)
		}
	}
	return flags
}
