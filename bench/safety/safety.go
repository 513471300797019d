package safety

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"edgert/bench"
	"edgert/internal/exit"
)

// Config says what to run; its tags are the flags of `bench safety`.
type Config struct {
	Only      []string      `help:"Play these faults; --list names them. Default: all." placeholder:"NAME,…"`
	Soak      time.Duration `help:"Instead: faults at random for so long, on one arm, with recovery in between." placeholder:"TIME"`
	Seed      uint64        `default:"1" help:"Of --soak."`
	Workers   int           `default:"2" help:"Runs at once."`
	Tree      string        `default:"testdata/demo" help:"Folder of the demo bundles." placeholder:"DIR"`
	Bin       string        `help:"Folder of edge-rt and lean-server; default: where bench is." placeholder:"DIR"`
	StepClock bool          `help:"Play clock-step too: it sets this machine's wall clock for 2 s (root)."`
	Trace     string        `help:"Write all that the servos heard and did, a file for each fault, to this folder." placeholder:"DIR"`
	bench.Env
}

const workersMax = 64

// tries bounds how often a fault is played whose run did not come up: a host that
// is busy enough keeps the simulated motors from answering in time.
const tries = 3

func (c *Config) check() error {
	if c.Workers < 1 || c.Workers > workersMax {
		return exit.Errorf(exit.Usage, "--workers is %d, want 1 to %d", c.Workers, workersMax)
	}
	if _, err := os.Stat(bench.Program(c.Bin, "edge-rt")); err != nil {
		return exit.Errorf(exit.Usage, "%w; run `make build`, or name the folder of the programs with --bin", err)
	}
	for _, name := range c.Only {
		if !slices.ContainsFunc(Faults, func(f Fault) bool { return f.Name == name }) {
			return exit.Errorf(exit.Usage, "--only: no fault %q, want one of %s", name, strings.Join(Names(), ", "))
		}
	}
	return nil
}

// Names lists the faults.
func Names() (names []string) {
	for i := range Faults {
		names = append(names, Faults[i].Name)
	}
	return names
}

// Run plays the faults and returns what came of them, in the table's order, or a
// soak.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Soak != 0 {
		return runSoak(ctx, cfg)
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-safety-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var jobs []*Fault
	for i := range Faults {
		if len(cfg.Only) == 0 || slices.Contains(cfg.Only, Faults[i].Name) {
			jobs = append(jobs, &Faults[i])
		}
	}
	results, failures := make([]Result, len(jobs)), make([]error, len(jobs))
	next := make(chan int)
	var workers sync.WaitGroup
	var mu sync.Mutex // of the log
	for range min(cfg.Workers, len(jobs)) {
		workers.Go(func() {
			for i := range next {
				results[i], failures[i] = again(ctx, &cfg, filepath.Join(dir, jobs[i].Name), jobs[i])
				mu.Lock()
				cfg.Progress("%s: %s\n", jobs[i].Name, line1(&results[i], failures[i]))
				mu.Unlock()
			}
		})
	}
	for i := range jobs {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	for i, err := range failures {
		if err != nil {
			results[i].Failed, results[i].Note = true, strings.ReplaceAll(err.Error(), "\n", "; ")
		}
	}
	return &Report{Bench: "safety", Version: cfg.Version, Results: results}, context.Cause(ctx)
}

// again plays a fault until its run comes up.
func again(ctx context.Context, cfg *Config, dir string, f *Fault) (res Result, err error) {
	for try := range tries {
		res, err = play(ctx, cfg, fmt.Sprintf("%s.%d", dir, try), f)
		if errors.Is(err, errNotHere) {
			res.Note, res.Did, res.SafeMS = strings.TrimPrefix(err.Error(), f.Name+": "), "not played", -1
			return res, nil
		}
		if err == nil || ctx.Err() != nil {
			return res, err
		}
		cfg.Progress("%s: try %d of %d: %.300v\n", f.Name, try+1, tries, err)
	}
	return res, err
}

// line1 is a result in one line.
func line1(r *Result, err error) string {
	if err != nil {
		return "failed"
	}
	text := fmt.Sprintf("%s; longest step %.1f degrees; violations: %s", r.Did, r.StepDegrees, r.broken())
	for _, k := range r.Kept[:min(len(r.Kept), 3)] {
		text += "\n    " + k
	}
	return text
}

// WriteList names the faults.
func WriteList(w io.Writer) error {
	for i := range Faults {
		soak := ""
		if Faults[i].Soak {
			soak = "  (soak)"
		}
		if _, err := fmt.Fprintf(w, "%-16s %s%s\n", Faults[i].Name, Faults[i].Title, soak); err != nil {
			return err
		}
	}
	return nil
}
