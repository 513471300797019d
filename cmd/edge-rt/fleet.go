package main

import (
	"context"
	"os"
	"time"

	"github.com/edge-rt/edge-rt/bringup"
	"github.com/edge-rt/edge-rt/internal/terminal"
)

type fleetCmd struct {
	Top fleetTopCmd `cmd:"" help:"Show the state of each robot at a server or router; the robots need --telemetry."`
}

type fleetTopCmd struct {
	Every time.Duration `range:"100ms..1h" default:"2s" help:"Time between two views."`
	Once  bool          `help:"Show one view and end; exit code 4 without a robot."`
}

func (fleetTopCmd) Help() string {
	return `One line for each robot, those in trouble first: state, runway (how long its actions last), ticks without an action in the last interval, mean round trip, overruns, service and model. Robots need --telemetry 1s. With TLS use a certificate that may read their keys, such as one under the manifest's routers.

Examples:
  edge-rt fleet top --connect tcp/router:7447
  edge-rt fleet top --connect tcp/router:7447 --once --json -`
}

func (c *fleetTopCmd) Run(flags *cli) error {
	r := &flags.runFlags
	cfg := bringup.FleetConfig{
		Connect: r.transport(),
		Every:   c.Every,
		Once:    c.Once || r.JSON != "",
	}
	if terminal.Is(os.Stdout) {
		cfg.Size = func() (rows, columns int) { return terminal.Size(os.Stdout) }
	}
	return r.report(func(ctx context.Context, out bringup.Config) error {
		cfg.Out, cfg.JSON = out.Out, out.JSON
		return bringup.FleetTop(ctx, cfg)
	})
}
