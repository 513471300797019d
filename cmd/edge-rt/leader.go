package main

import (
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// leaderFlags are the flags that describe the leader arm of a run or of teleop.
type leaderFlags struct {
	Leader            device.ByPart `sep:"none" help:"Serial port of a leader arm; for one on another machine (edge-rt leader) zenoh:NAME, or zenoh:NAME@ENDPOINT to dial it. In a run, a person can take the arm over with it (edge-rt ctl correct). jog: keys and the page's buttons instead of a leader." placeholder:"PORT"`
	LeaderRobot       string        `help:"The leader's description; default: that of --robot with _leader." placeholder:"NAME"`
	LeaderID          string        `name:"leader-id" help:"The leader's name, and that of its calibration file." placeholder:"NAME"`
	LeaderCalibration device.ByPart `sep:"none" help:"The leader's calibration file; default: LeRobot's place." placeholder:"FILE"`
	Takeover          string        `default:"key" enum:"key,push" help:"How a person takes the arm over: key (tab, or edge-rt ctl correct), or push (also by moving the leader)."`
}

// leaderPlace returns the leader as one place, with the ports of all its parts. The caller sets the place's Robot
// later, to fit the follower.
func (f *leaderFlags) leaderPlace() device.Place {
	return device.Place{
		Bus:         f.Leader.Text(),
		ID:          f.LeaderID,
		Calibration: f.LeaderCalibration.Text(),
		Flags:       "leader-",
	}
}

// leaderPlaces returns the leader arms of a follower's parts, in the order of the parts. The result has no entry for a
// part without a leader.
func (f *leaderFlags) leaderPlaces(follower string) ([]device.Place, error) {
	if !f.Leader.Given() {
		return nil, nil
	}
	name := f.LeaderRobot
	if name == "" {
		arm, err := device.Robot(follower)
		if err != nil {
			return nil, err
		}
		name = arm.DefaultLeader()
	}
	leader, err := device.Robot(name)
	if err != nil {
		return nil, err
	}
	return f.placesOf(leader)
}

func (f *leaderFlags) placesOf(r robot.Robot) ([]device.Place, error) {
	return device.Places{
		Bus:         f.Leader,
		Calibration: f.LeaderCalibration,
		ID:          f.LeaderID,
		Flags:       "leader-",
		BusFlag:     "leader",
		Some:        true,
	}.Of(r)
}
