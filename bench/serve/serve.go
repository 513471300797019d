// Package serve measures lean-server under a fleet: robots with real messages and pictures, each on
// a link of its own, send requests to a server that is a process of its own (robot.go). In turn
// with the server, ONNX Runtime runs the same batches alone (bare.go). Robots whose actions run out
// in real time show the value of the scheduler (starving.go).
package serve

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/stage"
)

// Config configures a measurement; its tags are the flags of `bench serve`.
type Config struct {
	Bundle   string        `default:"testdata/demo/bundle" help:"Folder of the exported policy." placeholder:"DIR"`
	Robots   []int         `range:"1..1000" default:"1,8,32" help:"How many robots ask as fast as they are answered." placeholder:"N,…"`
	Sessions int           `range:"1..1000" default:"300" help:"How many robots have a session at once, all of which must keep it."`
	Duration time.Duration `range:"1s..1h" default:"1m" help:"Of all slices together."`
	Slice    time.Duration `range:"100ms..1m" default:"2s" help:"How long the server, and ONNX Runtime alone, have a turn."`
	Loads    []float64     `range:"0.05..4" default:"0.95" help:"Shares of the server's time that robots whose actions run out ask for, to compare the schedulers at." placeholder:"SHARE,…"`
	Busy     int           `range:"0..256" default:"0" help:"Compare the schedulers also beside so many busy processes, in turn with an idle machine."`
	Starving bool          `help:"Compare the schedulers only, after a look at how long a chunk takes."`
	Steady   time.Duration `range:"0s..24h" default:"0s" help:"Instead of all else: for so long the last of --robots keep the server busy, and nothing may be allocated, collected or grow." placeholder:"TIME"`
	Threads  int           `range:"1..256" default:"1" help:"Threads of the CPU inside one inference."`
	MaxBatch int           `range:"0..16" default:"0" help:"Robots that share an inference; 0: what the server takes."`
	Device   string        `default:"cpu" help:"Where to compute: cpu, cuda, cuda:N, tensorrt, tensorrt:N."`
	Bin      string        `help:"Folder of lean-server; default: where bench is." placeholder:"DIR"`
	Beside   []string      `sep:"none" help:"A server of another make with its client, NAME=COMMAND; repeat for more. It reads BENCH_BUNDLE, BENCH_PICTURES (NAME.rgb of each camera) and BENCH_THREADS, prints ready, and for each line of seconds {\"seconds\": X, \"trip_ms\": [X, …]} of the chunks that one robot got." placeholder:"NAME=COMMAND"`
	ORT      string        `name:"ort" env:"LEAN_SERVER_ORT" help:"ONNX Runtime's library." placeholder:"PATH"`
	bench.Env
}

// stand holds the parts that all measurements share.
type stand struct {
	cfg    Config
	bundle *policy.Bundle
	dir    string // a temporary folder
	bare   *bare
	beside []*beside
}

// check refuses a configuration that cannot be measured.
func (cfg *Config) check() error {
	if len(cfg.Robots) == 0 {
		return exit.Errorf(exit.Usage, "--robots is empty, want at least one number")
	}
	if _, err := policy.ParseDevice(cfg.Device); err != nil {
		return exit.Errorf(exit.Usage, "--device: %w", err)
	}
	return nil
}

