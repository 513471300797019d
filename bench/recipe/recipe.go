package recipe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"edgert/bench"
	"edgert/internal/exit"
)

// Config says what Measure measures. There are no defaults.
type Config struct {
	FPS           float64
	Cells         []Cell
	Rounds        int           // how often each cell runs
	Slice         time.Duration // how long, starting the programs comes on top
	Bin, Manifest string        // folder of edge-rt and lean-server; what to serve
	Calibration   string        // file of the simulated arm's
	Self          []string      // the command that runs this program's parts
	Version       string
	Log           io.Writer // progress
}

const (
	minSlice  = 2 * time.Second // the arm is armed after half a second
	maxRounds = 1000

	startTries = 3                // of a slice
	endLimit   = 20 * time.Second // for a part to open, and to end
)

func (c *Config) check() error {
	switch {
	case !(c.FPS >= 1 && c.FPS <= 1000):
		return exit.Errorf(exit.Usage, "--fps is %v, want 1 to 1000", c.FPS)
	case c.Slice < minSlice:
		return exit.Errorf(exit.Usage, "--slice is %v, want %v or more: the arm starts in it", c.Slice, minSlice)
	case c.Rounds < 1 || c.Rounds > maxRounds:
		return exit.Errorf(exit.Usage, "--rounds is %d, want 1 to %d", c.Rounds, maxRounds)
	}
	return nil
}

// Slice is one cell in one round. Failed is why it has no result: a recipe may
// keep the bus from answering at all.
type Slice struct {
	Cell
	Round  int     `json:"round"`
	Failed string  `json:"failed,omitempty"`
	Result *Result `json:"result,omitempty"`
}

// Measure runs every cell in every round. When ctx ends early the report is of
// the slices that were complete.
func Measure(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "edgert-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	machine := bench.ReadMachine(os.DirFS("/"))
	server, err := bench.StartServer(cfg.Bin, cfg.Manifest, dir)
	if err != nil {
		return nil, err
	}
	defer server.Child.Stop() // a second time does nothing
	bus, err := cfg.startBus(filepath.Join(dir, "arm"))
	if err != nil {
		return nil, err
	}
	defer bus.Stop()
	var slices []Slice
	for round := range cfg.Rounds {
		for i, cell := range turned(cfg.Cells, round) {
			fmt.Fprintf(cfg.Log, "round %d of %d, %d of %d: others %s, collector %s, load %s, %v\n",
				round+1, cfg.Rounds, i+1, len(cfg.Cells), cell.Others, cell.GC, cell.Load, cfg.Slice)
			s := Slice{Cell: cell, Round: round + 1}
			// The edge refuses a bus that is too slow, and on a busy machine the
			// simulated one is now and then.
			for try := 1; ; try++ {
				if s.Result, err = cfg.slice(ctx, cell, server.Endpoint, bus, dir); err == nil || try == startTries || ctx.Err() != nil {
					break
				}
			}
			if ctx.Err() != nil {
				break
			}
			if errors.Is(err, errSetup) {
				return nil, err
			}
			if err != nil {
				s.Failed = err.Error()
			}
			slices = append(slices, s)
		}
	}
	if _, err := server.Stop(); err != nil {
		return nil, err
	}
	if len(slices) == 0 {
		return nil, errors.New("ended before the first slice was complete")
	}
	return newReport(cfg, machine, slices), nil
}

// errSetup is of a load or a bus that does not run, which leaves nothing to
// measure.
var errSetup = errors.New("nothing to measure with")

// bus is the simulated arm in a process of its own. Real motors do not share the
// edge's CPUs, so its threads come before all others.
type bus struct {
	*bench.Child
	link string
}

const busPriority = 85

func (c *Config) startBus(link string) (*bus, error) {
	cmd := exec.Command(filepath.Join(c.Bin, "edge-rt"), "sim-bus", "--robot", "so101", "--link", link)
	cmd.Env = bench.Scrubbed(cmd.Environ())
	child, err := bench.Start(cmd)
	if err != nil {
		return nil, err
	}
	b := &bus{child, link}
	for end := time.Now().Add(endLimit); time.Now().Before(end) && child.Running(); time.Sleep(watchEvery) {
		if _, err := os.Stat(link); err == nil {
			return b, nil
		}
	}
	return nil, errors.Join(errSetup, errors.New("edge-rt sim-bus serves no bus"), child.Stop())
}

// hurry puts the bus's threads before all others; new ones come with time.
func (b *bus) hurry() error {
	if !b.Running() {
		return fmt.Errorf("%w: edge-rt sim-bus ended: %s", errSetup, b.LastWords())
	}
	for _, t := range bench.ThreadsOf(b.PID()) {
		if err := setFIFO(t.TID, busPriority); err != nil {
			return fmt.Errorf("%w: SCHED_FIFO %d for the simulated arm: %w; run as root", errSetup, busPriority, err)
		}
	}
	return nil
}

// slice runs one cell once.
func (c *Config) slice(ctx context.Context, cell Cell, endpoint string, bus *bus, dir string) (*Result, error) {
	if err := bus.hurry(); err != nil {
		return nil, err
	}
	name := "none"
	if cell.Load == "stress" {
		name = "stress"
	}
	load, err := bench.StartLoad(name, c.Self)
	if err != nil {
		return nil, exit.With(exit.Of(err), fmt.Errorf("%w: %w", errSetup, err))
	}
	defer load.Stop()
	args := append(slices.Clone(c.Self[1:]), "part", "edge", "--fps", strconv.FormatFloat(c.FPS, 'g', -1, 64),
		"--duration", c.Slice.String(), "--connect", endpoint, "--bus", bus.link, "--calibration", c.Calibration, "--others", cell.Others, "--gc", cell.GC, "--load", cell.Load)
	cmd := exec.CommandContext(ctx, c.Self[0], args...)
	cmd.Env = append(bench.Scrubbed(cmd.Environ()), "STATE_DIRECTORY="+dir) // its id stays out of the user's
	part, err := bench.Start(cmd)
	if err != nil {
		return nil, err
	}
	if err := part.Wait(c.Slice + endLimit); err != nil {
		return nil, err
	}
	var r Result
	if err := json.Unmarshal(part.Stdout(), &r); err != nil || r.Edge == nil {
		return nil, fmt.Errorf("the edge's result is unreadable: %w", err)
	}
	return &r, nil
}
