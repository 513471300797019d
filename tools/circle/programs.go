package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/stage"
)

// edge returns a command of edge-rt that keeps its state in the round's folder.
func (p *plan) edge(args ...string) *exec.Cmd {
	return stage.Edge(p.bin, p.at("state"), args...)
}

// finish waits for a child, which ends when ctx does or after the limit.
func finish(ctx context.Context, c *stage.Child, limit time.Duration) error {
	select {
	case <-c.Exited():
	case <-ctx.Done():
		c.Stop()
		return context.Cause(ctx)
	case <-time.After(limit):
		c.Stop()
		return exit.Errorf(exit.Failure, "%s did not end within %v", c.Name, limit)
	}
	return c.Wait(0)
}

// output runs a program to its end and returns its output.
func output(ctx context.Context, cmd *exec.Cmd, limit time.Duration) ([]byte, error) {
	c, err := stage.Start(cmd)
	if err != nil {
		return nil, err
	}
	if err := finish(ctx, c, limit); err != nil {
		return nil, err
	}
	return c.Stdout(), nil
}

// logged runs a program to its end, with both outputs in a file, whose end is part of an error.
func logged(ctx context.Context, cmd *exec.Cmd, file string, limit time.Duration) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	c, err := stage.Start(cmd)
	if err != nil {
		return err
	}
	if err := finish(ctx, c, limit); err != nil {
		return fmt.Errorf("%w; %s ends with:\n%s", err, file, lastLines(file, 15))
	}
	return nil
}

// lastLines returns the end of a text file.
func lastLines(file string, n int) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// status is the part of edge-rt ctl's answer that the stages read.
type status struct {
	State    string `json:"state"`
	Phase    string `json:"phase"`
	Error    string `json:"error"`
	Episodes struct {
		Phase    string `json:"phase"`
		Number   int    `json:"number"`
		Success  int    `json:"success"`
		Failure  int    `json:"failure"`
		Timeout  int    `json:"timeout"`
		Rerecord int    `json:"rerecord"`
	} `json:"episodes"`
}

const ctlLimit = 10 * time.Second

// ctl sends a command to the running edge.
func (p *plan) ctl(ctx context.Context, word string) (s status, err error) {
	text, err := output(ctx, p.edge("ctl", word, "--id", id), ctlLimit)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("edge-rt ctl %s: %w", word, err)
	}
	return s, nil
}
