package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/stage"
)

const (
	// besideLoads is the longest time until another project's server accepts requests.
	besideLoads = 10 * time.Minute
	// besideLate is the longest time by which a turn may exceed its length.
	besideLate = 2 * time.Minute
)

// beside is a program with another project's server and a client for it. It takes turns with our server.
type beside struct {
	bench.Other
	absent      string // the reason why it is not measured; empty: it is measured
	peer        *stage.Peer
	perS, trips []float64
}

var lerobot = bench.Other{Name: "lerobot"}

// parseBeside reads --beside. LeRobot's own server is reported as absent when no flag names it.
func parseBeside(flags []string) (list []*beside, err error) {
	others, err := bench.ParseBeside(flags)
	for _, o := range others {
		list = append(list, &beside{Other: o})
	}
	if !slices.ContainsFunc(others, func(o bench.Other) bool { return o.Name == lerobot.Name }) {
		list = append(list, &beside{Other: lerobot, absent: "not asked for: --beside lerobot=COMMAND (docs/server.md)"})
	}
	return list, err
}

// start starts the program, whose client sends the pictures in the folder, and waits until it is
// ready. A program that does not get ready is reported as absent.
func (b *beside) start(ctx context.Context, s *stand, pictures string) error {
	if b.absent != "" {
		return nil
	}
	bundle, err := filepath.Abs(s.bundle.Dir)
	if err != nil {
		return err
	}
	cmd := exec.Command("sh", "-c", b.Command)
	cmd.Env = append(os.Environ(), "BENCH_BUNDLE="+bundle, "BENCH_PICTURES="+pictures,
		fmt.Sprintf("BENCH_THREADS=%d", s.cfg.Threads))
	if b.peer, err = stage.StartPeer(cmd); err != nil {
		return err
	}
	line, err := b.peer.Answer(ctx, besideLoads)
	switch {
	case err != nil:
		b.absent = err.Error()
		return context.Cause(ctx)
	case string(line) != "ready":
		b.absent = fmt.Sprintf("it printed %.80q, want ready", line)
	}
	return nil
}

// turn lets the program send requests to its server for a slice. After a failure the program gets
// no more turns.
func (b *beside) turn(ctx context.Context, slice time.Duration) error {
	if b.absent != "" {
		return nil
	}
	var said struct {
		Seconds float64   `json:"seconds"`
		TripMs  []float64 `json:"trip_ms"`
	}
	line, err := b.peer.Ask(ctx, fmt.Sprint(slice.Seconds()), slice+besideLate)
	if err == nil {
		err = json.Unmarshal(line, &said)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		b.absent = fmt.Sprintf("after %d turns: %v", len(b.perS), err)
	case said.Seconds <= 0 || len(said.TripMs) == 0:
		b.absent = fmt.Sprintf("after %d turns: no chunk in %g s", len(b.perS), said.Seconds)
	default:
		b.perS, b.trips = append(b.perS, float64(len(said.TripMs))/said.Seconds), append(b.trips, said.TripMs...)
	}
	return nil
}

// end ends the program; the results of an absent program are not used.
func (b *beside) end() {
	if b.peer == nil {
		return
	}
	if b.absent != "" {
		b.peer.Kill()
	}
	b.peer.End(context.Background())
}

func (b *beside) report() Beside {
	r := Beside{
		Name:      b.Name,
		Absent:    b.absent,
		Rounds:    len(b.perS),
		RoundTrip: bench.SpreadOf(b.trips),
	}
	if len(b.perS) > 0 {
		r.ChunksPerS = bench.Round(report.Median(b.perS))
	}
	return r
}
