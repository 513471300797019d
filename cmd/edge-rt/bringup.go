package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"edgert/edge/bringup"
	"edgert/edge/device"
	"edgert/edge/watchdog"
	"edgert/internal/program"
)

// bringupCmds take an arm from its box to its first run.
type bringupCmds struct {
	Ports       portsCmd       `cmd:"" uses:"" help:"List the serial ports; --unplug finds the arm's by pulling its cable."`
	Scan        scanCmd        `cmd:"" uses:"bus,robot,calibration,id" help:"Ask every id at every speed in every protocol which servos are on the bus, and compare with --robot."`
	SetupMotors setupMotorsCmd `cmd:"" uses:"bus,robot,calibration,id" name:"setup-motors" help:"Give each motor of a new arm its id and speed, one at a time."`
	Calibrate   calibrateCmd   `cmd:"" uses:"bus,robot,calibration,id" help:"Find the joints' ranges as LeRobot does; writes the motors and LeRobot's file."`
	Monitor     monitorCmd     `cmd:"" uses:"bus,robot,calibration,id" help:"Show position, load, temperature, supply and errors of every motor. Reads only."`
	Move        moveCmd        `cmd:"" uses:"bus,robot,calibration,id" help:"Move one joint slowly to a position, then let the arm go."`
	Teleop      teleopCmd      `cmd:"" uses:"fps,bus,robot,calibration,id,duration,rt,cpu,rescue,on-exit" help:"Drive the arm with a leader arm, on the same tick."`
}

// handle runs one of the commands; ok is false when it is none of them.
func (b *bringupCmds) handle(ctx *kong.Context, r *runFlags, stdout *os.File) (ok bool, err error) {
	program.OutliveReaders() // what holds a motor, or writes to one, ends by itself
	interrupt, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	arm, err := device.Robot(r.Robot)
	if err != nil {
		return true, err
	}
	cfg := bringup.Config{Place: device.Place{Bus: r.Bus, Robot: arm, ID: r.ID, Calibration: r.Calibration}, In: os.Stdin, Out: stdout}
	switch node := ctx.Selected(); node.Name {
	case "ports":
		err = b.Ports.run(interrupt, cfg)
	case "scan":
		err = b.Scan.run(interrupt, cfg, given(ctx, "robot"))
	case "setup-motors":
		err = b.SetupMotors.run(interrupt, cfg)
	case "calibrate":
		err = b.Calibrate.run(interrupt, cfg)
	case "monitor":
		err = b.Monitor.run(interrupt, cfg)
	case "move":
		err = withWatchdogs(func() error { return b.Move.run(interrupt, cfg) }, armAt{r.Bus, r.Robot})
	case "teleop":
		if err = program.Unused(ctx); err == nil {
			leader := armAt{b.Teleop.Leader, cmp.Or(b.Teleop.LeaderRobot, arm.Name+"_leader")} // its trigger is held
			err = withWatchdogs(func() error { return b.Teleop.run(interrupt, r, arm, stdout) }, armAt{r.Bus, r.Robot}, leader)
		}
	default:
		return false, nil
	}
	return true, err
}

// armAt is an arm, by port and description, that a command has under torque.
type armAt struct{ bus, robot string }

// withWatchdogs runs such a command.
func withWatchdogs(run func() error, arms ...armAt) error {
	var dogs []*watchdog.Watchdog
	instead := "Ctrl-C ends it"
	for _, a := range arms {
		dogs = append(dogs, watchdog.Start(a.bus, a.robot, instead, warnOn(os.Stderr)))
		instead = ""
	}
	err := run()
	for _, w := range dogs { // not when it panics
		w.Stop()
	}
	return err
}

func warnOn(w io.Writer) func(string) {
	return func(text string) { fmt.Fprintf(w, "%s: %s\n", name, text) }
}

// given reports whether the flag stands on the command line.
func given(ctx *kong.Context, flag string) bool {
	for _, p := range ctx.Path {
		if p.Flag != nil && p.Flag.Name == flag {
			return true
		}
	}
	return false
}
