package servo_test

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

const (
	boundedFeetech = `
name: warm
calibration: [warm]
baud: 1000000
safety: {overheat_warn: 50, overheat_act: 60, undervoltage_warn: 6.8, undervoltage_act: 6.2}
motors:
  - {name: a, id: 1, model: sts3215, norm: degrees, max_velocity: 100}
  - {name: b, id: 2, model: sts3215, norm: degrees, max_velocity: 100}
`
	boundedAX = `
name: warm
calibration: [warm]
baud: 1000000
settings: {Return_Delay_Time: 0}
safety: {overheat_warn: 50, overheat_act: 60, undervoltage_warn: 10.5, undervoltage_act: 9.9}
motors:
  - {name: a, id: 1, model: ax-12a, norm: degrees, max_velocity: 100}
  - {name: b, id: 2, model: ax-12a, norm: degrees, max_velocity: 100}
`
	boundedX = `
name: warm
calibration: [warm]
baud: 1000000
settings: {Return_Delay_Time: 0, Operating_Mode: 3}
safety: {overheat_warn: 50, overheat_act: 60, undervoltage_warn: 10.8, undervoltage_act: 10.2}
motors:
  - {name: a, id: 1, model: xl430-w250, norm: degrees, max_velocity: 100}
  - {name: b, id: 2, model: xl330-m288, norm: degrees, max_velocity: 100, safety: {undervoltage_warn: 4.5, undervoltage_act: 4.0}}
`
)

// openWarm opens an arm of the given description on the simulator and switches its torque on.
func openWarm(t *testing.T, text string, faults servosim.Script) (*servosim.Bus, *servo.Arm) {
	t.Helper()
	r := rttest.Must(robot.Parse("warm", []byte(text)))(t)
	bus := simOf(t, r, servosim.Config{Faults: faults})
	arm := mustOpen(t, config(bus, r))
	torqueOn(t, arm)
	return bus, arm
}

// held returns the joints that do not follow their goals because of a reaction to a fault.
func held(arm *servo.Arm) robot.Joints {
	r := arm.Reactions()
	return r.Hold | r.Overload | r.Limp
}

// readUntil ticks the arm until so() is true. On a busy host that may take long.
func readUntil(t *testing.T, bus *servosim.Bus, arm *servo.Arm, what string, so func() bool) {
	t.Helper()
	clock, at := rt.KernelClock(), make([]float32, 2)
	for began := clock.Now(); !so(); clock.SleepUntil(clock.Now().Add(5 * time.Millisecond)) {
		tick(t, arm, at)
		for _, s := range bus.States() {
			if s.Fault != 0 {
				t.Fatalf("%s: servo %d complains itself (%02X): the test is of those that do not", what, s.ID, s.Fault)
			}
		}
		if clock.Now().Sub(began) > 20*time.Second {
			hot, volts := arm.Extremes()
			t.Fatalf("%s: not after 20 s; %v C, %v V, warned %02b, held %02b, %v", what, hot, volts, arm.Warned(),
				held(arm), arm.Fatal())
		}
	}
}

// Goal: a motor that gets hotter than its robot's description allows ends the run, even if its firmware reports no
// fault.
func TestBoundOfHeatOnSimulator(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"feetech": boundedFeetech, "ax": boundedAX, "x": boundedX} {
		t.Run(name, func(t *testing.T) {
			bus, arm := openWarm(t, text, servosim.Script{Faults: []servosim.Fault{
				{Kind: "heat", IDs: []uint8{2}, Degrees: 32}, {Kind: "heat", IDs: []uint8{1}, Degrees: 24},
			}})
			readUntil(t, bus, arm, "stop", func() bool { return arm.Fatal() != nil && arm.Warned() == 0b11 })
			err := arm.Fatal()
			rttest.FailsAs(t, err, servo.FaultTemperature, "motor 2 (b)", "overheat_act is 60")
			rttest.Want(t, held(arm), 0, "held (the joint at 54 C to go on)")
		})
	}
}

// Goal: when the supply sags below the description's bound, the joint is held until the supply has
// recovered.
func TestBoundOfTheSupplyOnSimulator(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text            string
		low, mid, whole float64
	}{
		"feetech": {boundedFeetech, 6.0, 6.4, 7.4}, "ax": {boundedAX, 9.6, 10.1, 11.2}, "x": {boundedX, 3.8, 4.2, 5},
	} {
		t.Run(name, func(t *testing.T) {
			bus, arm := openWarm(t, tt.text, servosim.Script{})
			bus.SetSupply(2, tt.mid)
			readUntil(t, bus, arm, "warned", func() bool { return arm.Warned() == 0b10 })
			if held(arm) != 0 {
				t.Errorf("held %02b at %v V, want a warning only",
					held(arm), tt.mid)
			}
			bus.SetSupply(2, tt.low)
			readUntil(t, bus, arm, "held", func() bool {
				return held(arm) == 0b10
			})
			bus.SetSupply(2, tt.whole)
			readUntil(t, bus, arm, "well again", func() bool {
				return held(arm) == 0 && arm.Warned() == 0
			})
			if arm.Fatal() != nil || arm.TorqueLost() != 0 {
				t.Errorf("%v, torque gone %v, want neither", arm.Fatal(), arm.TorqueLost())
			}
		})
	}
}
