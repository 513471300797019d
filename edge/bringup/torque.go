package bringup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"edgert/edge/device"
	"edgert/edge/follow"
	"edgert/internal/exit"
	"edgert/rt"
	"edgert/servo"
	"edgert/servo/robot"
)

// TorqueOffConfig is one edge-rt torque off.
type TorqueOffConfig struct {
	Bus    string // sim, or a serial port
	Robot  string // so101
	OnExit string // of the run, as ExecStopPost= sees it: see leftHolding
}

// TorqueOff makes every motor of the robot limp. It wants no calibration and
// configures nothing, since it is also what systemd calls after an edge that was
// killed: it tells all motors at once, then asks each for a confirmation, with
// the bus's retries, and goes on past those that give none. Its error names
// them.
func TorqueOff(cfg TorqueOffConfig, out io.Writer) error {
	r, err := device.Robot(cfg.Robot)
	switch {
	case err != nil:
		return err
	case cfg.Bus == "":
		return exit.Errorf(exit.Usage, "--bus is missing: give the arm's serial port (edge-rt torque off --bus /dev/ttyACM0), or the --config of its run")
	case cfg.Bus == device.Sim:
		fmt.Fprintln(out, "the simulated arm ended with its edge: nothing is under torque")
		return nil
	case leftHolding(cfg.OnExit):
		fmt.Fprintln(out, "the edge left by itself and holds the arm, as --on-exit hold says: torque stays")
		return nil
	}
	if os.Getenv("SERVICE_RESULT") != "" {
		return ReleaseFor(afterService, cfg.Bus, r, out)
	}
	return Release(cfg.Bus, r, out)
}

// afterService is how long systemd's command after a run tries; a person who asks
// for it is told at once what is missing.
const (
	afterService = 3 * time.Second
	releaseEvery = 50 * time.Millisecond
)

// ReleaseFor is Release until all motors have confirmed it, for so long: whoever
// cleans up after a run does not give up on motors that are silent, or on an
// adapter that is out, for a moment. A port that another program has is its.
func ReleaseFor(patience time.Duration, bus string, r robot.Robot, out io.Writer) error {
	clock := rt.KernelClock()
	for end := clock.Now().Add(patience); ; clock.SleepUntil(clock.Now().Add(releaseEvery)) {
		err := Release(bus, r, out)
		if err == nil || errors.Is(err, servo.ErrPortBusy) || clock.Now() >= end {
			return err
		}
	}
}

// Release makes every motor limp of a robot whose arm is at a port, as soon as
// nobody else has that.
func Release(bus string, r robot.Robot, out io.Writer) error {
	port, err := servo.OpenPortWait(bus, r.Baud, rt.KernelClock(), nil)
	if err != nil {
		return exit.Errorf(exit.Absent, "torque may still be on: %w", err)
	}
	stiff := servo.Release(servo.NewBus(port, r.Baud, r.Protocol(), rt.KernelClock()), r)
	if err := port.Close(); err != nil && stiff == nil {
		return exit.Errorf(exit.Absent, "close %s: %w", bus, err)
	}
	if stiff != nil {
		return exit.Errorf(exit.Absent, "torque may still be on at %s: %w", bus, stiff)
	}
	fmt.Fprintf(out, "torque is off on %d motors at %s\n", len(r.IDs()), bus)
	return nil
}

// leftHolding reports whether the edge whose end we clean up after has held the
// arm on purpose. systemd tells an ExecStopPost= command how the main process
// ended: only one that exited by itself, with a code of exit.Held, has, or one of
// exit.Untouched, which left the arm as the run before did. One that was killed,
// that panicked or hung, or whose service ended in any other way, has not: where
// panics are no signals, a code 2 may be one, and the arm is let go.
//
// Source: systemd.exec(5), $SERVICE_RESULT, $EXIT_CODE, $EXIT_STATUS; the
// service's Environment= is this command's too.
func leftHolding(onExit string) bool {
	result := os.Getenv("SERVICE_RESULT")
	if follow.ExitModes[onExit] != follow.ExitHold || result != "success" && result != "exit-code" || os.Getenv("EXIT_CODE") != "exited" {
		return false
	}
	status, err := strconv.Atoi(os.Getenv("EXIT_STATUS"))
	code := exit.Code(status)
	switch {
	case err != nil:
		return false
	case code == exit.Usage && os.Getenv("GOTRACEBACK") != "crash":
		return false
	}
	return slices.Contains(exit.Held, code) || slices.Contains(exit.Untouched, code)
}
