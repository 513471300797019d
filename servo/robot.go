package servo

import (
	"fmt"
	"sort"
	"strings"
)

// Motor is one servo of a robot.
type Motor struct {
	Name  string // LeRobot's name, such as elbow_flex
	ID    ID
	Model string // sts3215
	Norm  NormMode
}

// Setting is one register value a robot's motors run with.
type Setting struct {
	Register Register
	Value    int
	Motor    string // the motor it is for; empty for all
}

// Robot is an arm as data: what is on its bus and how it may move.
type Robot struct {
	Name        string
	Motors      []Motor // in the order of states and actions
	Baud        int
	MaxVelocity []float64 // per motor, in its unit per second
	Settings    []Setting // written by OpenArm where they differ
}

// ActionNames returns the keys of a state or an action in their order, such as
// shoulder_pan.pos.
func (r Robot) ActionNames() []string {
	names := make([]string, len(r.Motors))
	for i, m := range r.Motors {
		names[i] = m.Name + ".pos"
	}
	return names
}

// robots lists the arms known by name. An SO-100 and an SO-101 differ in
// printed parts, not on the bus.
var robots = map[string]func() Robot{
	"so100": func() Robot { return soArm("so100") },
	"so101": func() Robot { return soArm("so101") },
}

// RobotByName returns a known arm. It fails with ErrUnknownRobot, naming the
// ones there are.
func RobotByName(name string) (Robot, error) {
	if build, ok := robots[name]; ok {
		return build(), nil
	}
	known := make([]string, 0, len(robots))
	for n := range robots {
		known = append(known, n)
	}
	sort.Strings(known)
	return Robot{}, fmt.Errorf("%w: got %q, want one of %s", ErrUnknownRobot, name, strings.Join(known, ", "))
}

// soArm is the SO-100 and SO-101 follower. The velocities are the no-load speed
// of the slowest STS3215 variant, 0.238 s per 60 degrees at 6 V; the gripper's
// is the same speed over a range of some 85 degrees.
//
// The low gain and the gripper's limits are LeRobot's: P 16 keeps the arm from
// shaking, and the gripper must survive holding on to something. Torque_Limit
// is added to LeRobot's list, since Max_Torque_Limit reaches it only at the
// next power-up.
//
// Source: LeRobot robots/so_follower, configure; motors/feetech, configure_motors.
func soArm(name string) Robot {
	const model = "sts3215"
	return Robot{
		Name: name,
		Motors: []Motor{
			{"shoulder_pan", 1, model, Degrees},
			{"shoulder_lift", 2, model, Degrees},
			{"elbow_flex", 3, model, Degrees},
			{"wrist_flex", 4, model, Degrees},
			{"wrist_roll", 5, model, Degrees},
			{"gripper", 6, model, Range0100},
		},
		Baud:        1_000_000,
		MaxVelocity: []float64{250, 250, 250, 250, 250, 300},
		Settings: []Setting{
			{ReturnDelayTime, 0, ""},
			{MaximumAcceleration, 254, ""},
			{Acceleration, 254, ""},
			{OperatingMode, modePosition, ""},
			{PCoefficient, 16, ""},
			{ICoefficient, 0, ""},
			{DCoefficient, 32, ""},
			{MaxTorqueLimit, 500, "gripper"},
			{TorqueLimit, 500, "gripper"},
			{ProtectionCurrent, 250, "gripper"},
			{OverloadTorque, 25, "gripper"},
		},
	}
}