// Measure measures the server with each number of robots, with many sessions, and under each
// scheduler with robots whose actions run out.
func Measure(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if err := policy.OpenRuntime(cfg.ORT, cfg.Device); err != nil {
		return nil, exit.With(exit.Config, err)
	}
	s := &stand{cfg: cfg}
	var err error
	if s.beside, err = parseBeside(cfg.Beside); err != nil {
		return nil, err
	}
	if s.bundle, err = policy.LoadBundle(cfg.Bundle); err != nil {
		return nil, exit.With(exit.Config, err)
	}
	if s.dir, err = os.MkdirTemp("", "bench-serve-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(s.dir)
	if s.bare, err = openBare(s.bundle, cfg); err != nil {
		return nil, exit.With(exit.Config, err)
	}
	defer s.bare.Close()
	r := s.newReport()
	for _, b := range s.beside {
		defer b.end()
		pictures, err := s.writePictures()
		if err != nil {
			return nil, err
		}
		if err := b.start(ctx, s, pictures); err != nil {
			return nil, err
		}
	}
	if cfg.Steady > 0 {
		r.Steady, err = s.steady(ctx, cfg.Robots[len(cfg.Robots)-1], cfg.Steady)
		return r, err
	}
	if cfg.Starving {
		return r, s.compare(ctx, r)
	}
	parts := time.Duration(len(cfg.Robots) + len(schedulers))
	for _, n := range cfg.Robots {
		crowd, err := s.saturate(ctx, n, cfg.Duration/parts)
		if err != nil {
			return nil, err
		}
		r.Crowds = append(r.Crowds, crowd)
	}
	if r.Many, err = s.many(ctx); err != nil {
		return nil, err
	}
	busiest := r.Crowds[len(r.Crowds)-1]
	if r.Schedulers, err = s.starve(ctx, 1/busiest.ChunksPerS, cfg.Duration/parts); err != nil {
		return nil, err
	}
	for _, b := range s.beside {
		r.Beside = append(r.Beside, b.report())
	}
	return r, nil
}

// newReport returns a report of the bundle, the device and the machine, without measurements.
func (s *stand) newReport() *Report {
	cfg := s.cfg
	r := &Report{
		Bench:    "serve",
		Version:  cfg.Version,
		Machine:  bench.ReadMachine(os.DirFS("/")),
		Bundle:   filepath.Base(s.bundle.Dir),
		SHA256:   s.bundle.SHA256,
		Policy:   s.bundle.PolicyType,
		Device:   s.bare.Placement().Device.String(),
		Threads:  cfg.Threads,
		MaxBatch: s.bare.MaxBatch(),
		SliceS:   cfg.Slice.Seconds(),
	}
	r.Runtime, _ = policy.RuntimeVersion()
	return r
}

// compare measures the time of a chunk and then only compares the schedulers.
func (s *stand) compare(ctx context.Context, r *Report) error {
	crowd, err := s.saturate(ctx, s.cfg.Robots[len(s.cfg.Robots)-1], min(s.cfg.Duration/starvingShare, starvingLook))
	if err != nil {
		return err
	}
	r.Crowds = append(r.Crowds, crowd)
	r.Schedulers, err = s.starve(ctx, 1/crowd.ChunksPerS, s.cfg.Duration/2)
	return err
}

// server starts lean-server for that many sessions.
func (s *stand) server(ctx context.Context, name string, sessions int, scheduler, audit string,
	more ...string) (*stage.Server, error) {
	path, err := filepath.Abs(s.bundle.Dir)
	if err != nil {
		return nil, err
	}
	manifest := filepath.Join(s.dir, name+".yaml")
	text := fmt.Sprintf("model: {repo_or_path: %[1]q, id: %[2]s, device: %[3]q}\nservice: %[4]s\ndefault_task: "+
		"around the post\nmax_sessions: %[5]d\nscheduler: %[6]s\nthreads: %[7]d\nmax_batch: %[8]d\n",
		path, stage.DemoModel, s.cfg.Device, stage.DemoService, sessions, scheduler, s.cfg.Threads, s.cfg.MaxBatch)
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return stage.Serve(ctx, s.cfg.Bin, manifest, append(more, "--ort="+s.cfg.ORT, "--audit="+audit)...)
}

// In turn, saturate lets n robots send requests as fast as they are answered, and lets ONNX Runtime
// alone run the same batches.
func (s *stand) saturate(ctx context.Context, n int, limit time.Duration) (c Crowd, err error) {
	s.cfg.Progress("%d robots that ask as fast as they are answered\n", n)
	lines := filepath.Join(s.dir, fmt.Sprintf("audit-%d.jsonl", n))
	crowd, err := s.crowd(ctx, fmt.Sprintf("crowd-%d", n), n, "runway", lines)
	if err != nil {
		return c, err
	}
	defer crowd.leave(&err)
	log := &auditLog{name: lines}
	if _, err := crowd.flood(ctx, s.cfg.Slice/2); err != nil { // the first turn takes longer than the others
		return c, err
	}
	if _, err := log.read(); err != nil {
		return c, err
	}
	var ours, alone, ratios []float64
	var asked time.Duration
	c.Robots = n
	for end := time.Now().Add(limit); len(ratios) == 0 || time.Now().Before(end); {
		begin := time.Now()
		answered, err := crowd.flood(ctx, s.cfg.Slice)
		asked += time.Since(begin)
		if err != nil {
			return c, err
		}
		batches, err := log.read()
		if err != nil {
			return c, err
		}
		rate, err := s.bare.run(ctx, batches, s.cfg.Slice)
		if err != nil {
			return c, err
		}
		for _, b := range s.beside {
			if err := b.turn(ctx, s.cfg.Slice); err != nil {
				return c, err
			}
		}
		ours = append(ours, answered)
		alone = append(alone, rate)
		ratios = append(ratios, answered/rate)
	}
	c.Rounds = len(ratios)
	c.ChunksPerS = report.Median(ours)
	c.BarePerS = report.Median(alone)
	c.Ratio = report.Median(ratios)
	c.Own = bench.SpreadOf(log.own)
	c.Wait = bench.SpreadOf(log.wait)
	c.Decode = bench.SpreadOf(log.decode)
	c.Inference = bench.SpreadOf(log.inference)
	c.MeanBatch = log.meanBatch()
	c.Busy = bench.Round(log.busyMs / 1e3 / asked.Seconds())
	c.Answers = crowd.answers()
	return c, crowd.Alive()
}

// many opens the sessions of many robots, lets all send requests for some slices, and counts the
// robots that are still served.
func (s *stand) many(ctx context.Context) (m Many, err error) {
	s.cfg.Progress("%d sessions\n", s.cfg.Sessions)
	crowd, err := s.crowd(ctx, "many", s.cfg.Sessions, "runway", "")
	if err != nil {
		return m, err
	}
	defer crowd.leave(&err)
	const slices = 3
	if _, err := crowd.flood(ctx, slices*s.cfg.Slice); err != nil {
		return m, err
	}
	m.Left = crowd.served(ctx)
	m.Sessions, m.Answers = s.cfg.Sessions, crowd.answers()
	return m, crowd.Alive()
}
