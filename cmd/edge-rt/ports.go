package main

import (
	"context"

	"edgert/edge/bringup"
)

type portsCmd struct {
	Unplug bool `help:"Find the arm's port by unplugging it."`
}

func (c *portsCmd) run(ctx context.Context, cfg bringup.Config) error {
	return bringup.Ports(ctx, bringup.PortsConfig{Config: cfg, Unplug: c.Unplug, Dev: "/dev", Sys: "/sys", Proc: "/proc"})
}

func (portsCmd) Help() string {
	return `Names a port by its link below /dev/serial where it has one: ttyACM0 may be ttyACM1 after the next plug.

Examples:
  edge-rt ports                                         what is plugged in
  edge-rt ports --unplug                                which of them is the arm`
}
