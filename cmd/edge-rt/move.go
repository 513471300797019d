package main

import (
	"context"

	"edgert/edge/bringup"
)

type moveCmd struct {
	Joint string  `arg:"" help:"The joint, such as elbow_flex."`
	To    float64 `arg:"" help:"Where to, in the joint's unit: degrees, such as -10, or 0 to 100 for a gripper."`
	Speed float64 `default:"0.1" help:"Share of the joint's velocity limit."`
}

func (c *moveCmd) run(ctx context.Context, cfg bringup.Config) error {
	return bringup.Move(ctx, bringup.MoveConfig{Config: cfg, Joint: c.Joint, To: c.To, Speed: c.Speed})
}

func (moveCmd) Help() string {
	return `The other joints are held meanwhile. At the end, and on Ctrl-C, torque goes off: hold on to the arm.

Examples:
  edge-rt move elbow_flex -10 --bus /dev/ttyACM0 --id black
  edge-rt move gripper 50 --speed 0.3 --bus /dev/ttyACM0 --id black`
}
