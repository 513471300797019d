package main

import (
	"context"

	"edgert/edge/bringup"
)

type setupMotorsCmd struct{}

func (c *setupMotorsCmd) run(ctx context.Context, cfg bringup.Config) error {
	return bringup.SetupMotors(ctx, cfg)
}

func (setupMotorsCmd) Help() string {
	return `For motors as they come from the factory, which all have the same id. Connect one at a time, as it asks, the gripper's first.

Examples:
  edge-rt setup-motors --bus /dev/ttyACM0
  edge-rt setup-motors --bus /dev/ttyUSB0 --robot koch`
}
