package chunk

import "time"

// DefaultEpsilon is the safety margin of the cooldown in ticks.
const DefaultEpsilon = 1

// DefaultSMin returns the fewest actions of a chunk that shall run before the
// next is asked for, when nobody says: 0.4 of the horizon.
func DefaultSMin(horizon int) int { return max(1, 2*horizon/5) }

// CooldownMode says what the cooldown does.
type CooldownMode uint8

// The cooldown modes. The DRTC program has the last three; of them only the first
// recovers from a lost answer without a flood of requests.
//
// The estimate stays high for many round trips after a spike, as it must for the
// delay that is announced. As a cooldown it then lets one lost answer cost most of
// the actions that are left. So the default asks again after half of them, where
// that is sooner, but never before a mean round trip has passed: the estimate
// without its margin.
const (
	CooldownRunway CooldownMode = iota // counts down, and is no longer than half the actions left
	CooldownCounts                     // counts down with every tick
	CooldownMerge                      // ends when a chunk is merged, never by itself
	CooldownOff                        // there is none: every tick below the threshold asks
	numCooldowns
)

// CooldownNames lists the modes as --cooldown names them, in their order.
var CooldownNames = []string{"runway", "counts", "merge", "off"}

// TriggerConfig is what the trigger needs to know.
type TriggerConfig struct {
	Horizon   int     // rows of a chunk
	SMin      int     // fewest actions to run from each chunk; 0: DefaultSMin
	Epsilon   int     // ticks added to the cooldown, so that a slightly late answer is not asked for twice
	FPS       float64 // ticks per second
	Estimator Estimator
	PrefixEnd int // row at which the bundle's conditioning ends; 0: no limit

	Cooldown CooldownMode

	// Compat starts as the DRTC program does, s_min + epsilon ticks after the
	// first; otherwise the first request leaves at once.
	Compat bool
}

// Trigger decides on which tick to ask for the next chunk, and which delay to
// announce. It fires when at most H - s_min actions are left and the cooldown
// has run out; firing sets the cooldown to the latency estimate plus epsilon, or
// less (CooldownRunway). It never waits for an answer: a lost chunk is asked for
// again after at most estimate + epsilon + 1 ticks, and the newer request
// supersedes the older.
//
// Owner: the tick thread.
type Trigger struct {
	cfg      TriggerConfig
	cooldown int
	due      bool // the next tick fires, whatever is left
}

// NewTrigger returns a trigger that is ready to fire. It panics unless
// 0 < SMin < Horizon, FPS > 0, Epsilon >= 0 and there is an Estimator: callers
// check what users typed.
func NewTrigger(cfg TriggerConfig) *Trigger {
	if cfg.SMin == 0 {
		cfg.SMin = DefaultSMin(cfg.Horizon)
	}
	if cfg.SMin < 1 || cfg.SMin >= cfg.Horizon || !(cfg.FPS > 0) || cfg.Epsilon < 0 || cfg.Estimator == nil {
		panic("chunk: want 0 < s_min < horizon, fps > 0, epsilon >= 0 and an estimator")
	}
	d := &Trigger{cfg: cfg}
	d.restart()
	return d
}

// OnTick advances the cooldown by one tick and says whether to ask for a chunk
// now. size is Schedule.Size after this tick's Pop and Merge. delaySteps is what
// to announce: the estimate, but not more than the live rows. Call it once per tick
// on which an observation could leave, else OnIdleTick.
//
//rt:noalloc
func (d *Trigger) OnTick(size int) (fire bool, delaySteps int) {
	waits := size > d.cfg.Horizon-d.cfg.SMin || d.cooldown > 0 && d.cfg.Cooldown != CooldownOff
	if waits && !d.due {
		d.OnIdleTick()
		return false, 0
	}
	d.due = false
	steps := d.Steps()
	if d.cfg.Cooldown != CooldownOff {
		d.cooldown = d.wait(steps, size) + d.cfg.Epsilon
	}
	return true, min(steps, size)
}

// wait returns how many ticks an answer is given before it is asked for again,
// of a latency estimate and with so many actions left.
//
//rt:noalloc
func (d *Trigger) wait(steps, size int) int {
	e, ok := d.cfg.Estimator.(meanEstimator)
	if d.cfg.Cooldown != CooldownRunway || d.cfg.Compat || !ok {
		return steps
	}
	mean, ok := e.Mean()
	if !ok {
		return steps
	}
	return min(steps, max(size/2, Steps(mean, d.cfg.FPS, d.cfg.Horizon)))
}

// OnIdleTick advances the cooldown on a tick that has nothing valid to send.
//
//rt:noalloc
func (d *Trigger) OnIdleTick() {
	if d.cfg.Cooldown <= CooldownCounts {
		d.cooldown = max(d.cooldown-1, 0)
	}
}

// OnChunk learns from a merged chunk: latency is capture to merge. Every answer
// counts: a server warms up before it takes its first session, so none is slow for
// that.
//
//rt:noalloc
func (d *Trigger) OnChunk(latency time.Duration) {
	if d.cfg.Cooldown == CooldownMerge {
		d.cooldown = 0
	}
	d.cfg.Estimator.Observe(latency.Seconds())
}

// Rearm makes the next tick fire, however many actions are left: the request
// under way is known to be lost, or nothing could be asked for a while and the
// actions left are older than their number says. With Compat it begins as the
// program begins.
//
//rt:noalloc
func (d *Trigger) Rearm() {
	d.restart()
	d.due = !d.cfg.Compat
}

// restart sets the cooldown as at the beginning.
//
//rt:noalloc
func (d *Trigger) restart() {
	d.cooldown = 0
	if d.cfg.Compat {
		d.cooldown = d.cfg.SMin + d.cfg.Epsilon
	}
}

// Steps returns the latency estimate in action steps, 1 to max(1, H/2).
//
//rt:noalloc
func (d *Trigger) Steps() int {
	return Steps(d.cfg.Estimator.Seconds(), d.cfg.FPS, d.cfg.Horizon)
}

// PrefixEnd returns the row at which the conditioning of a chunk with this
// announced delay ends: at least max(s_min, delay) rows stay free.
//
//rt:noalloc
func (d *Trigger) PrefixEnd(delay int) int {
	end := d.cfg.Horizon - max(d.cfg.SMin, delay)
	if d.cfg.PrefixEnd > 0 {
		end = min(end, d.cfg.PrefixEnd)
	}
	return max(end, 0)
}

// Cooldown returns the ticks until the trigger may fire again.
//
//rt:noalloc
func (d *Trigger) Cooldown() int { return d.cooldown }

// SMin returns the fewest actions that run from each chunk.
//
//rt:noalloc
func (d *Trigger) SMin() int { return d.cfg.SMin }
