package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// Outage is a span of time without the server. At is its beginning, counted from the beginning of a trial, and For is
// its length.
type Outage struct {
	At, For time.Duration
	Drain   bool // the server gets SIGTERM; false: SIGKILL
}

// ErrAway is the error of a trial whose server did not come back after an outage.
var ErrAway = errors.New("the server did not come back")

// Trial is a run of edge-rt with a simulated arm, a camera and a server, under faults that are
// data. Fields that are zero have no effect.
type Trial struct {
	Bin, Dir string // folder of the programs; folder of the trial's files and the edge's state
	Server   *Server
	Duration time.Duration
	Grace    time.Duration // time after Duration within which the edge must end
	Flags    []string      // further flags of edge-rt

	Records    string // folder of the records, which have everything (--record all); empty: no records
	Script     []byte // script of --wire-faults
	ScriptSeed uint64
	Outages    iter.Seq[Outage] // outages of the server, one after the other
}

// Summary is the file of edge-rt's summary of the last Play.
func (t *Trial) Summary() string { return filepath.Join(t.Dir, "edge.json") }

// Play runs the edge to its end; the server must run. When ctx ends, Play ends the edge. Play also returns an error if
// the edge ended before its time. It returns ErrAway only if there is no other error.
func (t *Trial) Play(ctx context.Context) error {
	args := SimArm(t.Server.Endpoint, "--duration", t.Duration.String(), "--quiet", "--json", t.Summary())
	if t.Records != "" {
		args = append(args, "--record", "all", "--record-dir", t.Records)
	}
	if t.Script != nil {
		script := filepath.Join(t.Dir, "faults.yaml")
		if err := os.WriteFile(script, t.Script, 0o600); err != nil {
			return err
		}
		args = append(args, "--wire-faults", script, "--fault-seed", strconv.FormatUint(t.ScriptSeed, 10))
	}
	began := time.Now()
	edge, err := Start(Edge(t.Bin, t.Dir, slices.Concat(args, t.Flags)...))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = edge.Stop() })()
	away := make(chan error, 1)
	go func() { away <- t.outages(ctx, began, edge) }()
	err = edge.Wait(t.Duration + t.Grace)
	lost := <-away
	if took := time.Since(began); err == nil && took < t.Duration {
		err = fmt.Errorf("edge-rt ended after %v, want %v: something else has stopped it", took.Round(time.Millisecond),
			t.Duration)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return cmp.Or(err, lost)
}

// outages ends the server and starts it again at the times in Outages, as long as the edge runs.
func (t *Trial) outages(ctx context.Context, began time.Time, edge *Child) error {
	if t.Outages == nil {
		return nil
	}
	pause := func(until time.Duration) (whole bool) {
		select {
		case <-time.After(time.Until(began.Add(until))):
			return true
		case <-edge.Exited():
		case <-ctx.Done():
		}
		return false
	}
	for o := range t.Outages {
		if !pause(o.At) {
			break
		}
		if o.Drain {
			if err := t.Server.Stop(); err != nil {
				return err
			}
		} else {
			t.Server.Kill()
		}
		if !pause(o.At + o.For) {
			break // the server stays away
		}
		if err := t.Server.Start(ctx); err != nil {
			return fmt.Errorf("%w: %w", ErrAway, err)
		}
	}
	return nil
}
