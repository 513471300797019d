package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

// demonstrated counts the teacher's episodes.
type demonstrated struct {
	Worlds   int `json:"worlds"`
	Episodes int `json:"episodes"`  // episodes that ended as success
	Again    int `json:"again"`     // episodes recorded again
	Bytes    int `json:"bytes"`     // size of the records
	Teleops  int `json:"processes"` // processes of edge-rt teleop
}

const (
	episodeTime = 20 * time.Second // length of an episode; the teacher needs 2 s for a target
	resetTime   = time.Second
	pollEvery   = 100 * time.Millisecond // each poll starts a process; a person reacts no faster
	firstSeed   = 11                     // seed of the first world of demonstrations
)

// demonstrate records the episodes of all worlds, one edge-rt teleop for each.
func (r *round) demonstrate(ctx context.Context) error {
	if err := os.MkdirAll(r.demonstrations(), 0o755); err != nil {
		return err
	}
	r.Found.Demonstrated = demonstrated{}
	for i := range r.worlds {
		if err := r.teachWorld(ctx, firstSeed+i, r.share(i)); err != nil {
			return fmt.Errorf("world %d: %w", firstSeed+i, err)
		}
	}
	d := &r.Found.Demonstrated
	var err error
	if d.Bytes, err = folderBytes(r.demonstrations()); err != nil {
		return err
	}
	if d.Episodes != r.episodes {
		return fmt.Errorf("%d episodes ended as success, want %d", d.Episodes, r.episodes)
	}
	r.result("%d episodes in %d worlds, %d recorded again, %.1f MB", d.Episodes, d.Worlds, d.Again,
		float64(d.Bytes)/1e6)
	return nil
}

// teachWorld lets the teacher show n episodes in one world.
func (r *round) teachWorld(ctx context.Context, seed, n int) (err error) {
	dir, err := os.MkdirTemp("", "circle-") // a socket's path is short
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t, err := lay(ctx, &r.plan, dir, seed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.clear()) }()
	args := append([]string{"teleop", "--fps", strconv.Itoa(fps)}, t.arms(pictures)...)
	args = append(args, "--record", "all", "--record-dir", r.demonstrations(), "--episodes", strconv.Itoa(n),
		"--episode-time", episodeTime.String(), "--reset-time", resetTime.String())
	teleop, err := stage.Start(r.edge(args...))
	if err != nil {
		return err
	}
	defer func() {
		if teleop.Running() {
			err = errors.Join(err, teleop.Stop())
		}
	}()
	last, err := r.teach(ctx, t, teleop, n)
	if err != nil {
		return err
	}
	if err := finish(ctx, teleop, 20*time.Second); err != nil {
		return err
	}
	d := &r.Found.Demonstrated
	d.Worlds++
	d.Teleops++
	d.Episodes += last.Episodes.Success
	d.Again += last.Episodes.Rerecord
	if last.Episodes.Success != n {
		return fmt.Errorf("%d of %d episodes ended as success; %d timeouts, %d failures", last.Episodes.Success, n,
			last.Episodes.Timeout, last.Episodes.Failure)
	}
	return nil
}

// In each episode teach leads until the world has judged the legs, and reports the result. It stops
// after n good episodes, and returns edge-rt's last status.
func (r *round) teach(ctx context.Context, t *table, teleop *stage.Child, n int) (last status, err error) {
	limit := time.Now().Add(r.plan.teach)
	for last.Episodes.Success < n {
		s, err := r.ctl("status")
		switch {
		case ctx.Err() != nil:
			return last, context.Cause(ctx)
		case !teleop.Running():
			return last, errors.Join(errors.New("edge-rt teleop ended before its episodes were there"), teleop.Wait(0))
		case time.Now().After(limit):
			return last, errors.Join(fmt.Errorf("%d of %d episodes within %v; edge-rt is %s, its episodes %s",
				last.Episodes.Success, n, r.plan.teach, s.State, s.Episodes.Phase), err)
		case err == nil && s.Episodes.Phase == "recording":
			if last, err = r.show(ctx, t); err != nil {
				return last, err
			}
		default: // edge-rt starts, or pauses between two episodes
			stage.Sleep(ctx, pollEvery)
		}
	}
	return last, nil
}

// show leads until the arm has reached all targets of an episode or missed one, and reports the result to
// edge-rt. It continues to lead until edge-rt has answered: no frame may show a hand at rest before a new
// target.
func (r *round) show(ctx context.Context, t *table) (s status, err error) {
	begin, _, err := t.hand.sees()
	if err != nil {
		return s, err
	}
	t.hand.lead(true)
	defer t.hand.lead(false)
	limit := time.Now().Add(episodeTime - time.Second)
	for {
		v, _, err := t.hand.sees()
		switch {
		case err != nil:
			return s, fmt.Errorf("the world is gone: %w", err)
		case ctx.Err() != nil:
			return s, context.Cause(ctx)
		case v.Reached >= begin.Reached+r.legs:
			return r.ctl("success")
		case judgement(v.Score)-v.Reached > judgement(begin.Score)-begin.Reached, time.Now().After(limit):
			return r.ctl("rerecord")
		}
		stage.Sleep(ctx, tick)
	}
}

// folderBytes returns the size of all files in a folder.
func folderBytes(dir string) (n int, err error) {
	err = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += int(info.Size())
		}
		return err
	})
	return n, err
}
