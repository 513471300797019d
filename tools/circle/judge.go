package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/stage"
)

// judged is the score that the simulated worlds give a policy's legs.
type judged struct {
	Reached  int     `json:"reached"`
	Collided int     `json:"collided"`
	TimedOut int     `json:"timed_out"`
	Seconds  float64 `json:"seconds"` // seconds that the arm ran
	Chunks   int     `json:"chunks"`
	Starved  int     `json:"starved_ticks"`
}

// rate returns the share of legs that reached their target and never touched the post.
func (j judged) rate() float64 {
	if n := j.legs(); n > 0 {
		return float64(j.Reached) / float64(n)
	}
	return 0
}

func (j judged) legs() int { return j.Reached + j.Collided + j.TimedOut }

func (j judged) String() string {
	return fmt.Sprintf("%.0f %% (%d of %d legs; %d touched the post, %d took longer than 6 s)", 100*j.rate(), j.Reached,
		j.legs(), j.Collided, j.TimedOut)
}

// judge serves bundle n and runs it in every world.
func (r *round) judge(ctx context.Context, n int) (err error) {
	dir := r.plan.at(fmt.Sprintf("run-%d", n))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	server, err := r.serve(ctx, n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	var all judged
	for _, seed := range r.plan.judge {
		j, err := r.runWorld(ctx, server.Endpoint, n, seed, filepath.Join(dir, fmt.Sprintf("seed-%d.json", seed)))
		if err != nil {
			return fmt.Errorf("world %d: %w", seed, err)
		}
		say("world %d: %s, %d chunks", seed, j, j.Chunks)
		all.Reached += j.Reached
		all.Collided += j.Collided
		all.TimedOut += j.TimedOut
		all.Seconds += j.Seconds
		all.Chunks += j.Chunks
		all.Starved += j.Starved
	}
	r.Found.Judged[n] = all
	r.result("%s, %d chunks", all, all.Chunks)
	return nil
}

// runWorld runs the served policy in one world, and reads its edge's counts.
func (r *round) runWorld(ctx context.Context, endpoint string, n, seed int, summary string) (j judged, err error) {
	run, err := stage.Start(r.edge("--bus", "sim", "--robot", robotName, "--id", id, "--camera", "top=sim", "--task",
		task, "--connect", endpoint,
		"--expect-model", r.Found.Bundled[n].SHA256, "--seed", strconv.Itoa(seed), "--duration", r.judged.String(),
		"--max-offline", offlineMargin,
		"--quiet", "--json", summary))
	if err != nil {
		return j, err
	}
	if err := finish(ctx, run, r.judged+2*time.Minute); err != nil {
		return j, err
	}
	return readSummary(summary)
}

// readSummary reads the counts of a run, and refuses a run in which the policy did not drive.
func readSummary(file string) (j judged, err error) {
	var s edge.Summary
	if err := stage.ReadJSON(file, &s); err != nil {
		return j, err
	}
	j = judged{
		Reached:  s.Targets,
		Collided: s.Collisions,
		TimedOut: s.Timeouts,
		Seconds:  s.Seconds,
		Chunks:   int(s.Chunks),
		Starved:  int(s.StarvedTicks),
	}
	switch {
	case s.Exit.Code != 0:
		err = fmt.Errorf("edge-rt's summary has the code %d: %s", s.Exit.Code, s.Exit.Reason)
	case s.FPS != fps:
		err = fmt.Errorf("edge-rt ran at %g ticks a second, and the policy has %d actions", s.FPS, fps)
	case s.Chunks == 0 || s.Actions == 0:
		err = fmt.Errorf("%d chunks came and %d actions ran, want some of both", s.Chunks, s.Actions)
	}
	return j, err
}
