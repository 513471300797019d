// Package bus measures the servo driver: how long a cycle of sync write and sync read takes, compared with the time of
// its bytes on the wire, how much CPU time it costs, and how much longer a cycle with a lost reply takes.
//
// Most of a cycle is spent on the wire, in the port and in the scheduler. So a C program (echo/echo.c) writes the same
// bytes to the same port and counts the bytes of the replies, in slices that alternate with the driver's. The result
// is the ratio of the durations of their cycles.
//
// For a robot of several parts the driver reads all buses in one tick. Its slices alternate with slices of the driver
// on the first bus alone, and of the C program on all buses.
//
// Without a port the bus is the process edge-rt sim-bus, and a second simulated bus drops some replies.
package bus

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/stage"
)

// Config configures a measurement; its tags are the flags of `bench bus`.
type Config struct {
	Robot    string        `default:"so101" help:"A robot that edge-rt knows, such as bi_so101, or a description FILE.yaml."`
	Port     device.ByPart `name:"bus" sep:"none" help:"Serial port of a real arm, PART=PORT for each of several; default: edge-rt sim-bus. Goals are its position; some servos take torque by them until the end: support the arm." placeholder:"PORT"`
	Baud     int           `help:"Of the simulator; default: the arm's own." placeholder:"N"`
	Plain    bool          `help:"Simulated Dynamixel motors that do not know fast sync reads."`
	FPS      float64       `range:"1..1000" name:"fps" default:"100" help:"Cycles per second."`
	Duration time.Duration `default:"1m" help:"Of driver and C echo together; losing replies takes half as long again."`
	Slice    time.Duration `range:"500ms.." default:"1s" help:"Each in turn runs for this long; short ones find a host that steals no time."`
	Awake    bool          `help:"Keep the cores from falling asleep, with a thread of the lowest class on each: a virtual core that sleeps is lent to others and comes back late. It uses up a container's quota."`
	Drop     float64       `range:"0..0.5" default:"0.02" help:"Share of the replies that the simulator loses in the last part; 0: no such part."`
	Bin      string        `help:"Folder of edge-rt; default: where bench is." placeholder:"DIR"`
	bench.Env
}

func (c *Config) check() (r robot.Robot, err error) {
	switch {
	case c.Duration < 2*c.Slice:
		return r, exit.Errorf(exit.Usage, "--slice is %v and --duration %v, want two of them in it", c.Slice,
			c.Duration)
	case c.Slice.Seconds()*c.FPS < 1:
		return r, exit.Errorf(exit.Usage, "--slice is %v, want a cycle in it: %v at --fps %g", c.Slice,
			time.Duration(float64(time.Second)/c.FPS), c.FPS)
	case c.Port.Given() && (c.Plain || c.Baud != 0):
		return r, exit.Errorf(exit.Usage, "--plain and --baud are the simulator's; with --bus the motors decide")
	}
	if r, err = robot.ByName(c.Robot); err != nil {
		return r, exit.With(exit.Usage, err)
	}
	if r.Leader {
		return r, exit.Errorf(exit.Usage, "--robot %s is moved by hand and takes no goals; want a follower", c.Robot)
	}
	if c.Baud != 0 {
		r.Baud = c.Baud
	}
	_, err = c.places(r)
	return r, err
}

// places returns the robot's buses with their ports. Without --bus the ports are empty, and c.simulators sets them.
func (c *Config) places(r robot.Robot) (all []place, err error) {
	ports, err := c.Port.Buses("bus", r, nil)
	if err != nil {
		return nil, err
	}
	for i, p := range r.Parts() {
		if c.Baud != 0 {
			p.Robot.Baud = c.Baud
		}
		all = append(all, place{p.Robot, ports[i]})
	}
	return all, nil
}

