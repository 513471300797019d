package device

import (
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// OpenSim opens the simulated arm of a seed's world, on a bus of its own.
func OpenSim(r robot.Robot, seed uint64, clock rt.Clock) (*servosim.Bus, *sim.Live, error) {
	if n := len(r.Motors) - r.Wheels().Len(); n != sim.DOF {
		return nil, nil, exit.Errorf(exit.Usage, "--bus sim simulates %d joints, robot %s has %d", sim.DOF, r.Name, n)
	}
	world := World(seed, clock)
	bus, err := servosim.Open(SimBus(r, world, clock))
	return bus, world, err
}

// SimBus returns the configuration of a simulated arm's bus.
func SimBus(r robot.Robot, plant servosim.Plant, clock rt.Clock) servosim.Config {
	cfg := servosim.Config{
		Plant:  plant,
		Clock:  clock,
		Baud:   r.Baud,
		Wheels: r.Wheels().Len(),
	}
	for _, m := range r.Motors {
		cfg.Servos = append(cfg.Servos, servosim.Servo{ID: m.ID, Model: m.Model.Name})
	}
	return cfg
}

// SimCalibration returns the simulated arm's calibration; a test compares testdata/demo/so101.json.
func SimCalibration(r robot.Robot) servo.Calibration {
	c := servo.Calibration{}
	for _, m := range r.Motors {
		k := servo.MotorCalibration{ID: int(m.ID), RangeMax: m.Model.MaxRaw()}
		if m.Norm == robot.Range0100 {
			k.RangeMin, k.RangeMax = 1000, 3000
		}
		c[m.Name] = k
	}
	return c
}

// World returns a seed's simulated world, which starts now with its first target on the right.
func World(seed uint64, clock rt.Clock) *sim.Live {
	return sim.NewLive(sim.NewWorld(seed, 1), clock, clock.Now())
}
