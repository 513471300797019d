package bringup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/motor"
	"github.com/edge-rt/edge-rt/sim/scene"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// SimBusConfig holds the settings of edge-rt sim-bus; the tags are its flags.
type SimBusConfig struct {
	Robot string `kong:"-"` // an arm's name or description, or single: one motor of id 1
	Seed  uint64 `kong:"-"`

	Link    device.ByPart `sep:"none" help:"Path of the device, such as /tmp/so101; for a robot of several arms PART=PATH for each, or a PATH that gets the parts' names: /tmp/two_left." placeholder:"PATH"`
	Scene   device.ByPart `sep:"none" help:"Unix socket with the simulated world, for --camera NAME=sim:PATH of another edge-rt; for a robot of several arms as --link." placeholder:"PATH"`
	Unpaced bool          `help:"Answer at once instead of at the baud rate."`
	Faults  device.ByPart `sep:"none" help:"YAML script of faults with their times (docs/simulator.md); for a robot of several arms PART=FILE, or FILE for each." placeholder:"FILE"`
	Power   string        `enum:"part,shared" default:"part" help:"Supply of a robot of several arms: part (each arm has its own) or shared (a fault of kind power, voltage or brownout that names no ids hits every arm)."`
	Motors  bool          `help:"Joints move like measured motors under a load, instead of ideal ones that accept only goal positions."`
	Hand    bool          `help:"A simulated hand moves the limp arm, as edge-rt calibrate asks: the middle pose, then each joint to both ends, again and again; --seed changes how the arm is assembled."`
	Baud    int           `help:"Bits per second; default: the arm's own." placeholder:"N"`
	NoFast  bool          `help:"Dynamixel motors whose firmware has no fast reads."`
	Latency time.Duration `range:"0ms..255ms;more than any adapter's latency timer can be set to" help:"Deliver replies at this interval, like an adapter: 1ms a USB port, 16ms an FTDI chip."`

	// Behaviour that the data sheets do not specify, and in which servos differ.
	GoalLeavesTorque bool   `help:"Feetech motors: a goal leaves a limp motor limp; by default it turns torque on (sources disagree)."`
	BootTorque       string `help:"Motors whose torque is on after power-up: all, or ids such as 2,3; by default no motor." placeholder:"IDS"`
	BootGoalZero     bool   `help:"Feetech motors: the goal register is 0 after power-up; by default it is the joint's position."`
	OverloadYields   bool   `help:"Feetech motors: a goal that takes the load away ends an overload at once; by default only a second without load, or torque off, does."`
	Weightless       bool   `help:"An arm that loses torque stays where it is; by default shoulder_lift, elbow_flex and wrist_flex sink at 60 degrees a second."`
}

const (
	simBusNice    = -10      // niceness of an edge's threads
	singleRobot   = "single" // the name of a bus with one motor
	gearPlay      = 11       // a degree in counts, as measured on an STS3215
	sinkTurns     = 1.0 / 6  // turns a second of sinkingJoints
	encoderNoise  = 1        // counts
	simResolution = 4096     // counts a turn of the encoders in sim.World
)

// armLoads are the loads on a small arm's joints with its upper arm level: gravity and gear play.
var armLoads = []motor.Load{
	{Backlash: gearPlay},
	{Backlash: gearPlay, Gravity: 0.9, Level: 2048},
	{Backlash: gearPlay, Gravity: 0.45, Level: 2048},
	{Backlash: gearPlay, Gravity: 0.12, Level: 2048},
	{Backlash: gearPlay},
	{Backlash: gearPlay},
}

// armBus is one simulated arm: a part of the robot.
type armBus struct {
	name  string // name of the arm in the report
	bus   servosim.Config
	scene string // socket that shows the arm's world; empty: nothing shows it
}