// Measure runs the slices.
func Measure(ctx context.Context, cfg Config) (*Report, error) {
	r, err := cfg.check()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "bench-bus-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	echo, err := compile(folder, "echo", echoSource)
	if err != nil {
		return nil, err
	}
	places, err := cfg.places(r)
	if err != nil {
		return nil, err
	}
	report := &Report{
		Bench:   "bus",
		Version: cfg.Version,
		Robot:   r.Name,
		Buses:   len(places),
		Baud:    places[0].robot.Baud,
		FPS:     cfg.FPS,
		Port:    cfg.Port.Text(),
		Awake:   cfg.Awake,
		Motors:  len(r.Motors),
		Machine: bench.ReadMachine(os.DirFS("/")),
		places:  places,
	}
	if len(places) > 1 {
		report.OneBus = new(Subject)
	}
	if !cfg.Port.Given() {
		stop, err := cfg.simulators(folder, "clean", 0, places)
		defer stop()
		if err != nil {
			return nil, err
		}
	}
	var a *awake
	if cfg.Awake {
		if a, err = stayAwake(folder); err != nil {
			return nil, err
		}
		defer a.stop()
	}
	if err := cfg.turns(ctx, places, echo, report, a); err != nil {
		return nil, err
	}
	if cfg.Drop > 0 && !cfg.Port.Given() {
		if err := cfg.losses(ctx, slices.Clone(places), folder, report, a); err != nil {
			return nil, err
		}
	}
	if err := a.stop(); err != nil {
		return nil, err
	}
	report.sum()
	return report, nil
}

func (c *Config) turns(ctx context.Context, places []place, echo string, report *Report, a *awake) error {
	rounds := int(c.Duration / (2 * c.Slice))
	for i := range rounds {
		if err := a.check(); err != nil {
			return err
		}
		d, err := drive(ctx, places, c.FPS, c.Slice, c.Slice, a)
		if err != nil {
			return err
		}
		if err := report.addDriver(d); err != nil {
			return err
		}
		var one *driverSlice
		if len(places) > 1 {
			if one, err = drive(ctx, places[:1], c.FPS, c.Slice, c.Slice, a); err != nil {
				return err
			}
			report.OneBus.add(one.samples, report.traffic[0].in)
			report.count(one)
		}
		before := a.host()
		e, err := runEcho(ctx, echo, places, c.FPS, c.Slice, report)
		if err != nil {
			return err
		}
		report.Echo.add(e, report.BytesIn)
		report.addPair(d, one, e, a.host().CalmSince(before))
		c.Progress("round %d of %d: driver p99 %.0f us, echo p99 %.0f us\n", i+1, rounds,
			report.Driver.tally.Quantile(0.99), report.Echo.tally.Quantile(0.99))
	}
	return nil
}

func (c *Config) losses(ctx context.Context, places []place, folder string, report *Report, a *awake) error {
	stop, err := c.simulators(folder, "lossy", c.Drop, places)
	defer stop()
	if err != nil {
		return err
	}
	d, err := drive(ctx, places, c.FPS, c.Duration/2, c.Slice, a)
	if err != nil {
		return err
	}
	report.addLosses(d)
	return nil
}

// simulators starts a simulator for each place, and sets the place's port. The parameter drop is the share of the
// replies that a simulator drops. The function stop ends all simulators.
func (c *Config) simulators(folder, name string, drop float64, places []place) (stop func(), err error) {
	var all []*stage.Child
	stop = func() {
		for _, sim := range all {
			_ = sim.Stop()
		}
	}
	for i := range places {
		p := &places[i]
		p.port = filepath.Join(folder, fmt.Sprint(name, i))
		args := []string{"--robot", p.robot.Flag()}
		if c.Baud != 0 {
			args = append(args, "--baud", fmt.Sprint(c.Baud))
		}
		if c.Plain {
			args = append(args, "--no-fast")
		}
		if drop > 0 {
			script := p.port + ".yaml"
			text := fmt.Sprintf("seed: %d\nfaults:\n  - {kind: drop, from: 2s, probability: %g}\n", i+1, drop)
			if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
				return stop, err
			}
			args = append(args, "--faults", script)
		}
		sim, err := stage.StartSimBus(c.Bin, p.port, args...)
		if err != nil {
			return stop, err
		}
		all = append(all, sim)
	}
	return stop, nil
}
