package faults

import (
	"cmp"
	"fmt"
	"runtime"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/sim"
)

// The worlds of the comparison by their names.
var worlds = map[string]sim.Rules{"demo": {}, "narrow": sim.Narrow}

// Bounds of a Config.
const (
	contendersMax = 32
	scenariosMax  = 64
)

// Config configures a comparison; its tags are the flags of `bench faults`.
type Config struct {
	Scenarios  []Scenario  `kong:"-"`
	Contenders []Contender `kong:"-"`

	Episodes  int            `range:"2..100000;one has no interval" default:"20" help:"Per cell and contender, each with the same seeds and faults; virtual: an even number, half of them start on each side."`
	FirstSeed uint64         `name:"seed" default:"1000" help:"Of the first world."`
	Duration  time.Duration  `range:"1s..1h" default:"10s" help:"Of an episode."`
	World     string         `default:"demo" enum:"demo,narrow" help:"demo, or narrow: less room beside the post, faster servos, two ticks late."`
	Network   *time.Duration `range:"0s..1m" help:"Virtual: one way, without faults; default 4ms." placeholder:"TIME"`
	Compute   *time.Duration `range:"0s..1m" help:"Virtual: of the policy, without faults; default 20ms." placeholder:"TIME"`
	Quality   int            `range:"0..100;0 is raw pictures" default:"90" help:"Of the JPEG pictures; 0: raw."`
	Cameras   Cameras        `help:"Virtual: further pictures in each observation, such as 2x640x480, for the network; the policy does not see them." placeholder:"NxWxH"`
	Limit     time.Duration  `range:"0s..;0s is none" help:"End early after this time, with the episodes played so far in every cell."`
	Workers   int            `range:"0..256;0 is one per CPU" default:"0" help:"Episodes at once; 0: one per CPU."`
	Bundle    string         `default:"testdata/demo/bundle" help:"The policy." placeholder:"DIR"`
	Plain     string         `default:"testdata/demo/plain" help:"The policy of contenders with +plain." placeholder:"DIR"`
	Bin       string         `help:"Real time: folder of edge-rt and lean-server; default: where bench is." placeholder:"DIR"`
	ORT       string         `name:"ort" env:"LEAN_SERVER_ORT" help:"ONNX Runtime's library." placeholder:"PATH"`
	bench.Env

	live bool // true: in real time, set by Live
}

// Default durations of the network and of the policy in virtual time; flags override them.
const (
	defaultNetwork = 4 * time.Millisecond
	defaultCompute = 20 * time.Millisecond
)

// Cameras are N further cameras with pictures of W x H pixels; the zero value is no further camera.
type Cameras struct{ N, W, H int }

// Limits of Cameras.
const (
	camerasMax = 16
	sideMax    = 4096 // pixels
)

// UnmarshalText parses a number of cameras and their size, as in 2x640x480.
func (c *Cameras) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), "%dx%dx%d", &c.N, &c.W, &c.H)
	if err != nil || string(text) != fmt.Sprintf("%dx%dx%d", c.N, c.W, c.H) || c.N < 1 || c.N > camerasMax ||
		min(c.W, c.H) < 1 || max(c.W, c.H) > sideMax {
		return exit.Errorf(exit.Usage, "%q, want 1 to %d cameras with sides of 1 to %d pixels, as in 2x640x480", text,
			camerasMax, sideMax)
	}
	return nil
}

func (c *Config) check() error {
	if c.Workers == 0 {
		c.Workers = runtime.NumCPU()
	}
	switch {
	case len(c.Scenarios) < 1 || len(c.Scenarios) > scenariosMax:
		return exit.Errorf(exit.Usage, "%d scenarios, want 1 to %d", len(c.Scenarios), scenariosMax)
	case len(c.Contenders) < 1 || len(c.Contenders) > contendersMax:
		return exit.Errorf(exit.Usage, "%d schedules, want 1 to %d", len(c.Contenders), contendersMax)
	case c.Episodes%c.round() != 0:
		return exit.Errorf(exit.Usage, "--episodes is %d, want an even number: half of them start on each side",
			c.Episodes)
	}
	return c.checkTimes()
}

// checkTimes refuses --network, --compute and --cameras in real time. In virtual time it sets the
// defaults of the first two, and refuses them if both are 0.
func (c *Config) checkTimes() error {
	const only = "%s is for --virtual, and real time has %s: add --virtual or leave it out"
	switch {
	case c.live && c.Network != nil:
		return exit.Errorf(exit.Usage, only, "--network", "the network that is there")
	case c.live && c.Compute != nil:
		return exit.Errorf(exit.Usage, only, "--compute", "the policy's own time")
	case c.live && c.Cameras.N > 0:
		return exit.Errorf(exit.Usage, only, "--cameras", "the camera of the simulated arm")
	case c.live:
		c.Network, c.Compute = new(time.Duration), new(time.Duration)
		return nil
	}
	c.Network, c.Compute = cmp.Or(c.Network, new(defaultNetwork)), cmp.Or(c.Compute, new(defaultCompute))
	if *c.Network == 0 && *c.Compute == 0 {
		return exit.Errorf(exit.Usage, "--network and --compute are both 0s, but no answer comes in no time: want "+
			"one of them above 0s, such as --compute 1ms")
	}
	return nil
}

// round returns how many episodes belong together. In virtual time each world is played from both
// sides. The simulated arm of edge-rt always starts on the same side.
func (c *Config) round() int {
	if c.live {
		return 1
	}
	return 2
}

// episode returns the seed and the direction of the i-th episode. No two episodes have both in common.
func (c *Config) episode(i int) (seed uint64, direction int) {
	if c.live {
		return c.FirstSeed + uint64(i), 1 // edge-rt's first target is on the right
	}
	return c.FirstSeed + uint64(i/2), 1 - 2*(i%2)
}
