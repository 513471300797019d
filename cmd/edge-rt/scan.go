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

func (scanCmd) Help() string {
	return `Finds servos of every family at every speed, also new ones and two with one id. With --robot it says what is missing or differs.

Examples:
  edge-rt scan --bus /dev/ttyACM0                       who is there
  edge-rt scan --bus /dev/ttyACM0 --robot so101         is it a whole SO-101
  edge-rt scan --bus /dev/ttyACM0 --last 252            ids above 30, too`
}
