package main

import (
	"context"

	"edgert/edge/bringup"
)

type calibrateCmd struct{}

func (c *calibrateCmd) run(ctx context.Context, cfg bringup.Config) error {
	return bringup.Calibrate(ctx, cfg)
}
