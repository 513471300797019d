package main

import (
	"context"
	"edgert/edge/device"
	"os"
	"time"

	"edgert/edge/teleop"
	"edgert/internal/exit"
	"edgert/rt"
	"edgert/servo/robot"
)

type teleopCmd struct {
	Leader            string `help:"Serial port of the leader arm." placeholder:"PORT"`
	LeaderRobot       string `help:"The leader's description; default: that of --robot with _leader." placeholder:"NAME"`
	LeaderID          string `name:"leader-id" help:"The leader's name, which its calibration file has." placeholder:"NAME"`
	LeaderCalibration string `help:"The leader's calibration file; default: LeRobot's place." placeholder:"FILE"`
}

// teleopFPS is teleop's rate where nobody gives one.
const teleopFPS = 60.0

func (c *teleopCmd) run(ctx context.Context, r *runFlags, follower robot.Robot, stdout *os.File) error {
	mode := map[string]rt.Mode{"auto": rt.ModeAuto, "require": rt.ModeRequire, "off": rt.ModeOff}[r.RT]
	if r.Duration < 0 || r.Duration > 24*time.Hour*365 {
		return exit.Errorf(exit.Usage, "--duration is %v, want 0 (no end) or more", r.Duration)
	}
	fps := teleopFPS
	if r.FPS != nil {
		fps = *r.FPS
	}
	return teleop.Run(ctx, teleop.Config{
		FPS: fps, Duration: r.Duration, RT: mode, CPU: r.CPU, OnExit: r.OnExit, Rescue: r.Rescue, Out: stdout,
		Follower: device.Place{Bus: r.Bus, Robot: follower, ID: r.ID, Calibration: r.Calibration},
		Leader:   device.Place{Bus: c.Leader, ID: c.LeaderID, Calibration: c.LeaderCalibration}, LeaderRobot: c.LeaderRobot,
	})
}

func (teleopCmd) Help() string {
	return `The follower starts slowly from where it stands until it has caught up with the leader. Either arm may be unplugged and plugged in again. At the end --on-exit decides.

Examples:
  edge-rt teleop --leader /dev/ttyACM1 --bus /dev/ttyACM0
  edge-rt teleop --leader /dev/ttyACM1 --leader-id white --bus /dev/ttyACM0 --id black
  edge-rt teleop --robot koch --leader /dev/ttyUSB1 --bus /dev/ttyUSB0 --fps 100`
}
