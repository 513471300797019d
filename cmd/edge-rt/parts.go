package main

import (
	"context"
	"strings"

	"github.com/edge-rt/edge-rt/bringup"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
)

// places returns the arms of the robot at --bus, one for each part of the robot.
func (r *runFlags) places() ([]device.Place, error) { return r.placesOf("") }

// placesOf returns the arm of one part of the robot; for an empty part it returns the arms of all parts.
func (r *runFlags) placesOf(part string) ([]device.Place, error) {
	arm, err := device.Robot(r.Robot)
	if err != nil {
		return nil, err
	}
	return r.armFlags(part).Of(arm)
}

func (r *runFlags) armFlags(part string) device.Places {
	return device.Places{
		Bus:         r.Bus,
		Calibration: r.Calibration,
		ID:          r.ID,
		Part:        part,
		BusFlag:     "bus",
	}
}

// whole returns the robot as one place, with the ports of all its parts.
func (r *runFlags) whole() (device.Place, error) {
	places, err := r.places()
	if err != nil {
		return device.Place{}, err
	}
	place := places[0]
	if len(places) > 1 {
		place.Part, place.ID = "", r.ID
		place.Bus, place.Calibration = r.Bus.Text(), r.Calibration.Text()
		place.Robot, err = device.Robot(r.Robot)
	}
	return place, err
}

// place returns the arm at --bus, for a command that drives one arm.
func (r *runFlags) place() (device.Place, error) {
	places, err := r.places()
	if err != nil {
		return device.Place{}, err
	}
	if len(places) > 1 {
		return device.Place{}, exit.Errorf(exit.Usage,
			"--robot %s has %d parts, and this command drives one arm: name "+
				"the arm's own description, such as edge-rt teleop %s", r.Robot, len(places), places[0].Command())
	}
	return places[0], nil
}

// arms returns the arms of the run for their watchdog processes. It leaves out arms whose flags
// have errors; the run itself reports these errors.
func (r *runFlags) arms() (arms []armAt) {
	places, _ := r.places()
	leaders, _ := r.leaderPlaces(r.Robot)
	for _, p := range append(places, leaders...) {
		if device.LeaderPort(p.Bus) { // a leader on another machine has its watchdog process there
			arms = append(arms, armAt{p.Bus, p.Robot.Flag()})
		}
	}
	return arms
}

// placeOf returns the arm of a joint, and the joint's name without the arm's name: for
// left_elbow_flex the arm left, and elbow_flex.
func (r *runFlags) placeOf(joint string) (device.Place, string, error) {
	arm, err := device.Robot(r.Robot)
	if err != nil {
		return device.Place{}, "", err
	}
	if len(arm.Parts()) == 1 {
		place, err := r.place()
		return place, joint, err
	}
	for _, part := range arm.Parts() {
		for _, m := range part.Robot.Motors {
			if part.Prefix()+m.Name != joint {
				continue
			}
			places, err := r.placesOf(part.Name)
			if err != nil {
				return device.Place{}, "", err
			}
			return places[0], m.Name, nil
		}
	}
	return device.Place{}, "", exit.Errorf(exit.Usage, "no joint %q: a %s has %s", joint, arm.Name,
		strings.Join(arm.JointNames(), ", "))
}

// command returns the text of a command with the flags that describe the robot.
func (r *runFlags) command(name string) string {
	arm, err := device.Robot(r.Robot)
	if err != nil {
		return "edge-rt " + name
	}
	return "edge-rt " + name + " " + r.armFlags("").Command(arm)
}

// partFlag is the flag that selects one arm of a robot of several arms.
type partFlag struct {
	Part string `help:"Only this arm of a robot of several, such as left; --bus PORT is then its port." placeholder:"NAME"`
}

// eachPart runs a command for the selected arms one after the other. The parameter next is the command that
// eachPart then recommends.
func (f partFlag) eachPart(flags *cli, next string, run func(context.Context, bringup.Config) error) error {
	places, err := flags.placesOf(f.Part)
	if err != nil {
		return err
	}
	return flags.bringupAt(places[0], func(ctx context.Context, cfg bringup.Config) error {
		if places[0].Part == "" {
			return run(ctx, cfg)
		}
		return bringup.EachPart(cfg, places, flags.command(next), func(cfg bringup.Config) error {
			return run(ctx, cfg)
		})
	})
}
