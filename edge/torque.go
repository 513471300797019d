package edge

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"edgert/internal/exit"
	"edgert/rt"
	"edgert/servo"
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
	robot, err := servo.RobotByName(cfg.Robot)
	switch {
	case err != nil:
		return exit.With(exit.Usage, err)
	case cfg.Bus == "":
		return exit.Errorf(exit.Usage, "--bus is missing: give the arm's serial port (edge-rt torque off --bus /dev/ttyACM0), or the --config of its run")
	case cfg.Bus == simName:
		fmt.Fprintln(out, "the simulated arm ended with its edge: nothing is under torque")
		return nil
	case leftHolding(cfg.OnExit):
		fmt.Fprintln(out, "the edge left by itself and holds the arm, as --on-exit hold says: torque stays")
		return nil
	}
	port, err := servo.OpenPort(cfg.Bus, robot.Baud)
	if err != nil {
		return exit.Errorf(exit.Absent, "torque may still be on: %w", err)
	}
	bus := servo.NewBus(port, robot.Baud, rt.KernelClock())
	silent := torqueOff(bus, robot.Motors)
	if err := port.Close(); err != nil && silent == nil {
		return exit.Errorf(exit.Absent, "close %s: %w", cfg.Bus, err)
	}
	if silent != nil {
		return exit.Errorf(exit.Absent, "torque may still be on: %s on %s did not confirm; switch off the motors' supply", strings.Join(silent, ", "), cfg.Bus)
	}
	fmt.Fprintf(out, "torque is off on %d motors at %s\n", len(robot.Motors), cfg.Bus)
	return nil
}

// torqueOff returns the motors that did not confirm.
func torqueOff(bus *servo.Bus, motors []servo.Motor) (silent []string) {
	ids := make([]servo.ID, len(motors))
	for i, m := range motors {
		ids[i] = m.ID
	}
	// Nobody answers this one, so nobody delays the others; what comes of it is
	// asked below.
	sent := bus.SyncWrite(servo.TorqueEnable, ids, make([]uint16, len(ids)))
	for _, m := range motors {
		on, err := 1, sent
		if !errors.Is(err, servo.ErrPortLost) {
			if _, err = bus.WriteRegister(m.ID, servo.TorqueEnable, 0); err == nil {
				on, _, err = bus.ReadRegister(m.ID, servo.TorqueEnable)
			}
		}
		if err != nil || on != 0 {
			silent = append(silent, fmt.Sprintf("motor %d (%s)", m.ID, m.Name))
		}
	}
	return silent
}

// leftHolding reports whether the edge whose end we clean up after has held the
// arm on purpose. systemd tells an ExecStopPost= command how the main process
// ended; one that exited has carried out its --on-exit, one that was killed has
// not.
//
// Source: systemd.exec(5), $SERVICE_RESULT, $EXIT_CODE.
func leftHolding(onExit string) bool {
	return exitModes[onExit] == ExitHold && os.Getenv("SERVICE_RESULT") != "" && os.Getenv("EXIT_CODE") == "exited"
}
