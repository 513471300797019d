package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/bench/faults"
	"github.com/edge-rt/edge-rt/bench/safety"
	"github.com/edge-rt/edge-rt/record/why"
	"github.com/edge-rt/edge-rt/stage"
)

// Times of a run between edge-rt and lean-server.
const (
	messageRun   = 12 * time.Second
	messageGrace = 30 * time.Second
	everything   = 1<<62 - 1
)

type messageFault struct {
	name, title string
	script      string // name in bench faults, or YAML; empty: no script
	flags       []string
	outages     []stage.Outage
	bundle      string // name of the bundle in the demo's folder; empty: "bundle"
	want        []why.Cause
}

// messageFaults act between edge-rt and lean-server: the scripts of bench faults, and actions on
// the server itself.
var messageFaults = []messageFault{
	{name: "none", title: "no fault", script: "none"},
	{name: "delay_8", title: "a delay of 8 ticks", script: "delay_8"},
	{name: "duplicate", title: "everything twice", script: "duplicate"},
	{name: "third_chunk", title: "every third chunk lost, asked again in time", script: "third_chunk"},
	{
		name:   "loss_chunks",
		title:  "every sixth chunk lost, with LeRobot's own waiting (`--schedule rtc --compat`)",
		script: "faults: [{kind: drop_chunk, nth: 6}]",
		flags:  []string{"--schedule", "rtc", "--compat"},
		want:   one(why.LostBack),
	},
	{
		name:   "loss_observations",
		title:  "every sixth observation lost, likewise",
		script: "faults: [{kind: drop_observation, nth: 6}]",
		flags:  []string{"--schedule", "rtc", "--compat"},
		want:   one(why.LostThere),
	},
	{
		name:   "spikes",
		title:  "answers held back for 1.2 s, every 4 s",
		script: "faults: [{kind: spike, at: 4s, delay: 1200ms, every: 4s}]",
		want:   one(why.NetworkSlow),
	},
	{
		name:   "latency",
		title:  "900 ms for every answer",
		script: "faults: [{kind: latency, delay: 900ms, at: 4s, for: 5s}]",
		want:   one(why.NetworkSlow),
	},
	{
		name:   "nothing",
		title:  "nothing gets through for 2 s",
		script: "faults: [{kind: blackout, at: 5s, for: 2s}]",
		want:   one(why.LinkSilent),
	},
	{
		name:  "sync",
		title: "a schedule that waits (`--schedule sync`)",
		flags: []string{"--schedule", "sync"},
		want:  one(why.Schedule),
	},
	{
		name:  "append",
		title: "a schedule without conditioning (`--schedule append`)",
		flags: []string{"--schedule", "append"},
		want:  one(why.Unconditioned),
	},
	{
		name:  "old",
		title: "`--max-action-age 150ms`",
		flags: []string{"--max-action-age", "150ms"},
		want:  one(why.ActionTooOld),
	},
	{name: "slow", title: "a policy that takes longer than its chunks last", bundle: "slow", want: one(why.SlowPolicy)},
	{
		name:    "restart",
		title:   "server killed, back after 2 s",
		outages: []stage.Outage{{At: 5 * time.Second, For: 2 * time.Second}},
		want:    one(why.ServerGone),
	},
	{
		name:    "drain",
		title:   "server drained (SIGTERM), back after 2 s",
		outages: []stage.Outage{{At: 5 * time.Second, For: 2 * time.Second, Drain: true}},
		want:    one(why.ServerDraining),
	},
}

func one(c why.Cause) []why.Cause { return []why.Cause{c} }

// playMessages plays the message faults among the selected rows. As many run at the same time as
// there are workers.
func playMessages(ctx context.Context, o options, dir string, rows []row) error {
	free := make(chan struct{}, o.Workers)
	var all sync.WaitGroup
	for k := range rows {
		r := &rows[k]
		if r.arm || !r.again() {
			continue
		}
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			place := filepath.Join(dir, r.name)
			err := playMessage(ctx, o, place, slices.IndexFunc(messageFaults, func(f messageFault) bool {
				return f.name == r.name
			}))
			var found []why.Finding
			if err == nil {
				found, err = findings(place)
			}
			if err != nil {
				r.fail(err.Error())
				return
			}
			r.take(found, 0, everything)
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// playMessage runs one edge against one server.
func playMessage(ctx context.Context, o options, dir string, i int) (err error) {
	f := &messageFaults[i]
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	manifest, err := stage.WriteManifest(dir, filepath.Join(o.Tree, cmp.Or(f.bundle, "bundle")))
	if err != nil {
		return err
	}
	if f.bundle != "" { // the bundle's policy may be too slow to warm up
		text, err := os.ReadFile(manifest)
		if err == nil {
			err = os.WriteFile(manifest, append(text, "warmup_inferences: 0\n"...), 0o600)
		}
		if err != nil {
			return err
		}
	}
	server, err := stage.Serve(ctx, o.Bin, manifest, "--audit", filepath.Join(dir, safety.AuditFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	trial := &stage.Trial{
		Bin:        o.Bin,
		Dir:        dir,
		Server:     server,
		Duration:   messageRun,
		Grace:      messageGrace,
		Flags:      append([]string{"--fps", "60", "--id", "arm", "--on-exit", "off"}, f.flags...),
		Records:    dir,
		ScriptSeed: 1,
		Outages:    slices.Values(f.outages),
	}
	if f.script != "" {
		trial.Script = []byte(f.script)
		if s, err := faults.LoadScenario(f.script); err == nil {
			trial.Script = s.Source
		}
	}
	if err := trial.Play(ctx); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}
