package edge

import (
	"context"
	"fmt"
	"io"

	"edgert/internal/exit"
	"edgert/rt"
	"edgert/servo"
	"edgert/servo/servosim"
	"edgert/sim"
)

// SimBusConfig is one edge-rt sim-bus.
type SimBusConfig struct {
	Robot   string // so101, so100, or single: one motor of id 1
	Link    string // path of a symbolic link to the pseudo-terminal
	Unpaced bool   // answer at once instead of at the baud rate
	Seed    uint64
}

// singleRobot is the name of a bus with one motor.
const singleRobot = "single"

// ServeSimBus serves a simulated bus to any other program until ctx ends.
func ServeSimBus(ctx context.Context, cfg SimBusConfig, out io.Writer) error {
	if cfg.Link == "" {
		return exit.Errorf(exit.Usage, "--link is missing: where the device shall appear, such as --link /tmp/so101")
	}
	clock := rt.KernelClock()
	bus := servosim.Config{IDs: []uint8{1}, Unpaced: cfg.Unpaced, Clock: clock, Link: cfg.Link}
	if cfg.Robot != singleRobot {
		robot, err := servo.RobotByName(cfg.Robot)
		if err != nil {
			return exit.With(exit.Usage, fmt.Errorf("%w; or %s for one motor", err, singleRobot))
		}
		bus.IDs = nil
		for _, m := range robot.Motors {
			bus.IDs = append(bus.IDs, uint8(m.ID))
		}
		bus.Plant = sim.NewLive(sim.NewWorld(cfg.Seed, simDirection), clock, clock.Now())
	}
	b, err := servosim.Open(bus)
	if err != nil {
		return exit.With(exit.Config, err)
	}
	defer b.Close()
	fmt.Fprintf(out, "%s: %d motors at %s (%s), until SIGTERM\n", cfg.Robot, len(bus.IDs), cfg.Link, b.Path())
	for ctx.Err() == nil {
		clock.SleepUntil(clock.Now().Add(linkPoll))
	}
	return nil
}
