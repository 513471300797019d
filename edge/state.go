package edge

import (
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/rt"
)

// state is the state of the robot's run; the summary counts the seconds in each.
type state uint8

// The states. The zero value is the safe one: a pair that is missing in the table leads to it.
const (
	stateDead       state = iota // the run gives up and ends
	stateConnecting              // no chunk of this session yet
	stateStreaming               // actions run, chunks arrive
	stateDegraded                // actions run, chunks have stopped
	// the schedule has no usable action, the bus is silent, or no joint can be driven: the arm
	// holds
	stateStalled
	stateReconnecting // the session is lost; the actions left in the schedule still run
	numStates
)

var stateNames = [numStates]string{"DEAD", "CONNECTING", "STREAMING", "DEGRADED", "STALLED", "RECONNECTING"}

func (s state) String() string { return stateNames[s] }

type cause uint8

// The causes, in the order in which one tick reports them.
const (
	causeOpened    cause = iota // a session was opened
	causeMerged                 // a chunk was merged
	causeQuiet                  // no chunk for degraded_after
	causeStarved                // an action was due, and the schedule had no usable action
	causeBusSilent              // too many joints are silent; reported on every such tick
	causeHeld                   // no joint is driven, since the motors complain; reported on every such tick
	causeLinkLost               // the session or the server's token is gone
	causeOffline                // no chunk and no status reply for max_offline
	causeRefused                // the server refuses the contract with a final error
	numCauses
)

// transitions has a row for each state. Only a merge leads to Streaming.
var transitions = [numStates][numCauses]state{
	stateDead: {},
	stateConnecting: {
		causeOpened:    stateConnecting,
		causeMerged:    stateStreaming,
		causeQuiet:     stateConnecting,
		causeStarved:   stateConnecting,
		causeBusSilent: stateStalled,
		causeHeld:      stateStalled,
		causeLinkLost:  stateReconnecting,
		causeOffline:   stateDead,
		causeRefused:   stateDead,
	},
	stateStreaming: {
		causeOpened:    stateStreaming,
		causeMerged:    stateStreaming,
		causeQuiet:     stateDegraded,
		causeStarved:   stateStalled,
		causeBusSilent: stateStalled,
		causeHeld:      stateStalled,
		causeLinkLost:  stateReconnecting,
		causeOffline:   stateDead,
		causeRefused:   stateDead,
	},
	stateDegraded: {
		causeOpened:    stateDegraded,
		causeMerged:    stateStreaming,
		causeQuiet:     stateDegraded,
		causeStarved:   stateStalled,
		causeBusSilent: stateStalled,
		causeHeld:      stateStalled,
		causeLinkLost:  stateReconnecting,
		causeOffline:   stateDead,
		causeRefused:   stateDead,
	},
	stateStalled: {
		causeOpened:    stateStalled,
		causeMerged:    stateStreaming,
		causeQuiet:     stateStalled,
		causeStarved:   stateStalled,
		causeBusSilent: stateStalled,
		causeHeld:      stateStalled,
		causeLinkLost:  stateReconnecting,
		causeOffline:   stateDead,
		causeRefused:   stateDead,
	},
	stateReconnecting: {
		causeOpened:    stateConnecting,
		causeMerged:    stateStreaming,
		causeQuiet:     stateReconnecting,
		causeStarved:   stateReconnecting,
		causeBusSilent: stateReconnecting,
		causeHeld:      stateReconnecting,
		causeLinkLost:  stateReconnecting,
		causeOffline:   stateDead,
		causeRefused:   stateDead,
	},
}

//rt:noalloc
func (s state) after(c cause) state { return transitions[s][c] }

// updateState applies this tick's causes to the state of the run. A run whose state is dead ends.
//
//rt:noalloc
func (c *control) updateState(now rt.Instant) {
	if c.blocked&blockBusSilent != 0 {
		c.change(now, causeBusSilent)
	}
	if c.heldAll != 0 {
		c.change(now, causeHeld)
		c.stats.heldAll.Add(1)
	}
	// The state becomes Degraded only when a request has been open for a while, because some disciplines rarely request
	// a chunk.
	unanswered := c.run.firstRequest != 0 && now.Sub(c.run.firstRequest) >= c.degradedAfter/4
	if c.arm.Phase == follow.Armed && unanswered &&
		now.Sub(c.run.lastMerge) >= c.patience.Quiet(c.out.Pace().Or(c.in.Announced())) {
		c.change(now, causeQuiet)
	}
	if lost := c.session.all.Lost; lost != c.session.lost {
		c.session.lost = lost
		c.change(now, causeLinkLost)
	}
	if c.in.Refused.Load() && c.mode != correcting { // a correction goes on until the person gives the arm back
		c.change(now, causeRefused)
	}
	alive := rt.Instant(c.in.AliveAt.Load())
	if alive > c.run.alive { // the server has answered: the lacks are counted anew
		c.run.alive = alive
		c.run.lacks.Reset(now)
	}
	c.run.lacks.Add(now, event.Lacking{
		Joints:   c.arm.Frozen(),
		Bus:      c.blocked&(blockBusSilent|blockJointSilent) != 0,
		Pictures: c.blocked&blockNoPicture != 0,
		Session:  c.blocked&blockNoSession != 0,
	})
	if now.Sub(max(c.run.lastMerge, alive)) >= c.maxOffline && c.arm.Phase < follow.Parking {
		if c.run.state != stateDead {
			c.run.gaveUp = c.run.lacks
		}
		c.change(now, causeOffline)
	}
	c.stats.inState[c.run.state].Add(int64(now.Sub(c.run.since)))
	c.run.since = now
	view := c.core.Schedule.View()
	c.stats.size.Store(int64(view.Size))
	c.stats.buffer.Store(int64(view.Buffer))
	if c.run.state == stateDead {
		c.drive.Leave(drive.Itself)
		c.drive.Finish(now)
	}
}

//rt:noalloc
func (c *control) change(now rt.Instant, cause cause) {
	next := c.run.state.after(cause)
	if next == c.run.state {
		return
	}
	c.events.Emit(now, event.StateChanged, int64(c.run.state), int64(next))
	c.stats.inState[c.run.state].Add(int64(now.Sub(c.run.since)))
	c.run.state, c.run.since = next, now
	c.stats.state.Store(uint32(next))
}
