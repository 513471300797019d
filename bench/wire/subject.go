package wire

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/stage"
)

// The subjects.
const (
	native = "native" // our package wire/zenoh
	rust   = "rust"   // the crate zenoh
	Python = "python" // the wheel eclipse-zenoh
	tcp    = "tcp"    // a TCP connection without a protocol
)

// The paths between the ends of a pair.
const (
	direct = "direct" // one end listens, the other dials
	routed = "router" // both ends dial an official router
)

//go:embed ping.py
var pingScript string

// pair is one subject on one path, with both ends running. Owner: measure.
type pair struct {
	subject, path string
	ping, pong    *peer
	overhead      uint64 // number of allocations of the far end that one report of its allocations costs
}

func (p *pair) ends() []*peer { return []*peer{p.pong, p.ping} }

// runTime returns the CPU time of both ends.
func (p *pair) runTime() (sum time.Duration) {
	for _, end := range p.ends() {
		for _, t := range bench.RunTimes(end.PID()) {
			sum += t
		}
	}
	return sum
}

// pongMallocs returns how often the far end has allocated, if its implementation reports that.
func (p *pair) pongMallocs(ctx context.Context) (n uint64, ok bool, err error) {
	if p.subject != native && p.subject != tcp {
		return 0, false, nil
	}
	a, err := p.pong.do(ctx, "mallocs")
	if err != nil || a.Mallocs == nil {
		return 0, false, err
	}
	return *a.Mallocs, true, nil
}

func (p *pair) calibrate(ctx context.Context) error {
	var last uint64
	for range 3 {
		n, _, err := p.pongMallocs(ctx)
		if err != nil {
			return err
		}
		p.overhead, last = n-last, n
	}
	return nil
}

// fixture holds all running parts.
type fixture struct {
	cfg     Config
	router  *peer
	at      string // the router's endpoint
	pairs   []*pair
	missing []string // absent subjects, and how to get them
}

func startAll(ctx context.Context, cfg Config) (*fixture, error) {
	f := &fixture{cfg: cfg}
	hasPython := f.answers(ctx, Python, cfg.Python, "-c", "import zenoh; zenoh.open")
	hasRust := false
	if _, err := os.Stat(cfg.Rust); err == nil {
		hasRust = true
	} else {
		f.missing = append(f.missing, fmt.Sprintf("no %s, so the official Rust implementation does not take part: "+
			"run `tools/interop/rust-ping.sh`, or name the program with --rust", cfg.Rust))
	}
	subjects := []string{native}
	if hasRust {
		subjects = append(subjects, rust)
	}
	if hasPython {
		subjects = append(subjects, Python)
		if err := f.startRouter(ctx); err != nil {
			return f, err
		}
	}
	for _, s := range subjects {
		if err := f.startPair(ctx, s, direct); err != nil {
			return f, err
		}
		if f.router == nil {
			continue
		}
		if err := f.startPair(ctx, s, routed); err != nil {
			return f, err
		}
	}
	return f, f.startPair(ctx, tcp, direct)
}

// answers reports whether the program argv runs without an error. If not, it notes how to install the program.
func (f *fixture) answers(ctx context.Context, subject string, argv ...string) bool {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err == nil {
		return true
	}
	text := strings.TrimSpace(string(out))
	text = text[strings.LastIndexByte(text, '\n')+1:]
	f.missing = append(f.missing, fmt.Sprintf("no official Zenoh for %s (%s: %v %s), so neither it nor a router "+
		"takes part: run `make interop`, or name an interpreter with --python",
		subject, argv[0], err, text))
	return false
}

func (f *fixture) startRouter(ctx context.Context) (err error) {
	if f.at, err = stage.FreeEndpoint(); err != nil {
		return err
	}
	f.router, err = startPeer(ctx, f.argv(Python, "route", "listen", f.at, "router"))
	return err
}

func (f *fixture) startPair(ctx context.Context, subject, path string) (err error) {
	p := &pair{subject: subject, path: path}
	at, how := f.at, "connect"
	if path == direct {
		how = "listen"
		if at, err = stage.FreeEndpoint(); err != nil {
			return err
		}
	}
	key := "bench/" + subject
	if p.pong, err = startPeer(ctx, f.argv(subject, "pong", how, at, key)); err != nil {
		return fmt.Errorf("%s, %s: %w", subject, path, err)
	}
	if p.ping, err = startPeer(ctx, f.argv(subject, "ping", "connect", at, key)); err != nil {
		p.pong.End(ctx)
		return fmt.Errorf("%s, %s: %w", subject, path, err)
	}
	f.pairs = append(f.pairs, p)
	return p.calibrate(ctx)
}

// argv returns the command for one end of a subject; the ends of all subjects take the same four arguments.
func (f *fixture) argv(subject string, end ...string) []string {
	switch subject {
	case rust:
		return append([]string{f.cfg.Rust}, end...)
	case Python:
		return append([]string{f.cfg.Python, "-c", pingScript}, end...)
	}
	return bench.Part(append([]string{"wire", subject}, end...)...).Args
}

func (f *fixture) end(ctx context.Context) {
	for _, p := range f.pairs {
		for _, end := range p.ends() {
			end.End(ctx)
		}
	}
	if f.router != nil {
		f.router.End(ctx)
	}
}