// arms returns the simulated arms, one for each part of the robot.
func (cfg SimBusConfig) arms() ([]armBus, error) {
	r := robot.Robot{Name: singleRobot}
	if cfg.Robot != singleRobot {
		var err error
		if r, err = robot.ByName(userfile.Expand(cfg.Robot)); err != nil {
			return nil, exit.Errorf(exit.Usage, "%w; or %s for one motor", err, singleRobot)
		}
	}
	if cfg.Hand && (cfg.Motors || cfg.Scene.Given() || cfg.Robot == singleRobot) {
		return nil, exit.Errorf(exit.Usage,
			"--hand moves the joints of an arm itself: leave out --motors and --scene, "+
				"and name an arm (--robot so101)")
	}
	withName := func(part, path string) string { return path + "_" + part }
	links, err := cfg.Link.Buses("link", r, withName)
	if err != nil {
		return nil, err
	}
	scenes, err := cfg.Scene.Of("scene", r, withName)
	if err != nil {
		return nil, err
	}
	files, err := cfg.Faults.Of("faults", r, func(_, path string) string { return path })
	if err != nil {
		return nil, err
	}
	arms := make([]armBus, len(links))
	for i, p := range r.Parts() {
		if arms[i].bus, err = cfg.bus(p.Robot, uint64(i), files[i]); err != nil {
			return nil, err
		}
		arms[i].bus.Link = links[i]
		arms[i].scene = scenes[i]
		arms[i].name = cfg.Robot
		if p.Name != "" {
			arms[i].name += " " + p.Name
		}
	}
	if cfg.Power == "shared" {
		sharePower(arms)
	}
	return arms, nil
}

// sharePower gives every arm the faults of each arm's supply.
func sharePower(arms []armBus) {
	var shared []servosim.Fault
	ofSupply := func(f servosim.Fault) bool { return f.OfSupply() && len(f.IDs) == 0 }
	for i := range arms {
		for _, f := range arms[i].bus.Faults.Faults {
			if ofSupply(f) && !slices.ContainsFunc(shared, func(s servosim.Fault) bool {
				return reflect.DeepEqual(s, f)
			}) {
				shared = append(shared, f)
			}
		}
	}
	for i := range arms {
		faults := &arms[i].bus.Faults.Faults
		*faults = append(slices.DeleteFunc(slices.Clone(*faults), ofSupply), shared...)
	}
}

// bus returns the simulated motors of the i-th part, which is the robot r. For an r without motors it returns a single
// motor.
func (cfg SimBusConfig) bus(r robot.Robot, i uint64, faults string) (servosim.Config, error) {
	bus := servosim.Config{
		Servos:           []servosim.Servo{{ID: 1, Model: "sts3215"}},
		Baud:             1_000_000,
		Unpaced:          cfg.Unpaced,
		Latency:          cfg.Latency,
		NoFast:           cfg.NoFast,
		Clock:            rt.KernelClock(),
		Fitted:           true,
		GoalLeavesTorque: cfg.GoalLeavesTorque,
		OverloadYields:   cfg.OverloadYields,
		BootGoalZero:     cfg.BootGoalZero,
	}
	var err error
	if faults != "" {
		if bus.Faults, err = servosim.LoadScript(faults); err != nil {
			return bus, exit.Errorf(exit.Config, "--faults: %w", err)
		}
	}
	if !cfg.Hand || cfg.Seed != 0 { // with seed 0, newHand assembles every arm by the manual
		cfg.Seed += i
	}
	if len(r.Motors) > 0 {
		addMotors(&bus, r, cfg)
	}
	if cfg.Hand {
		h := newHand(r, cfg.Seed, bus.Clock.Now())
		bus.Plant = h
		bus.Watch = h.watch(r.Motors[0].Model)
		bus.Noise = encoderNoise
		bus.Weights = nil
		bus.Loads = nil
	}
	if cfg.Baud != 0 {
		bus.Baud = cfg.Baud
	}
	if bus.BootTorque, err = bootTorque(cfg.BootTorque, bus.Servos); err != nil {
		return bus, exit.With(exit.Usage, err)
	}
	return bus, nil
}

// ServeSimBus serves a simulated bus for each part of a robot to any other program until ctx ends.
func ServeSimBus(ctx context.Context, cfg SimBusConfig, out io.Writer) error {
	if !cfg.Link.Given() {
		return exit.Errorf(exit.Usage, "--link is missing: where the device shall appear, such as --link /tmp/so101")
	}
	arms, err := cfg.arms()
	if err != nil {
		return err
	}
	for _, arm := range arms {
		if arm.scene == "" {
			continue
		}
		shown, err := arm.show()
		if err != nil {
			return err
		}
		defer shown.Close()
	}
	// A client counts late replies as lost, and a real bus is never late.
	_ = rt.NiceProcess(simBusNice)
	buses := make([]*servosim.Bus, len(arms))
	for i, arm := range arms {
		if buses[i], err = cfg.open(arm.bus); err != nil {
			return err
		}
		defer buses[i].Close()
	}
	for i, arm := range arms {
		fmt.Fprintf(out, "%s: %s at %s (%s), %d baud, until SIGTERM\n", arm.name, inventory(arm.bus.Servos),
			arm.bus.Link,
			buses[i].Path(), arm.bus.Baud)
	}
	if cfg.Hand {
		fmt.Fprintln(out, handSays())
	}
	<-ctx.Done()
	for i, b := range buses {
		if len(buses) > 1 {
			fmt.Fprintf(out, "%s: ", arms[i].name)
		}
		c := b.Counters()
		fmt.Fprintf(out, "%d requests, %d replies, %d wrong checksums, %d bytes of garbage, %d faults injected\n",
			c.Requests, c.Replies, c.BadChecksums, c.GarbageBytes, c.Faults)
	}
	return nil
}

