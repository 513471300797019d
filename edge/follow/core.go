package follow

import (
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/chunk/smoothing"
	"github.com/edge-rt/edge-rt/rt"
)

// Core decides a policy's part of one tick of an arm: the action that is due, its stages, the merge
// of a chunk into the schedule, and whether an observation leaves. It has no bus, thread or clock,
// so that package edge and sim/fleet run the same code, in this order:
//
//	read the joints                               // state
//	action := core.Next(now)                      // or core.Hold() to keep the arm where it is
//	for j := range goal {                         // package edge: Parts.Drive, which also
//		goal[j] = gate.Pass(j, goal[j], action.Row[j], state[j]) // checks whether the joint may move
//	}
//	result := core.Schedule.OnChunk(now, &chunk)  // at most one arrived chunk
//	if core.Ask(now, able, state, goal, &ask) {   // able: an observation could leave
//		send it
//	}
//
// Owner: the tick thread.
type Core struct {
	Schedule chunk.Discipline
	Stages   *smoothing.Chain
	Gate     *Gate         // limits the goals after the stages, in the preview only; nil: no limits
	MaxAge   time.Duration // older actions never run; 0: no limit

	ticks int  // arm ticks since the schedule's last tick
	idle  bool // no observation could leave on the schedule's last tick
}

// Action is the action of one tick.
type Action struct {
	Row    []float32     // [dof], after the stages; nil: no action is due. Lent until the next call
	Policy []float32     // [dof], row of the policy; nil: this tick took no row. Lent until the next OnChunk
	Age    time.Duration // Policy's age
	TooOld bool          // the schedule only had actions older than MaxAge
}

// Next returns the arm's action for this tick.
//
//rt:noalloc
func (c *Core) Next(now rt.Instant) (a Action) {
	if c.Stages.NeedsAction() {
		action, age, tooOld := c.Schedule.Pop(now, c.MaxAge)
		if a.TooOld = tooOld; action != nil {
			a.Policy, a.Age = action, age
			c.Stages.Add(action)
		}
	}
	a.Row = c.Stages.Next()
	return a
}

// Hold keeps the arm where it is for this tick, and the schedule unchanged.
//
//rt:noalloc
func (c *Core) Hold() { c.Stages.Rest() }

// Ask reports whether an observation leaves on this tick, and if so fills in ask. able is whether the caller could send
// an observation. When an action lasts several ticks, Ask returns true on at most one of these ticks. state is [dof],
// as measured. goal is the arm's newest goal, [dof], or nil while the arm is not driven: then Ask does not change
// ask.Robot, the rows in robot units that the schedule wrote.
//
//rt:noalloc
func (c *Core) Ask(now rt.Instant, able bool, state, goal []float32, ask *chunk.Ask) bool {
	multiplier := c.Stages.Multiplier()
	if c.ticks++; c.ticks < multiplier {
		return false
	}
	c.ticks = 0
	if !able {
		c.Schedule.OnTickWithoutObservation()
		c.idle = true
		return false
	}
	if c.idle {
		c.idle = false
		c.Schedule.Resume()
	}
	if !c.Schedule.OnTick(now, state, ask) {
		return false
	}
	if goal != nil {
		rows := ask.Robot[:ask.Rows*len(goal)]
		c.Stages.Preview(rows)
		if c.Gate != nil {
			c.Gate.preview(goal, rows, multiplier)
		}
	}
	return true
}

// AtAction reports whether the last Ask was on a tick of the schedule, which has one tick per action.
//
//rt:noalloc
func (c *Core) AtAction() bool { return c.ticks == 0 }

// Reset begins an episode with the arm at the position goal, [dof]. No planned action runs afterwards.
//
//rt:noalloc
func (c *Core) Reset(goal []float32) {
	c.Schedule.Reset()
	c.Stages.Reset(goal)
}
