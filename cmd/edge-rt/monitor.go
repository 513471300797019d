package main

import (
	"context"
	"os"
	"time"

	"edgert/edge/bringup"
)

type monitorCmd struct {
	Every time.Duration `default:"200ms" help:"Time between tables."`
	Count int           `help:"End after this many tables; 0: when interrupted."`
}

func (c *monitorCmd) run(ctx context.Context, cfg bringup.Config) error {
	live := newTerminal(os.Stdout).tty
	return bringup.Monitor(ctx, bringup.MonitorConfig{Config: cfg, Every: max(c.Every, 20*time.Millisecond), Count: c.Count, Live: live})
}
