// Command arm prints the positions of an SO-101 in degrees for three seconds. It switches no torque on: move the arm by
// hand. Without a port it reads a simulated arm.
//
//	go run ./examples/arm                                    # a simulated arm
//	go run ./examples/arm /dev/ttyACM0 calibration.json      # a real one, with LeRobot's calibration file
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "arm:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	r, err := robot.ByName("so101")
	if err != nil {
		return err
	}
	cfg := servo.ArmConfig{Robot: r}
	switch len(args) {
	case 0:
		bus, err := servosim.Open(servosim.Config{})
		if err != nil {
			return err
		}
		defer bus.Close()
		cfg.Path = bus.Path()
		cfg.Calibration = servo.Calibration{}
		for _, m := range r.Motors {
			cfg.Calibration[m.Name] = servo.MotorCalibration{ID: int(m.ID), RangeMax: 4095}
		}
	case 2:
		cfg.Path = args[0]
		cfg.File = args[1]
		if cfg.Calibration, err = servo.LoadCalibration(args[1]); err != nil {
			return err
		}
	default:
		return fmt.Errorf("got %d arguments, want none, or a serial port and a calibration file", len(args))
	}
	arm, err := servo.OpenArm(cfg)
	if err != nil {
		return err
	}
	defer arm.Close()
	clock := rt.KernelClock()
	positions := make([]float32, len(r.Motors))
	for range 30 {
		stale := arm.Read(positions, clock.Now().Add(50*time.Millisecond))
		fmt.Printf("%7.1f  joints without a reply: %b\n", positions, stale)
		clock.SleepUntil(clock.Now().Add(100 * time.Millisecond))
	}
	return nil
}
