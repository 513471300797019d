package main

import (
	"cmp"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// leaderFlags describe the leader arm of a run or of teleop.
type leaderFlags struct {
	Leader            string `help:"Serial port of a leader arm: beside a policy, for a person to take the arm over (edge-rt ctl correct)." placeholder:"PORT"`
	LeaderRobot       string `help:"The leader's description; default: that of --robot with _leader." placeholder:"NAME"`
	LeaderID          string `name:"leader-id" help:"The leader's name, which its calibration file has." placeholder:"NAME"`
	LeaderCalibration string `help:"The leader's calibration file; default: LeRobot's place." placeholder:"FILE"`
	Takeover          string `default:"key" enum:"key,push" help:"How a person takes the arm over: key (edge-rt ctl correct), or push (that, and a hand that moves the leader)."`
}

func (f *leaderFlags) leaderPlace() device.Place {
	return device.Place{
		Bus:         f.Leader,
		ID:          f.LeaderID,
		Calibration: f.LeaderCalibration,
		Flags:       "leader-",
	}
}

// leaderAt returns the leader's port and description for its watchdog process.
func (f *leaderFlags) leaderAt(follower robot.Robot) armAt {
	return armAt{f.Leader, cmp.Or(f.LeaderRobot, device.LeaderOf(follower))}
}
