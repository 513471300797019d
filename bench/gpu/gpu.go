// Package gpu measures exported policies on the devices of a machine: the time of a batch, alone
// and while the next batch's rows are filled, the time of one robot's request from pictures to
// chunk, and the program's allocations meanwhile. It can also run other programs on the same
// bundles for comparison. Without a GPU it measures the CPU and writes the same report.
package gpu

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
)

// Config configures a measurement; its tags are the flags of `bench gpu`.
type Config struct {
	Bundle   []string      `default:"testdata/demo/bundle" help:"Folders of exported policies." placeholder:"DIR,…"`
	Device   []string      `default:"cuda,cpu" help:"Where to compute: cuda, cuda:N, tensorrt, tensorrt:N, openvino, cpu." placeholder:"DEVICE,…"`
	Batch    []int         `range:"1..256" default:"1,2,4,8,16" help:"Sizes of batches." placeholder:"N,…"`
	Duration time.Duration `default:"20s" help:"For each bundle on each device; a third of it for requests."`
	Threads  int           `range:"1..256" default:"1" help:"Threads of the CPU inside one inference."`
	CacheDir string        `help:"Folder of TensorRT's engines; default: a temporary one." placeholder:"DIR"`
	Beside   []string      `sep:"none" help:"Another program to measure on the same bundles, NAME=COMMAND; repeat for more. It reads BENCH_BUNDLE, BENCH_DEVICE, BENCH_BATCHES and BENCH_SECONDS and prints {\"batches\": [{\"batch\": N, \"p50_ms\": X, \"p99_ms\": X}]}." placeholder:"NAME=COMMAND"`
	ORT      string        `name:"ort" env:"LEAN_SERVER_ORT" help:"ONNX Runtime's library." placeholder:"PATH"`
	bench.Env
}