func (cfg SimBusConfig) open(bus servosim.Config) (*servosim.Bus, error) {
	b, err := servosim.Open(bus)
	switch {
	case errors.Is(err, servosim.ErrLink):
		return nil, exit.Errorf(exit.Usage, "--link: %w", err)
	case errors.Is(err, servosim.ErrBaud) && cfg.Baud != 0:
		return nil, exit.Errorf(exit.Usage, "--baud: %w", err)
	}
	return b, exit.With(exit.Config, err)
}

// show serves the arm's world at its socket.
func (a armBus) show() (net.Listener, error) {
	world, ok := a.bus.Plant.(*sim.Live)
	if !ok {
		return nil, exit.Errorf(exit.Usage,
			"--scene: only a follower of %d joints without --motors moves in a world that can be shown", sim.DOF)
	}
	shown, err := scene.Listen(a.scene)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--scene: %w", err)
	}
	go scene.Serve(shown, world)
	return shown, nil
}

// addMotors adds a robot's motors to the bus, with the simulated world if the arm fits it.
func addMotors(bus *servosim.Config, r robot.Robot, cfg SimBusConfig) {
	bus.Servos, bus.Baud = nil, r.Baud
	bus.Wheels = r.Wheels().Len()
	fits := len(r.Motors)-bus.Wheels == sim.DOF && !r.Leader
	bus.Weights = nil
	for _, m := range r.Motors {
		var weight servosim.Weight
		if !cfg.Weightless && slices.Contains(sinkingJoints, strings.TrimPrefix(m.Name, "arm_")) {
			weight = servosim.Weight{Rest: m.Model.Resolution / 4, Speed: sinkTurns * float64(m.Model.Resolution)}
		}
		for i, id := range []uint8{m.ID, m.Shadow} {
			if i == 0 || id != 0 {
				bus.Servos = append(bus.Servos, servosim.Servo{ID: id, Model: m.Model.Name})
				bus.Weights = append(bus.Weights, weight)
			}
		}
		fits = fits && m.Shadow == 0 && m.Model.Resolution == simResolution
	}
	switch {
	case cfg.Motors && fits:
		bus.Noise = encoderNoise
		if !cfg.Weightless {
			bus.Loads = append(slices.Clone(armLoads), make([]motor.Load, bus.Wheels)...)
		}
	case cfg.Motors:
		bus.Noise = encoderNoise
	case fits:
		bus.Plant = device.World(cfg.Seed, bus.Clock)
	default:
		bus.Fitted = false
	}
}

// sinkingJoints are the joints that sink without torque, at sinkTurns turns (60 degrees) a second.
var sinkingJoints = []string{"shoulder_lift", "shoulder", "elbow_flex", "elbow", "wrist_flex", "wrist_angle"}

// bootTorque returns the ids of the servos whose torque is on after power-up.
func bootTorque(who string, servos []servosim.Servo) (ids []uint8, err error) {
	switch who {
	case "":
		return nil, nil
	case "all":
		for _, s := range servos {
			ids = append(ids, s.ID)
		}
		return ids, nil
	}
	for word := range strings.SplitSeq(who, ",") {
		id, err := strconv.ParseUint(strings.TrimSpace(word), 10, 8)
		if err != nil || !slices.ContainsFunc(servos, func(s servosim.Servo) bool { return s.ID == uint8(id) }) {
			return nil, fmt.Errorf("--boot-torque is %q, want all or ids of this arm's motors (%s), such as 2,3", who,
				inventory(servos))
		}
		ids = append(ids, uint8(id))
	}
	return ids, nil
}

// inventory returns, as text, the number, the models and the ids of the motors of a bus.
func inventory(servos []servosim.Servo) string {
	var parts []string
	for i, s := range servos {
		if i == 0 || servos[i-1].Model != s.Model {
			parts = append(parts, s.Model)
		}
		parts[len(parts)-1] += fmt.Sprintf(" %d", s.ID)
	}
	return fmt.Sprintf("%d motors (%s)", len(servos), strings.Join(parts, ", "))
}
