package main

import (
	"context"
	"os"
	"time"

	"edgert/edge/bringup"
	"edgert/internal/exit"
	"edgert/internal/terminal"
)

type monitorCmd struct {
	Every time.Duration `default:"200ms" help:"Time between tables."`
	Count int           `help:"End after this many tables; 0: when interrupted."`
}

// everyMin is the fastest that people read tables.
const everyMin = 20 * time.Millisecond

func (c *monitorCmd) run(ctx context.Context, cfg bringup.Config) error {
	switch {
	case c.Every < everyMin:
		return exit.Errorf(exit.Usage, "--every is %v, want %v or more", c.Every, everyMin)
	case c.Count < 0:
		return exit.Errorf(exit.Usage, "--count is %d, want 0 (no end) or more", c.Count)
	}
	live := terminal.Is(os.Stdout)
	return bringup.Monitor(ctx, bringup.MonitorConfig{Config: cfg, Every: c.Every, Count: c.Count, Live: live})
}

func (monitorCmd) Help() string {
	return `Changes nothing, so it may run before anything is calibrated. The port must be free: while a run has it, the page of the run (--http) shows its joints.

Examples:
  edge-rt monitor --bus /dev/ttyACM0 --id black         until Ctrl-C
  edge-rt monitor --bus /dev/ttyACM0 --count 1          one table, for a script`
}
