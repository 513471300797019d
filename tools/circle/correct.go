package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/stage"
)

// corrected counts the teacher's corrections.
type corrected struct {
	Corrections int            `json:"corrections"`
	Takeovers   int            `json:"takeovers"`
	Ticks       int            `json:"ticks"` // ticks that the teacher drove
	Chunks      int            `json:"chunks"`
	Why         map[string]int `json:"why"`
}

// The conditions under which the teacher takes over the arm. The teacher needs 2 s for a leg.
const (
	legLimit      = 3500 * time.Millisecond
	postNear      = 0.065 // metres from the post's centre; the post has a radius of 0.050
	anywayAfter   = 12 * time.Second
	alignLimit    = 25 * time.Second // edge-rt itself gives up after 15 s
	leadLimit     = 25 * time.Second
	leadMin       = 1500 * time.Millisecond // shortest take-over: a dataset leaves out episodes below a second
	correctSeed   = 51
	serverMargin  = 20 * time.Second
	offlineMargin = "30s"
)

// correct runs the first policy and lets the teacher take over when it errs.
func (r *round) correct(ctx context.Context) (err error) {
	if err := os.MkdirAll(r.correctionRecords(), 0o755); err != nil {
		return err
	}
	r.Found.Corrected = corrected{Why: map[string]int{}}
	server, err := r.serve(ctx, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	dir, err := os.MkdirTemp("", "circle-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t, err := lay(ctx, &r.plan, dir, correctSeed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.clear()) }()
	summary := r.plan.at("corrections.json")
	args := append(t.arms(""), "--connect", server.Endpoint, "--expect-model", r.Found.Bundled[1].SHA256,
		"--max-offline", offlineMargin,
		"--strategy", "dagger", "--episodes", strconv.Itoa(r.corrections), "--record-dir", r.correctionRecords(),
		"--json", summary)
	run, err := stage.Start(r.edge(args...))
	if err != nil {
		return err
	}
	defer func() {
		if run.Running() {
			err = errors.Join(err, run.Stop())
		}
	}()
	if err := r.watch(ctx, t, run); err != nil {
		return err
	}
	if err := finish(ctx, run, serverMargin); err != nil {
		return err
	}
	return r.checkCorrections(summary)
}

// checkCorrections returns an error if the edge's summary differs from the teacher's corrections.
func (r *round) checkCorrections(summary string) error {
	s := edge.Summary{Corrections: new(edge.Corrections)}
	if err := stage.ReadJSON(summary, &s); err != nil {
		return err
	}
	c := &r.Found.Corrected
	c.Takeovers = int(s.Corrections.Takeovers)
	c.Ticks = int(s.Corrections.Ticks)
	c.Chunks = int(s.Chunks)
	r.result("%d corrections, %.1f s of the teacher, %d chunks between them; why: %s", c.Corrections,
		float64(c.Ticks)/fps, c.Chunks, counts(c.Why))
	switch {
	case s.Exit.Code != 0:
		return fmt.Errorf("edge-rt's summary has the code %d", s.Exit.Code)
	case c.Takeovers < r.corrections || c.Corrections != r.corrections:
		return fmt.Errorf("%d take-overs and %d corrections, want %d", c.Takeovers, c.Corrections, r.corrections)
	case c.Ticks < fps*r.corrections:
		return fmt.Errorf("the teacher drove for %d ticks, want a second for each of %d corrections: %d", c.Ticks,
			r.corrections, fps*r.corrections)
	case c.Chunks == 0:
		return errors.New("no chunk of the policy was used between the corrections")
	}
	return nil
}

// watch lets the teacher watch the policy and correct it until there are enough corrections.
func (r *round) watch(ctx context.Context, t *table, run *stage.Child) error {
	limit, back := time.Now().Add(r.plan.correct), time.Now()
	running := false
	for r.Found.Corrected.Corrections < r.corrections {
		v, leg, err := t.hand.sees()
		switch {
		case err != nil:
			return fmt.Errorf("the world is gone: %w", err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !run.Running():
			return errors.Join(errors.New("edge-rt ended before its corrections were there"), run.Wait(0))
		case time.Now().After(limit):
			return fmt.Errorf("%d of %d corrections within %v", r.Found.Corrected.Corrections, r.corrections,
				r.plan.correct)
		}
		if !running { // the first chunk has not come yet
			s, err := r.ctl("status")
			if running = err == nil && s.State == "STREAMING"; running {
				back = time.Now()
			}
			stage.Sleep(ctx, pollEvery)
			continue
		}
		why := trouble(sight{
			tip:   v.Tip(),
			post:  v.Post,
			leg:   min(leg, time.Since(back)),
			since: time.Since(back),
		})
		if why == "" {
			stage.Sleep(ctx, tick)
			continue
		}
		if err := r.takeOver(ctx, t); err != nil {
			return fmt.Errorf("correction %d: %w", r.Found.Corrected.Corrections+1, err)
		}
		r.Found.Corrected.Corrections++
		r.Found.Corrected.Why[why]++
		back = time.Now()
	}
	return nil
}

// takeOver leads the arm to the present target, sometimes also to further targets, and then lets the policy
// drive again.
func (r *round) takeOver(ctx context.Context, t *table) error {
	if err := r.awaitHand(ctx); err != nil {
		return err
	}
	begin, _, err := t.hand.sees()
	if err != nil {
		return err
	}
	t.hand.lead(true)
	defer t.hand.lead(false)
	for began, limit := time.Now(), time.Now().Add(leadLimit); ; {
		v, _, err := t.hand.sees()
		switch {
		case err != nil:
			return fmt.Errorf("the world is gone: %w", err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case v.Reached >= begin.Reached+r.corrected && time.Since(began) > leadMin:
			_, err := r.ctl("resume")
			return err
		case time.Now().After(limit):
			return fmt.Errorf("the teacher reached %d of %d targets within %v", v.Reached-begin.Reached, r.corrected,
				leadLimit)
		}
		stage.Sleep(ctx, tick)
	}
}

// awaitHand requests control of the arm, and returns once the teacher has control.
func (r *round) awaitHand(ctx context.Context) error {
	s, err := r.ctl("correct")
	for limit := time.Now().Add(alignLimit); s.Phase != "correcting"; s, err = r.ctl("status") {
		switch {
		case err != nil:
			return fmt.Errorf("edge-rt ctl correct: %w", err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.Phase != "aligning":
			return fmt.Errorf("the phase is %q after edge-rt ctl correct, want aligning and then correcting", s.Phase)
		case time.Now().After(limit):
			return fmt.Errorf("the leader was not where the arm is within %v", alignLimit)
		}
		stage.Sleep(ctx, pollEvery)
	}
	return err
}
