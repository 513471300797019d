package main

import (
	"context"

	"edgert/edge/bringup"
)

type calibrateCmd struct{}

func (c *calibrateCmd) run(ctx context.Context, cfg bringup.Config) error {
	return bringup.Calibrate(ctx, cfg)
}

func (calibrateCmd) Help() string {
	return `Torque goes off: hold on to the arm. It asks you to put every joint into the middle of its range, and then to move each from end to end. Without an answer nothing is written to the file, but the motors have lost the offsets that they had: a run refuses them until a calibration has ended, or the file of before was written back, which this command offers first when there is one. An arm that LeRobot has calibrated needs none of this.

Examples:
  edge-rt calibrate --bus /dev/ttyACM0 --id black       the file is LeRobot's black.json
  edge-rt calibrate --bus /dev/ttyACM1 --robot so101_leader --id white`
}
