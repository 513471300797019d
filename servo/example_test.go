package servo_test

import (
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// The example reads the position of the first joint of a simulated SO-101 and moves the joint to 45
// degrees.
func Example() {
	bus, err := servosim.Open(servosim.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer bus.Close()
	r, _ := robot.ByName("so101")
	calibration := servo.Calibration{} // usually servo.LoadCalibration(path)
	for _, m := range r.Motors {
		calibration[m.Name] = servo.MotorCalibration{ID: int(m.ID), RangeMax: 4095}
	}
	arm, err := servo.OpenArm(servo.ArmConfig{Path: bus.Path(), Robot: r, Calibration: calibration})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer arm.Close()

	clock, position := rt.KernelClock(), make([]float32, 6)
	read := func() { arm.Read(position, clock.Now().Add(time.Second)) }
	for armed := false; !armed; { // goal := present, then torque on
		read()
		if armed, err = arm.ArmStep(clock.Now().Add(time.Second), arm.Joints()); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Printf("at %.0f degrees\n", position[0])
	arm.Write([]float32{45, 0, 0, 0, 0, 0}, 0b000001)
	for position[0] < 44.9 {
		read()
	}
	fmt.Printf("at %.0f degrees\n", position[0])
	if err := arm.TorqueOff(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// at 0 degrees
	// at 45 degrees
}
