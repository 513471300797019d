package faults

import (
	"io"
	"runtime"
	"time"

	"edgert/internal/exit"
	"edgert/internal/fleet"
	"edgert/sim"
)

// The worlds of the comparison, the default first.
var worlds = map[string]sim.Rules{"demo": {}, "narrow": sim.Narrow}

// WorldNames lists the worlds.
var WorldNames = []string{"demo", "narrow"}

// Bounds of a Config.
const (
	episodesMax   = 100_000
	durationMax   = time.Hour
	contendersMax = 32
	scenariosMax  = 64
)

// Config says what to compare.
type Config struct {
	Scenarios  []Scenario
	Contenders []Contender
	Episodes   int           // paired: half of them from each side
	FirstSeed  uint64        // default fleet.DefaultSeed
	Duration   time.Duration // of an episode
	World      string        // of WorldNames; default demo

	Network time.Duration // one way
	Compute time.Duration // of one answer, beside the faults

	Bundle string // of the policy that takes a prefix
	Plain  string // of the one that takes none
	ORT    string // ONNX Runtime's library; empty: where the policy package looks

	Bin     string // Live: folder of edge-rt and lean-server
	Quality int    // of the JPEG pictures
	Workers int    // episodes at once; 0: one per CPU

	// Limit ends the comparison early, after a whole round of all cells; 0: never.
	// The report then holds the episodes that were played.
	Limit time.Duration

	Version string
	Log     io.Writer // progress
}

func (c *Config) check() error {
	if c.FirstSeed == 0 {
		c.FirstSeed = fleet.DefaultSeed
	}
	if c.Workers == 0 {
		c.Workers = runtime.NumCPU()
	}
	if c.World == "" {
		c.World = WorldNames[0]
	}
	if _, ok := worlds[c.World]; !ok {
		return exit.Errorf(exit.Usage, "--world is %q, want one of %v", c.World, WorldNames)
	}
	switch {
	case len(c.Scenarios) < 1 || len(c.Scenarios) > scenariosMax:
		return exit.Errorf(exit.Usage, "%d scenarios, want 1 to %d", len(c.Scenarios), scenariosMax)
	case len(c.Contenders) < 1 || len(c.Contenders) > contendersMax:
		return exit.Errorf(exit.Usage, "%d schedules, want 1 to %d", len(c.Contenders), contendersMax)
	case c.Episodes < 2 || c.Episodes%2 != 0 || c.Episodes > episodesMax:
		return exit.Errorf(exit.Usage, "--episodes is %d, want an even number, 2 to %d: half of them start on each side", c.Episodes, episodesMax)
	case c.Duration < time.Second || c.Duration > durationMax:
		return exit.Errorf(exit.Usage, "--duration is %v, want 1s to %v", c.Duration, durationMax)
	case c.Workers < 1 || c.Workers > 256:
		return exit.Errorf(exit.Usage, "--workers is %d, want 1 to 256", c.Workers)
	}
	return nil
}

// ticks of an episode.
func (c *Config) ticks() int { return int((c.Duration + fleet.Period/2) / fleet.Period) }

// episode returns seed and direction of the i-th episode.
func (c *Config) episode(i int) (seed uint64, direction int) {
	return c.FirstSeed + uint64(i/2), 1 - 2*(i%2)
}
