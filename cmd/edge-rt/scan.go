package main

import (
	"context"

	"edgert/edge/bringup"
)

type scanCmd struct {
	Last uint8 `default:"30" help:"Highest id to ask; ids go up to 252."`
}

func (c *scanCmd) run(ctx context.Context, cfg bringup.Config, named bool) error {
	return bringup.Scan(ctx, bringup.ScanConfig{Config: cfg, Last: min(c.Last, 252), Named: named})
}
