package bringup

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// TorqueOffConfig holds the settings of edge-rt torque off.
type TorqueOffConfig struct {
	Bus    device.ByPart // sim, or a serial port, for each part
	Robot  string        // so101
	OnExit string        // the run's --on-exit, for a call by ExecStopPost=: see heldOnPurpose

	Leader      device.ByPart // serial port of the run's leader arm, for each part; empty: no leader
	LeaderRobot string        // empty: the robot's name with _leader
}

// TorqueOff sends the command to all motors at once, then asks each motor for a confirmation. Its error names the
// motors that do not confirm. It needs no calibration, because systemd calls it after an edge was killed. It makes a
// leader limp in any case: a take-over may have left the leader under torque, and a run never holds a leader on
// purpose.
func TorqueOff(cfg TorqueOffConfig, out io.Writer) error {
	r, err := device.Robot(cfg.Robot)
	if err != nil {
		return err
	}
	var leader error
	if cfg.Leader.Given() && device.LeaderPort(cfg.Leader.Text()) {
		leader = releaseLeader(cfg, r, out)
	}
	return errors.Join(torqueOff(cfg, r, out), leader)
}

func releaseLeader(cfg TorqueOffConfig, follower robot.Robot, out io.Writer) error {
	r, err := device.Robot(cmp.Or(cfg.LeaderRobot, follower.DefaultLeader()))
	if err != nil {
		return err
	}
	arms, err := device.Places{
		Bus:     cfg.Leader,
		BusFlag: "leader",
		Flags:   "leader-",
		Some:    true,
	}.Of(r)
	if err != nil {
		return err
	}
	arms = slices.DeleteFunc(arms, func(p device.Place) bool { return !device.LeaderPort(p.Bus) })
	return releaseAll(arms, out)
}

func torqueOff(cfg TorqueOffConfig, r robot.Robot, out io.Writer) error {
	arms, err := device.Places{Bus: cfg.Bus, BusFlag: "bus"}.Of(r)
	switch {
	case err != nil:
		return err
	case arms[0].Bus == "":
		return exit.Errorf(exit.Usage, "--bus is missing: give the arm's serial port (edge-rt torque off --bus "+
			"/dev/ttyACM0), or the --config of its run")
	case arms[0].Bus == device.Sim:
		fmt.Fprintln(out, "the simulated arm ended with its edge: nothing is under torque")
		return nil
	case heldOnPurpose(cfg.OnExit):
		fmt.Fprintln(out, "the edge ended by itself and holds the arm, as --on-exit hold demands: torque stays")
		return nil
	}
	return releaseAll(arms, out)
}

// releaseAll makes every arm limp, even if one of them fails.
func releaseAll(arms []device.Place, out io.Writer) error {
	errs := make([]error, len(arms))
	lines := make([]bytes.Buffer, len(arms))
	var all sync.WaitGroup
	for i, arm := range arms { // in parallel, because the tries at a failing bus take seconds
		all.Go(func() {
			if errs[i] = releaseNow(arm.Bus, arm.Robot, &lines[i]); errs[i] != nil && arm.Part != "" {
				errs[i] = fmt.Errorf("part %s: %w", arm.Part, errs[i])
			}
		})
	}
	all.Wait()
	for i := range lines {
		lines[i].WriteTo(out)
	}
	return errors.Join(errs...)
}

func releaseNow(bus string, r robot.Robot, out io.Writer) error {
	if os.Getenv("SERVICE_RESULT") != "" {
		return ReleaseFor(afterService, bus, r, out)
	}
	return release(bus, r, out)
}

// systemd's command repeats release for afterService, with a pause of releaseEvery; an operator's command does not
// repeat it.
const (
	afterService = 3 * time.Second
	releaseEvery = 50 * time.Millisecond
)

// ReleaseFor repeats release until all motors confirm or the timeout is over. It gives up at once
// when another program uses the port.
func ReleaseFor(timeout time.Duration, bus string, r robot.Robot, out io.Writer) error {
	clock := rt.KernelClock()
	for end := clock.Now().Add(timeout); ; clock.SleepUntil(clock.Now().Add(releaseEvery)) {
		err := release(bus, r, out)
		if err == nil || errors.Is(err, servo.ErrPortBusy) || clock.Now() >= end {
			return err
		}
	}
}

func release(bus string, r robot.Robot, out io.Writer) error {
	port, err := servo.OpenPortWait(bus, r.Baud, rt.KernelClock(), nil)
	if err != nil {
		return exit.Errorf(exit.Absent, "torque may still be on: %w", err)
	}
	err = servo.Release(servo.NewBus(port, r.Baud, r.Protocol(), rt.KernelClock()), r)
	if err = errors.Join(err, port.Close()); err != nil {
		return exit.Errorf(exit.Absent, "torque may still be on at %s: %w", bus, err)
	}
	fmt.Fprintf(out, "torque is off on %d motors at %s\n", len(r.IDs()), bus)
	return nil
}

// heldOnPurpose reports whether the run left the arm under torque on purpose. It reads the environment of an
// ExecStopPost= command. The run must have ended with the code exit.Held or exit.Untouched, and not by a kill, a hang
// or a panic. A Go panic ends with code 2, exit.Usage, unless GOTRACEBACK makes it a signal.
//
// Source: systemd.exec(5), $SERVICE_RESULT, $EXIT_CODE, $EXIT_STATUS.
func heldOnPurpose(onExit string) bool {
	result := os.Getenv("SERVICE_RESULT")
	if follow.ExitModes[onExit] != follow.ExitHold || result != "success" && result != "exit-code" ||
		os.Getenv("EXIT_CODE") != "exited" {
		return false
	}
	status, err := strconv.Atoi(os.Getenv("EXIT_STATUS"))
	code := exit.Code(status)
	if err != nil || code == exit.Usage && os.Getenv("GOTRACEBACK") != "crash" {
		return false
	}
	return slices.Contains(exit.Held, code) || slices.Contains(exit.Untouched, code)
}
