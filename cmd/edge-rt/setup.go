package main

import (
	"context"

	"edgert/edge/bringup"
)

type setupMotorsCmd struct{}

func (c *setupMotorsCmd) run(ctx context.Context, cfg bringup.Config) error {
	return bringup.SetupMotors(ctx, cfg)
}
