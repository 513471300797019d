// Package safety runs the real edge-rt on a simulated arm with one fault at a time, and checks
// every byte that the servos receive by the rules of sim/referee.
//
// A fault is a row of data (faults.go). It contains the effect on the bus, the network, the server, the
// camera or the program (actions.go), the duration, and the condition under which the arm counts as safe. Run
// plays each fault in the same steps (run.go): the arm is armed and moves, the fault begins and ends, the arm
// continues by itself or after an operator's command; then the referee and the history evaluate the run
// (report.go). A soak (soak.go) plays many faults on one arm.
//
// On a robot of several parts each fault hits one part, then the other, then both (part.go).
//
// A run has the arms with their histories (history.go), edge-rt and lean-server (leanserver.go),
// and the cable between them (netfault.Proxy). Faults of the server use lean-server and the demo
// policy. All other faults use a server that keeps all joints moving (sineserver.go), so that a
// jump is visible.
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

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/stage"
)

// Config configures a run; its tags are the flags of `bench safety`.
type Config struct {
	Robot     string        `enum:"so101,bi_so101,lekiwi" default:"so101" help:"so101; bi_so101 (two arms) and lekiwi (an arm and a base) get each fault on one part, on the other, and on both."`
	Apart     bool          `help:"Two arms with safety.parts: apart: one goes on while the other is away."`
	Only      []string      `help:"Play these faults, on every part or NAME@PART; --list names them. Default: all." placeholder:"NAME,…"`
	Soak      time.Duration `range:"0s,1s..24h;0s is none" help:"Instead: faults at random for so long, on one robot, with recovery in between." placeholder:"TIME"`
	Seed      uint64        `default:"1" help:"Of --soak."`
	Workers   int           `range:"1..64" default:"2" help:"Runs at once."`
	Tree      string        `default:"testdata/demo" help:"Folder of the demo bundles." placeholder:"DIR"`
	Bin       string        `help:"Folder of edge-rt and lean-server; default: where bench is." placeholder:"DIR"`
	StepClock bool          `help:"Play clock-step too: it sets this machine's wall clock for 2 s (root)."`
	Records   string        `help:"Keep what the flight recorder has of each run, and of the server's audit, in a folder of the fault's name below this one: for edge-rt why." placeholder:"DIR"`
	Trace     string        `help:"Write all that the servos received and did, a file for each fault and part, to this folder." placeholder:"DIR"`
	bench.Env

	robot robot.Robot
}

// tries is the largest number of attempts to start the run of a fault: on a busy host the
// simulated motors may answer too late.
const tries = 3

func (c *Config) check() error {
	if _, err := os.Stat(stage.Program(c.Bin, "edge-rt")); err != nil {
		return exit.Errorf(exit.Usage, "%w; run `make build`, or name the folder of the programs with --bin", err)
	}
	var err error
	if c.robot, err = robot.ByName(c.Robot); err != nil {
		return exit.With(exit.Usage, err)
	}
	if c.Apart {
		if c.robot.PartNames() == "" {
			return exit.Errorf(exit.Usage, "--apart: %s has no parts on buses of their own, want --robot bi_so101",
				c.Robot)
		}
		c.robot.Safety.Parts = robot.Apart
	}
	var names []string
	for _, f := range c.faults() {
		names = append(names, f.Name, f.kind())
	}
	for _, name := range c.Only {
		if !slices.Contains(names, name) {
			return exit.Errorf(exit.Usage, "--only: no fault %q, want one of %s", name,
				strings.Join(slices.Compact(names), ", "))
		}
	}
	return nil
}

// faults returns the faults for the robot, on each of its parts and on all.
func (c *Config) faults() (all []fault) {
	for _, f := range faults {
		all = append(all, f.on(partsOf(c.robot))...)
	}
	return all
}

// selected returns the faults that --only names, or all.
func (c *Config) selected() []fault {
	return slices.DeleteFunc(c.faults(), func(f fault) bool {
		return len(c.Only) > 0 && !slices.Contains(c.Only, f.Name) && !slices.Contains(c.Only, f.kind())
	})
}

// Run plays the faults, or a soak, and returns their results, in the table's order. On return every
// process it started has ended.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-safety-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	report := &Report{
		Bench:   "safety",
		Version: cfg.Version,
		Robot:   cfg.Robot,
		Apart:   cfg.Apart,
	}
	if cfg.Soak != 0 {
		report.Seed = cfg.Seed
		report.Results, err = playSoak(ctx, &cfg, dir)
		return report, err
	}
	selected := cfg.selected()
	report.Results = make([]Result, len(selected))
	free := make(chan struct{}, cfg.Workers)
	var workers sync.WaitGroup
	for i := range selected {
		free <- struct{}{}
		workers.Go(func() {
			if ctx.Err() == nil {
				f := &selected[i]
				report.Results[i] = playAndRetry(ctx, &cfg, filepath.Join(dir, f.Name), f)
				cfg.Progress("%s", report.Results[i].progress())
			}
			<-free
		})
	}
	workers.Wait()
	return report, context.Cause(ctx)
}

// playAndRetry plays a fault until its run starts.
func playAndRetry(ctx context.Context, cfg *Config, dir string, f *fault) (res Result) {
	for try := 1; ; try++ {
		var err error
		res, err = play(ctx, cfg, fmt.Sprintf("%s.%d", dir, try), f)
		switch {
		case err == nil:
			return res
		case errors.Is(err, errNotHere):
			res.Note = strings.TrimPrefix(err.Error(), f.Name+": ")
			res.Did = "not played"
			res.SafeMS = -1
			return res
		case ctx.Err() != nil || try == tries:
			res.Note, res.Failed = strings.ReplaceAll(err.Error(), "\n", "; "), true
			return res
		}
		cfg.Progress("%s: try %d of %d: %.300v\n", f.Name, try, tries, err)
	}
}

// WriteList names the faults, without their parts.
func WriteList(w io.Writer) error {
	for _, f := range faults {
		soak := ""
		if f.Soak {
			soak = "  (soak)"
		}
		if _, err := fmt.Fprintf(w, "%-16s %s%s\n", f.Name, f.Title, soak); err != nil {
			return err
		}
	}
	return nil
}
