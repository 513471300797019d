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
	wayMax        = time.Minute // of the network, and of an answer
	qualityMax    = 100
	contendersMax = 32
	scenariosMax  = 64
)

// Config says what to compare.
type Config struct {
	Scenarios  []Scenario
	Contenders []Contender
	Episodes   int           // each met by all contenders; virtual: half of them from each side
	FirstSeed  uint64        // of the first world
	Duration   time.Duration // of an episode
	World      string        // of WorldNames; default demo

	Network time.Duration // Play: one way
	Compute time.Duration // Play: of one answer, beside the faults; one of the two is above 0

	Bundle string // of the policy that takes a prefix
	Plain  string // of the one that takes none
	ORT    string // ONNX Runtime's library; empty: where the policy package looks

	Bin     string // Live: folder of edge-rt and lean-server
	Quality int    // of the JPEG pictures, 1 to 100; 0: raw
	Workers int    // episodes at once; 0: one per CPU

	// Limit ends the comparison early, after a whole round of all cells; 0: never.
	// The report then holds the episodes that were played.
	Limit time.Duration

	Version string
	Log     io.Writer // progress

	live bool // Live sets it
}

func (c *Config) check() error {
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
	return c.checkWay()
}

// checkWay refuses times that virtual time cannot play; real time has its own.
func (c *Config) checkWay() error {
	switch {
	case c.live:
		return nil
	case c.Network < 0 || c.Network > wayMax:
		return exit.Errorf(exit.Usage, "--network is %v, want 0s to %v", c.Network, wayMax)
	case c.Compute < 0 || c.Compute > wayMax:
		return exit.Errorf(exit.Usage, "--compute is %v, want 0s to %v", c.Compute, wayMax)
	case c.Network == 0 && c.Compute == 0:
		return exit.Errorf(exit.Usage, "--network and --compute are both 0s, but no answer comes in no time: want one of them above 0s, such as --compute 1ms")
	}
	return nil
}

// round is how many episodes belong together: in virtual time each world is
// played from both sides, while edge-rt's simulated arm knows one.
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
