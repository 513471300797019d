package main

import (
	"context"

	"edgert/edge/bringup"
	"edgert/internal/exit"
)

// idMax is the highest id that a motor can have in every protocol.
const idMax = 252

type scanCmd struct {
	Last uint8 `default:"30" help:"Highest id to ask; ids go up to 252."`
}

func (c *scanCmd) run(ctx context.Context, cfg bringup.Config, named bool) error {
	if c.Last > idMax {
		return exit.Errorf(exit.Usage, "--last is %d, want at most %d", c.Last, idMax)
	}
	return bringup.Scan(ctx, bringup.ScanConfig{Config: cfg, Last: c.Last, Named: named})
}
