// Package tick decides what the arm does in a tick: the action due, its stages, how a
// chunk joins the schedule, and when an observation leaves. It has no bus, thread or
// clock, so that package edge and internal/fleet drive the same code, in this order:
//
//	read the joints                               // state
//	action := core.Next(now)                      // or core.Hold() while the arm is to stay where it is
//	for j := range goal {                         // package edge: follow.Follower.Drive, which also asks
//		goal[j] = gate.Pass(j, goal[j], action.Row[j], state[j]) // whether the joint may move at all
//	}
//	result := core.Schedule.OnChunk(now, &chunk)  // at most one that has arrived
//	if core.Ask(now, able, state, goal, &ask) {   // able: an observation could leave
//		send it
//	}
package tick

import (
	"time"

	"edgert/chunk"
	"edgert/chunk/stage"
	"edgert/edge/follow"
	"edgert/rt"
)

// Core is the schedule of one arm with its stages. Owner: the tick thread.
type Core struct {
	Schedule chunk.Discipline
	Stages   *stage.Chain
	Gate     *follow.Gate  // that goals pass behind the stages, for the preview; nil: none
	MaxAge   time.Duration // past which an action never runs; 0: no limit

	ticks int  // since the discipline was last asked
	idle  bool // no observation could leave then
}

// Action is what one tick runs.
type Action struct {
	Row    []float32     // [dof], behind the stages; nil: there is nothing to run. Lent until the next call
	Policy []float32     // [dof], as the policy said it; nil: this tick took none. Lent until the next OnChunk
	Age    time.Duration // Policy's age
	TooOld bool          // the schedule had none but those past MaxAge
}

// Next returns what the arm does on this tick.
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

// Hold says that the arm stays where it is for this tick. The schedule stays too.
//
//rt:noalloc
func (c *Core) Hold() { c.Stages.Rest() }

// Ask reports whether an observation leaves on this tick, if one could (able), and fills
// it in; several ticks for one action ask once. state is [dof], as measured; goal is the
// arm's newest, nil while it is not driven: then the prefix stays the policy's.
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
			c.Gate.Preview(goal, rows, multiplier)
		}
	}
	return true
}

// AtAction reports whether the last Ask was of a tick that an action begins with: the
// others repeat it.
//
//rt:noalloc
func (c *Core) AtAction() bool { return c.ticks == 0 }

// Reset begins an episode with the arm at goal, [dof]: nothing that was planned runs.
//
//rt:noalloc
func (c *Core) Reset(goal []float32) {
	c.Schedule.Reset()
	c.Stages.Reset(goal)
}
