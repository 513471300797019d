package main

import (
	"context"

	"edgert/edge/bringup"
)

type portsCmd struct {
	Unplug bool `help:"Find the arm's port by unplugging it."`
}

func (c *portsCmd) run(ctx context.Context, cfg bringup.Config) error {
	return bringup.Ports(ctx, bringup.PortsConfig{Config: cfg, Unplug: c.Unplug, Dev: "/dev", Sys: "/sys"})
}
