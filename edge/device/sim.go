package device

import (
	"strings"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// OpenSim opens the simulated arm of a seed's world, and the bus to this arm.
func OpenSim(r robot.Robot, seed uint64, clock rt.Clock) (*servosim.Bus, *sim.Live, error) {
	if n := len(r.Motors) - r.Wheels().Len(); n != sim.DOF {
		return nil, nil, exit.Errorf(exit.Usage, "--bus sim simulates %d joints, robot %s has %d", sim.DOF, r.Name, n)
	}
	world := World(seed, clock)
	bus, err := servosim.Open(SimBus(r, world, clock))
	return bus, world, err
}

// Sims are the simulated arms of a run. Each arm has its world.
type Sims struct {
	Seed  uint64 // seed of the first world; each further world has the next seed
	Clock rt.Clock
	arms  []simulated
	still *sim.Live // the cameras' world in a run without simulated arms
}

type simulated struct {
	part  string
	bus   *servosim.Bus
	world *sim.Live
}

// Open opens the simulated arm of a part, and returns the path of its bus.
func (s *Sims) Open(r robot.Robot, part string) (path string, err error) {
	bus, world, err := OpenSim(r, s.Seed+uint64(len(s.arms)), s.Clock)
	if err != nil {
		return "", err
	}
	s.arms = append(s.arms, simulated{part, bus, world})
	return bus.Path(), nil
}

// Len returns the number of simulated arms.
func (s *Sims) Len() int { return len(s.arms) }

// World returns the world that a simulated camera shows: the world of the part whose name begins the camera's name, or
// else the first world. Without simulated arms it is a world without motion.
func (s *Sims) World(camera string) *sim.Live {
	for _, a := range s.arms {
		if a.part != "" && strings.HasPrefix(camera, a.part+"_") {
			return a.world
		}
	}
	if len(s.arms) > 0 {
		return s.arms[0].world
	}
	if s.still == nil {
		s.still = World(s.Seed, s.Clock)
	}
	return s.still
}

// Scores returns the score of each world.
func (s *Sims) Scores() (all []sim.Score) {
	for _, a := range s.arms {
		all = append(all, a.world.Score())
	}
	return all
}

// Score returns the sum of the worlds' scores.
func (s *Sims) Score() (sum sim.Score) {
	for _, a := range s.arms {
		sum.Add(a.world.Score())
	}
	return sum
}

// Close closes the buses.
func (s *Sims) Close() {
	for _, a := range s.arms {
		a.bus.Close()
	}
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

// SimCalibration returns the simulated arm's calibration; a test compares it with
// testdata/demo/so101.json.
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