// Measure measures, for each bundle on each device, first package policy and then the programs of --beside.
func Measure(ctx context.Context, cfg Config) (*Report, error) {
	slices.Sort(cfg.Batch)
	if len(cfg.Batch) == 0 {
		return nil, exit.Errorf(exit.Usage, "--batch is empty, want at least one size")
	}
	beside, err := bench.ParseBeside(cfg.Beside)
	if err != nil {
		return nil, err
	}
	for _, d := range cfg.Device {
		if _, err := policy.ParseDevice(d); err != nil {
			return nil, exit.Errorf(exit.Usage, "--device: %w", err)
		}
	}
	if cfg.CacheDir == "" {
		if cfg.CacheDir, err = os.MkdirTemp("", "bench-gpu-"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(cfg.CacheDir)
	}
	if err := policy.OpenRuntime(cfg.ORT, slices.MaxFunc(cfg.Device, func(a, b string) int {
		return gpuFirst(a) - gpuFirst(b)
	})); err != nil {
		return nil, exit.With(exit.Config, err)
	}
	r := &Report{
		Bench:   "gpu",
		Version: cfg.Version,
		Threads: cfg.Threads,
		Machine: bench.ReadMachine(os.DirFS("/")),
	}
	r.Runtime, r.Library = policy.RuntimeVersion()
	for _, dir := range cfg.Bundle {
		bundle, err := policy.LoadBundle(dir)
		if err != nil {
			return nil, exit.With(exit.Config, err)
		}
		for _, device := range cfg.Device {
			cfg.Progress("%s on %s\n", dir, device)
			run, err := measure(ctx, cfg, bundle, device)
			if err != nil {
				return nil, err
			}
			r.Runs = append(r.Runs, run)
			for _, b := range beside {
				cfg.Progress("%s on %s: %s\n", dir, device, b.Name)
				run, err := measureOther(ctx, cfg, bundle, device, b)
				if err != nil {
					return nil, err
				}
				r.Runs = append(r.Runs, run)
			}
		}
	}
	return r, r.check()
}

// gpuFirst returns 1 for an accelerator and 0 for a CPU. Measure opens the library that the device
// with the largest value needs.
func gpuFirst(device string) int {
	if d, _ := policy.ParseDevice(device); d.Accelerator() {
		return 1
	}
	return 0
}

// subject is a model and its measurements.
type subject struct {
	*policy.Model
	batches []int
	times   map[int]*timing
	request *rt.Hist
}

// timing holds the times of one batch size.
type timing struct {
	alone, overlapped *rt.Hist // time of a run: alone, and while a thread fills the next batch's rows
}

// measure measures one bundle on one device. An absent device is not an error: the report names it.
func measure(ctx context.Context, cfg Config, b *policy.Bundle, device string) (Run, error) {
	run := newRun(b, "ours", device)
	begin := time.Now()
	model, err := b.Open(policy.Options{
		MaxBatch:     cfg.Batch[len(cfg.Batch)-1],
		Buffers:      2,
		IntraThreads: cfg.Threads,
		Device:       device,
		CacheDir:     cfg.CacheDir,
	})
	if errors.Is(err, policy.ErrNoProvider) || errors.Is(err, policy.ErrNoDevice) {
		run.Absent = strings.Join(strings.Fields(err.Error()), " ")
		return run, nil
	} else if err != nil {
		return run, exit.With(exit.Config, err)
	}
	defer model.Close()
	run.OpenS, run.RSSMB = time.Since(begin).Seconds(), float64(rt.ResidentSize())/(1<<20)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := &subject{
		Model:   model,
		batches: cfg.Batch,
		times:   map[int]*timing{},
		request: rt.NewHist(),
	}
	for _, n := range cfg.Batch {
		s.times[n] = &timing{rt.NewHist(), rt.NewHist()}
	}
	bench.FillRows(model, 2*model.MaxBatch(), policy.Controls{Beta: float32(b.NumSteps)})
	third := cfg.Duration / 3
	ahead := newFiller(s)
	defer close(ahead.next)
	defer rt.HoldGC(rt.Headroom).Release() // as the server does
	heap := rt.ReadHeap()
	for _, part := range []func(n int) error{s.alone, func(n int) error { return s.overlapped(n, ahead) }} {
		if err := s.rounds(ctx, third, part); err != nil {
			return run, err
		}
	}
	for end := time.Now().Add(third); time.Now().Before(end) && ctx.Err() == nil; {
		if err := s.one(); err != nil {
			return run, err
		}
	}
	after := rt.ReadHeap()
	run.Allocs, run.Collections = after.Allocs-heap.Allocs, after.Cycles-heap.Cycles
	s.report(&run)
	return run, ctx.Err()
}

// rounds calls the function part for all batch sizes in turn until the duration is over, so that a change of the
// device's clock affects all sizes.
func (s *subject) rounds(ctx context.Context, duration time.Duration, part func(n int) error) error {
	for end := time.Now().Add(duration); ; {
		for _, n := range s.batches {
			if err := errors.Join(ctx.Err(), part(n)); err != nil {
				return err
			}
		}
		if !time.Now().Before(end) {
			return nil
		}
	}
}

func (s *subject) alone(n int) error {
	begin := time.Now()
	err := s.Run(n)
	s.times[n].alone.Record(time.Since(begin))
	return err
}

// overlapped measures runs of one buffer while the filler fills the rows of the other buffer.
func (s *subject) overlapped(n int, ahead *filler) error {
	const pairs = 2
	for k := range 2 * pairs {
		begin := time.Now()
		ahead.next <- rows{1 - k%2, n}
		err := s.RunBuffer(k%2, n)
		<-ahead.done
		if err != nil {
			return err
		}
		s.times[n].overlapped.Record(time.Since(begin))
	}
	return nil
}

type rows struct{ buffer, batch int }

// filler is a thread that takes rows from the channel next and fills them with pictures, until the channel is closed.
type filler struct {
	next chan rows
	done chan struct{}
}

func newFiller(s *subject) *filler {
	f := &filler{make(chan rows), make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		for next := range f.next {
			for i := range next.batch {
				s.show(next.buffer*s.MaxBatch() + i)
			}
			f.done <- struct{}{}
		}
	}()
	return f
}

// show copies the pictures of another row into row i.
func (s *subject) show(i int) {
	for cam := range s.Bundle().Cameras {
		copy(s.Image(i, cam), s.Image((i+1)%(2*s.MaxBatch()), cam))
	}
}

// one computes the request of one robot: it puts pictures and noise into row 0, runs the policy and checks the chunk.
func (s *subject) one() error {
	begin := time.Now()
	s.show(0)
	policy.FillNoise(s.Noise(0), 1, uint64(begin.UnixNano()))
	if err := s.Run(1); err != nil {
		return err
	}
	if !s.Finite(0) {
		return errors.New("the chunk of random pictures is not finite")
	}
	s.request.Record(time.Since(begin))
	return nil
}

func (s *subject) report(run *Run) {
	for _, n := range s.batches {
		t := s.times[n]
		alone := bench.In(t.alone, time.Millisecond)
		row := Batch{
			Batch:      n,
			P50:        alone.P50,
			P99:        alone.P99,
			Runs:       t.alone.Count(),
			Overlapped: bench.In(t.overlapped, time.Millisecond).P50,
		}
		row.ChunksPerS = float64(n) * 1000 / min(row.P50, row.Overlapped)
		run.Batches = append(run.Batches, row)
	}
	run.Request = new(bench.In(s.request, time.Millisecond))
	run.fit()
}

// check fails when no measurement succeeded.
func (r *Report) check() error {
	for _, run := range r.Runs {
		if run.Absent == "" {
			return nil
		}
	}
	return exit.Errorf(exit.Config, "no device could be measured: %s", r.Runs[0].Absent)
}
