package main

import (
	"context"
	"io"
	"os/signal"
	"syscall"
	"time"

	"edgert/edge/bringup"
	"edgert/internal/exit"
	"edgert/internal/program"
)

type simBusCmd struct {
	Link    string        `help:"Where the device shall appear, such as /tmp/so101." placeholder:"PATH"`
	Unpaced bool          `help:"Answer at once instead of at the baud rate."`
	Faults  string        `help:"YAML script of what goes wrong, and when (docs/simulator.md)." placeholder:"FILE"`
	Motors  bool          `help:"Joints move as measured motors under a load do, instead of the simulated world's ideal ones, which know nothing but goal positions."`
	Baud    int           `help:"Bits per second; default: the arm's own." placeholder:"N"`
	NoFast  bool          `help:"Dynamixel motors whose firmware does not know fast reads."`
	Latency time.Duration `help:"Deliver replies every so often, as an adapter does: 1ms a USB port, 16ms an FTDI chip."`

	GoalLeavesTorque bool   `help:"Feetech motors: a goal that is written to a limp motor leaves it limp; by default it turns torque on, and sources disagree."`
	BootTorque       string `help:"Motors whose torque is on after a power-up: all, or ids such as 2,3; by default none." placeholder:"IDS"`
	BootGoalZero     bool   `help:"Feetech motors: the goal register is 0 after a power-up; by default it is where the joint stands."`
	OverloadYields   bool   `help:"Feetech motors: a goal that takes the load away ends an overload at once; by default only a second without load or torque off does."`
	Weightless       bool   `help:"An arm that loses torque stays where it is; by default shoulder_lift, elbow_flex and wrist_flex sink at 60 degrees a second."`
}

func (simBusCmd) Help() string {
	return `Any program opens it as it would open /dev/ttyACM0: edge-rt, LeRobot, a vendor's tool. docs/simulator.md has what is simulated, and the faults.

Examples:
  edge-rt sim-bus --link /tmp/so101                     then --bus /tmp/so101 elsewhere
  edge-rt sim-bus --robot koch --link /tmp/koch --faults faults.yaml
  edge-rt sim-bus --robot single --link /tmp/one --baud 115200
  edge-rt sim-bus --link /tmp/so101 --motors            joints with weight and friction

Where sources disagree, the default is the reading that is worse for a program: a goal turns a Feetech's torque on (else --goal-leaves-torque), and what
has tripped stays tripped (else --overload-yields). --boot-torque all are motors that hold as soon as they have power.`
}

func (c *cli) simBus(stdout, stderr io.Writer) exit.Code {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	program.OutliveReaders() // it serves others, whoever reads what it says
	s := &c.SimBus
	cfg := bringup.SimBusConfig{Robot: c.Robot, Link: s.Link, Unpaced: s.Unpaced, Faults: s.Faults, Motors: s.Motors, Baud: s.Baud, NoFast: s.NoFast, Latency: s.Latency, Seed: c.Seed,
		GoalLeavesTorque: s.GoalLeavesTorque, BootTorque: s.BootTorque, OverloadYields: s.OverloadYields, BootGoalZero: s.BootGoalZero, Weightless: s.Weightless}
	return complain(stderr, bringup.ServeSimBus(ctx, cfg, stdout))
}
