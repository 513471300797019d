package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/stage"
)

// edge returns a command of edge-rt that keeps its state in the round's folder.
func (p *plan) edge(args ...string) *exec.Cmd {
	return stage.Edge(p.given.Bin, p.at("state"), args...)
}

// finish waits for a child, and ends it when ctx ends or after the limit.
func finish(ctx context.Context, c *stage.Child, limit time.Duration) error {
	defer context.AfterFunc(ctx, func() { c.Stop() })()
	err := c.Wait(limit)
	return cmp.Or(context.Cause(ctx), err)
}

// output runs a program to its end and returns its output.
func output(ctx context.Context, cmd *exec.Cmd, limit time.Duration) ([]byte, error) {
	c, err := stage.Start(cmd)
	if err != nil {
		return nil, err
	}
	err = finish(ctx, c, limit)
	return c.Stdout(), err
}

// logged runs a program to its end and writes both outputs into a file. An error contains the last lines of the file.
func logged(ctx context.Context, cmd *exec.Cmd, file string, limit time.Duration) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	log := new(stage.Log)
	cmd.Stdout = io.MultiWriter(f, log)
	cmd.Stderr = cmd.Stdout
	c, err := stage.Start(cmd)
	if err != nil {
		return err
	}
	if err := finish(ctx, c, limit); err != nil {
		return fmt.Errorf("%w; %s ends with:\n%s", err, file, log.Tail(15))
	}
	return nil
}

// status is the part of edge-rt ctl's answer that the stages read.
type status struct {
	State, Phase string
	Episodes     episode.Status
}

// ctl sends a command to the running edge.
func (p *plan) ctl(word string) (s status, err error) {
	return s, stage.Ctl(p.given.Bin, p.at("state"), id, word, &s)
}
