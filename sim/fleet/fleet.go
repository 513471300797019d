// Package fleet runs the closed loop of picture, policy, schedule and arm in virtual time: hundreds
// of robots, each with its own world, as fast as their inferences.
//
// The code that determines the motion is the real one: sim.World, jpeg, the edge's core
// (follow.Core), the wire's encoding (for its size), the script of faults and the exported policy.
// The times of the network and the server are simulated (network.go). A tick reads the joints, runs
// an action, merges at most one answer and may request the next chunk (robot.go). The same Config
// gives the same result, to the last bit.
package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/netfault"
)

const (
	// DefaultSeed is the seed of the first world of the published figures.
	DefaultSeed = 1000

	// defaultTicks is 20 s at 60 Hz.
	defaultTicks = 1200

	// defaultMaxAge is the age in ticks above which an action never runs: 3 s, as in edge-rt.
	defaultMaxAge = 180

	// defaultReconnect is the time that an edge needs to open a session with a server that has
	// restarted.
	defaultReconnect = 300 * time.Millisecond

	delayMax   = 10_000
	ticksMax   = 10_000_000
	computeMax = time.Minute
	besideMax  = 1 << 30

	// FPS is the rate of the world and of every control loop in it.
	FPS = 60

	// Period is one tick.
	Period = time.Second / FPS
)

// ErrConfig is the error of Open for a Config with impossible values.
var ErrConfig = errors.New("fleet: bad config")

// Config describes a run. A field that is zero gets the default that its comment names.
type Config struct {
	Policy Policy

	Ticks int // length of each run; default defaultTicks

	// Schedule has the schedule's name and settings; default "drtc". Open sets Horizon, DOF, FPS
	// and PrefixEnd.
	Schedule chunk.Config
	MaxAge   int // ticks; default defaultMaxAge

	// Without faults an answer takes twice Network and once Compute. When both are 0, it takes
	// Delay: the number of ticks from capture to merge; default 1.
	Network time.Duration // time of one way
	Compute time.Duration // time of one inference
	Delay   int

	Faults    *netfault.Script // default: no faults
	Reconnect time.Duration    // default defaultReconnect

	Rules   sim.Rules // default the demo world
	Beside  int       // bytes of further pictures in an observation, which the policy does not get
	Quality int       // JPEG quality of the pictures, 1 to 100; 0: raw
	Counts  bool      // state and goals have the resolution of 4096-step encoders

	Trace func(*Tick) // called on every tick; the Tick is valid only during the call
}

func (c *Config) check() error {
	if c.Policy == nil {
		return fmt.Errorf("%w: no policy", ErrConfig)
	}
	if c.Policy.DOF() != sim.DOF {
		return fmt.Errorf("%w: the policy drives %d joints, want %d", ErrConfig, c.Policy.DOF(), sim.DOF)
	}
	if w, h := c.Policy.Picture(); w < 1 || h < 1 || w > sim.MaxSide || h > sim.MaxSide {
		return fmt.Errorf("%w: the policy sees pictures of %dx%d, want sides of 1 to %d pixels", ErrConfig, w, h,
			sim.MaxSide)
	}
	c.Ticks = cmp.Or(c.Ticks, defaultTicks)
	c.MaxAge = cmp.Or(c.MaxAge, defaultMaxAge)
	c.Reconnect = cmp.Or(c.Reconnect, defaultReconnect)
	c.Schedule.Schedule = cmp.Or(c.Schedule.Schedule, "drtc")
	c.Schedule.Epsilon = cmp.Or(c.Schedule.Epsilon, chunk.DefaultEpsilon)
	c.Schedule.Horizon = c.Policy.Horizon()
	c.Schedule.DOF = sim.DOF
	c.Schedule.FPS = FPS
	c.Schedule.PrefixEnd = cmp.Or(c.Schedule.PrefixEnd, c.Policy.PrefixEnd())
	if c.Network == 0 && c.Compute == 0 {
		c.Delay = cmp.Or(c.Delay, 1)
	}
	for _, f := range []struct {
		name     string
		got      int
		min, max int
	}{
		{"ticks", c.Ticks, 1, ticksMax},
		{"delay", c.Delay, 0, delayMax},
		{"max age", c.MaxAge, 1, ticksMax},
		{"quality", c.Quality, 0, 100},
		{"bytes beside", c.Beside, 0, besideMax},
		{"network time in ns", int(c.Network), 0, int(computeMax)},
		{"compute time in ns", int(c.Compute), 0, int(computeMax)},
		{"time to reconnect in ns", int(c.Reconnect), 0, int(computeMax)},
	} {
		if f.got < f.min || f.got > f.max {
			return fmt.Errorf("%w: %s is %d, want %d to %d", ErrConfig, f.name, f.got, f.min, f.max)
		}
	}
	if c.Delay > 0 && (c.Network > 0 || c.Compute > 0) {
		return fmt.Errorf("%w: a delay of %d ticks beside %v of network and %v of compute: name one", ErrConfig,
			c.Delay, c.Network, c.Compute)
	}
	if c.Delay > 0 {
		c.Compute = time.Duration(c.Delay) * Period
	}
	if _, err := chunk.New(c.Schedule); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}
