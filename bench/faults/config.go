package faults

import (
	"cmp"
	"runtime"
	"time"

	"edgert/bench"
	"edgert/internal/exit"
	"edgert/internal/fleet"
	"edgert/sim"
)

// The worlds of the comparison, the default first.
var worlds = map[string]sim.Rules{"demo": {}, "narrow": sim.Narrow}

// worldNames lists the worlds.
var worldNames = []string{"demo", "narrow"}

// Bounds of a Config.
const (
	episodesMax   = 100_000
	durationMax   = time.Hour
	oneWayMax     = time.Minute // of the network, and of an answer
	qualityMax    = 100
	contendersMax = 32
	scenariosMax  = 64
)

// Config says what to compare; its tags are the flags of `bench faults`.
type Config struct {
	Scenarios  []Scenario  `kong:"-"`
	Contenders []Contender `kong:"-"`

	Episodes  int            `default:"20" help:"Per cell and contender, each with the same seeds and faults; virtual: an even number, half of them start on each side."`
	FirstSeed uint64         `name:"seed" default:"1000" help:"Of the first world."`
	Duration  time.Duration  `default:"10s" help:"Of an episode."`
	World     string         `default:"demo" enum:"demo,narrow" help:"demo, or narrow: less room beside the post, faster servos, two ticks late."`
	Network   *time.Duration `help:"Virtual: one way, without faults; default 4ms." placeholder:"TIME"`
	Compute   *time.Duration `help:"Virtual: of the policy, without faults; default 20ms." placeholder:"TIME"`
	Quality   int            `default:"90" help:"Of the JPEG pictures; 0: raw."`
	Limit     time.Duration  `help:"End early after this time, with the episodes played so far in every cell."`
	Workers   int            `default:"0" help:"Episodes at once; 0: one per CPU."`
	Bundle    string         `default:"testdata/demo/bundle" help:"The policy." placeholder:"DIR"`
	Plain     string         `default:"testdata/demo/plain" help:"The policy of contenders with +plain." placeholder:"DIR"`
	Bin       string         `help:"Real time: folder of edge-rt and lean-server; default: where bench is." placeholder:"DIR"`
	ORT       string         `name:"ort" env:"LEAN_SERVER_ORT" help:"ONNX Runtime's library." placeholder:"PATH"`
	bench.Env

	live bool // Live sets it
}

// The times of virtual time unless a flag names them.
const (
	defaultNetwork = 4 * time.Millisecond
	defaultCompute = 20 * time.Millisecond
)

func (c *Config) check() error {
	if c.Workers == 0 {
		c.Workers = runtime.NumCPU()
	}
	if c.World == "" {
		c.World = worldNames[0]
	}
	if _, ok := worlds[c.World]; !ok {
		return exit.Errorf(exit.Usage, "--world is %q, want one of %v", c.World, worldNames)
	}
	switch {
	case len(c.Scenarios) < 1 || len(c.Scenarios) > scenariosMax:
		return exit.Errorf(exit.Usage, "%d scenarios, want 1 to %d", len(c.Scenarios), scenariosMax)
	case len(c.Contenders) < 1 || len(c.Contenders) > contendersMax:
		return exit.Errorf(exit.Usage, "%d schedules, want 1 to %d", len(c.Contenders), contendersMax)
	case c.live && (c.Episodes < 2 || c.Episodes > episodesMax):
		return exit.Errorf(exit.Usage, "--episodes is %d, want 2 to %d: one has no interval", c.Episodes, episodesMax)
	case c.Episodes < 2 || c.Episodes%c.round() != 0 || c.Episodes > episodesMax:
		return exit.Errorf(exit.Usage, "--episodes is %d, want an even number, 2 to %d: half of them start on each side", c.Episodes, episodesMax)
	case c.Duration < time.Second || c.Duration > durationMax:
		return exit.Errorf(exit.Usage, "--duration is %v, want 1s to %v", c.Duration, durationMax)
	case c.Workers < 1 || c.Workers > 256:
		return exit.Errorf(exit.Usage, "--workers is %d, want 1 to 256", c.Workers)
	case c.Limit < 0:
		return exit.Errorf(exit.Usage, "--limit is %v, want a time, or 0s for none", c.Limit)
	case c.Quality < 0 || c.Quality > qualityMax:
		return exit.Errorf(exit.Usage, "--quality is %d, want 1 to %d, or 0 for raw pictures", c.Quality, qualityMax)
	}
	return c.checkTimes()
}

// checkTimes refuses times that virtual time cannot play, and all in real time.
func (c *Config) checkTimes() error {
	const only = "%s is for --virtual, and real time has %s: add --virtual or leave it out"
	switch {
	case c.live && c.Network != nil:
		return exit.Errorf(exit.Usage, only, "--network", "the network that is there")
	case c.live && c.Compute != nil:
		return exit.Errorf(exit.Usage, only, "--compute", "the policy's own time")
	case c.live:
		c.Network, c.Compute = new(time.Duration), new(time.Duration)
		return nil
	}
	c.Network, c.Compute = cmp.Or(c.Network, new(defaultNetwork)), cmp.Or(c.Compute, new(defaultCompute))
	switch {
	case *c.Network < 0 || *c.Network > oneWayMax:
		return exit.Errorf(exit.Usage, "--network is %v, want 0s to %v", *c.Network, oneWayMax)
	case *c.Compute < 0 || *c.Compute > oneWayMax:
		return exit.Errorf(exit.Usage, "--compute is %v, want 0s to %v", *c.Compute, oneWayMax)
	case *c.Network == 0 && *c.Compute == 0:
		return exit.Errorf(exit.Usage, "--network and --compute are both 0s, but no answer comes in no time: want one of them above 0s, such as --compute 1ms")
	}
	return nil
}

// round is how many episodes belong together: in virtual time each world is
// played from both sides, while edge-rt's simulated arm starts on one.
func (c *Config) round() int {
	if c.live {
		return 1
	}
	return 2
}

// ticks of an episode.
func (c *Config) ticks() int { return int((c.Duration + fleet.Period/2) / fleet.Period) }

// episode returns seed and direction of the i-th episode, of which no two are
// the same.
func (c *Config) episode(i int) (seed uint64, direction int) {
	if c.live {
		return c.FirstSeed + uint64(i), 1 // edge-rt's first target lies on the right
	}
	return c.FirstSeed + uint64(i/2), 1 - 2*(i%2)
}
