// Package fleet runs the closed loop of picture, policy, schedule and arm in
// virtual time: hundreds of robots, each with its own world, without a clock, a
// bus or a network in between, so that 20 seconds of motion take as long as its
// inferences.
//
// What decides the motion is the real thing: sim.World, jpeg, chunk.Discipline
// and the exported policy. What is left out is played by numbers: an
// answer takes Delay ticks from capture to merge, and may be late or lost. One
// tick is the edge's: read, pop, write, merge at most one answer, trigger. A run
// is a function of its Config, to the last bit.
package fleet

import (
	"errors"
	"fmt"

	"edgert/chunk"
	"edgert/sim"
)

const (
	// DefaultSeed is the first world of the published figures.
	DefaultSeed = 1000

	// DefaultTicks is 20 s at 60 Hz.
	DefaultTicks = 1200

	// DefaultMaxAge is the age in ticks past which an action never runs: 3 s, as
	// in edge-rt.
	DefaultMaxAge = 180

	delayMax = 10_000
	seedsMax = 1_000_000
	ticksMax = 10_000_000
	fps      = 60
)

// ErrConfig is what Run returns for impossible numbers.
var ErrConfig = errors.New("fleet: bad config")

// Config says what to run. The zero value of a field is its default, where one
// is named.
type Config struct {
	Policy Policy

	FirstSeed uint64 // default DefaultSeed
	Seeds     int    // worlds in each direction; default 1
	Ticks     int    // length of each run; default DefaultTicks

	Delay  int     // ticks between capture and merge; default and least 1
	Jitter int     // up to so many ticks more, drawn per answer
	Loss   float64 // share of answers that never come, 0 to 1

	SMin    int // default chunk.DefaultSMin
	Epsilon int // default chunk.DefaultEpsilon
	MaxAge  int // ticks; default DefaultMaxAge

	Quality int  // of the JPEG pictures, 1 to 100; 0: raw
	Counts  bool // read the state and write the goal through 4096-step encoders
}

// check fills in the defaults and refuses what cannot run.
func (c *Config) check() error {
	if c.Policy == nil {
		return fmt.Errorf("%w: no policy", ErrConfig)
	}
	if c.Policy.DOF() != sim.DOF {
		return fmt.Errorf("%w: the policy drives %d joints, want %d", ErrConfig, c.Policy.DOF(), sim.DOF)
	}
	if c.FirstSeed == 0 {
		c.FirstSeed = DefaultSeed
	}
	c.Seeds = orDefault(c.Seeds, 1)
	c.Ticks = orDefault(c.Ticks, DefaultTicks)
	c.Delay = orDefault(c.Delay, 1)
	c.SMin = orDefault(c.SMin, chunk.DefaultSMin(c.Policy.Horizon()))
	c.Epsilon = orDefault(c.Epsilon, chunk.DefaultEpsilon)
	c.MaxAge = orDefault(c.MaxAge, DefaultMaxAge)
	for _, f := range []struct {
		name     string
		got      int
		min, max int
	}{
		{"seeds", c.Seeds, 1, seedsMax},
		{"ticks", c.Ticks, 1, ticksMax},
		{"delay", c.Delay, 1, delayMax},
		{"jitter", c.Jitter, 0, delayMax},
		{"s_min", c.SMin, 1, c.Policy.Horizon() - 1},
		{"epsilon", c.Epsilon, 0, delayMax},
		{"max age", c.MaxAge, 1, ticksMax},
		{"quality", c.Quality, 0, 100},
	} {
		if f.got < f.min || f.got > f.max {
			return fmt.Errorf("%w: %s is %d, want %d to %d", ErrConfig, f.name, f.got, f.min, f.max)
		}
	}
	if !(c.Loss >= 0 && c.Loss <= 1) {
		return fmt.Errorf("%w: loss is %v, want 0 to 1", ErrConfig, c.Loss)
	}
	return nil
}

func orDefault(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

// Run runs Seeds worlds in each direction, one after the other, and returns what
// came of them. It fails when the config is impossible or the policy does.
func Run(cfg Config) (Result, error) {
	if err := cfg.check(); err != nil {
		return Result{}, err
	}
	r, err := newRobot(&cfg)
	if err != nil {
		return Result{}, err
	}
	defer r.close()
	result := Result{Runs: 2 * cfg.Seeds, Ticks: cfg.Ticks, Delay: cfg.Delay, Outcomes: map[chunk.Outcome]int{}}
	for i := range cfg.Seeds {
		for _, direction := range []int{1, -1} {
			if err := r.run(cfg.FirstSeed+uint64(i), direction, &result); err != nil {
				return result, fmt.Errorf("fleet: seed %d, direction %+d: %w", cfg.FirstSeed+uint64(i), direction, err)
			}
		}
	}
	return result, nil
}
