// Package wire measures how fast messages travel: our Zenoh beside the official one, in Rust and in
// Python, and beside a plain TCP echo.
//
// On a shared machine the same program takes 40 us in one minute and 260 us in the next. All
// subjects therefore run at the same time, two processes each, and take turns: in a round every
// subject makes some round trips of every size, and the next round has another order. The result is
// the ratio of two subjects in the same round.
//
// A subject is measured directly, where one end listens and the other dials, and through one
// official router for all (subject.go). Both ends of a pair are processes of the same
// implementation, with the same four arguments and two commands (peer.go), so that each subject is
// timed by code in its own language. end.go runs the ends of our Zenoh (native.go) and of the plain
// echo (tcp.go). report.go adds up the turns.
package wire

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/stage"
)

// Config configures Measure; its tags are the flags of `bench wire`.
type Config struct {
	Duration time.Duration `range:">0s..24h" default:"1m" help:"In all; starting the programs comes on top."`
	Sizes    []int         `range:"8..8388608;one byte ends a flood, and the ends hold no more" name:"size" default:"64,4096,102400" help:"Bytes of a message."`
	Python   string        `default:".venv/bin/python" help:"An interpreter with the official wheel eclipse-zenoh; it is also the router." placeholder:"FILE"`
	Rust     string        `help:"The ping on the official Rust implementation, which tools/interop/rust-ping.sh builds; default: rust-ping where bench is." placeholder:"FILE"`
	bench.Env
}

const (
	minRounds = 3
	maxSizes  = 16

	tripBytes  = 8 << 20  // bytes sent as round trips in one turn of a subject
	maxTrips   = 400      // largest number of round trips in one turn
	floodBytes = 32 << 20 // bytes of a flood in one turn
	maxFlood   = 20_000   // most messages in one turn
	minTurn    = 20       // least number of round trips or messages in one turn
)

func (c *Config) check() error {
	if len(c.Sizes) == 0 || len(c.Sizes) > maxSizes {
		return exit.Errorf(exit.Usage, "--size: %d sizes, want 1 to %d", len(c.Sizes), maxSizes)
	}
	return nil
}

// Turn is one subject's result of one round.
type Turn struct {
	Round   int     `json:"round"`             // number of the round
	Subject string  `json:"subject"`           // as in round_trips
	Path    string  `json:"path"`              // direct or router
	Bytes   int     `json:"bytes"`             // bytes, of a message
	Flood   bool    `json:"flood"`             // one way, as fast as possible; false: round trips
	Count   int     `json:"count"`             // messages of a flood, or round trips
	Lost    int     `json:"lost,omitempty"`    // lost messages
	Seconds float64 `json:"seconds"`           // s, time of all messages or round trips
	P50     float64 `json:"p50_us,omitempty"`  // us, median of a round trip
	CPU     float64 `json:"cpu_us"`            // us, CPU time of both ends for each round trip or message
	Mallocs *uint64 `json:"mallocs,omitempty"` // objects, allocated by both ends

	ns []int64
}

// Measure starts all subjects and lets them take turns. The report names subjects that the machine lacks. When ctx
// ends, it reports the complete rounds.
func Measure(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Rust == "" {
		cfg.Rust = stage.Program("", "rust-ping")
	}
	machine := bench.ReadMachine(os.DirFS("/"))
	f, err := startAll(ctx, cfg)
	defer f.end(ctx)
	if err != nil {
		return nil, err
	}
	cfg.Progress("bench: %d pairs are up, measuring for %v\n", len(f.pairs), cfg.Duration)
	if _, err := f.round(ctx, 0); err != nil { // this round is not counted: it fills caches and opens connections
		return nil, err
	}
	var turns []Turn
	began := time.Now()
	for n := 1; n <= minRounds || time.Since(began) < cfg.Duration; n++ {
		some, err := f.round(ctx, n)
		if ctx.Err() != nil && turns != nil {
			break
		} else if err != nil {
			return nil, err
		}
		turns = append(turns, some...)
	}
	return newReport(cfg, machine, f.missing, turns), nil
}

// round lets every pair take its turns; n determines the order of the pairs.
func (f *fixture) round(ctx context.Context, n int) (turns []Turn, err error) {
	for _, p := range bench.Turned(f.pairs, n) {
		for _, size := range f.cfg.Sizes {
			for _, flood := range []bool{false, true} {
				t, err := p.turn(ctx, n, size, flood)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", p.subject, p.path, err)
				}
				turns = append(turns, t)
			}
		}
	}
	return turns, nil
}

func (p *pair) turn(ctx context.Context, round, size int, flood bool) (Turn, error) {
	t := Turn{
		Round:   round,
		Subject: p.subject,
		Path:    p.path,
		Bytes:   size,
		Flood:   flood,
	}
	what := "rtt"
	t.Count = min(max(tripBytes/size, minTurn), maxTrips)
	if flood {
		what = "flood"
		t.Count = min(max(floodBytes/size, minTurn), maxFlood)
	}
	before, counts, err := p.pongMallocs(ctx)
	if err != nil {
		return t, err
	}
	ran := p.runTime()
	a, err := p.ping.do(ctx, what, size, t.Count)
	if err != nil {
		return t, err
	}
	t.CPU = float64((p.runTime() - ran).Microseconds()) / float64(t.Count)
	after, _, err := p.pongMallocs(ctx)
	if err != nil {
		return t, err
	}
	if counts && a.Mallocs != nil {
		n := *a.Mallocs + max(after-before, p.overhead) - p.overhead
		t.Mallocs = &n
	}
	if len(a.NS) == 0 || !flood && len(a.NS) != t.Count || flood && a.Received == nil {
		return t, fmt.Errorf("bench: %s answered %s with %d times, want %d", p.ping.Name, what, len(a.NS), t.Count)
	}
	t.ns = a.NS
	for _, ns := range a.NS {
		t.Seconds += float64(ns) / 1e9
	}
	if flood {
		t.Lost = t.Count - int(*a.Received)
		return t, nil
	}
	slices.Sort(t.ns)
	t.P50 = float64(t.ns[len(t.ns)/2]) / 1e3
	return t, nil
}
