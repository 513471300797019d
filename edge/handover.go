package edge

import (
	"time"

	"edgert/chunk"
	"edgert/edge/follow"
	"edgert/rt"
	"edgert/wire"
)

// snapshot is one observation on its way to the sender: the state, what is
// being asked, and the actions that will run meanwhile.
type snapshot struct {
	ask     chunk.Ask
	epoch   uint32
	episode uint32
	start   bool // first observation of the episode
	at      rt.Instant
	runway  time.Duration
	state   []float32 // [dof]
}

// departure tells the tick how old the pictures of a request were.
type departure struct {
	key    int64
	source rt.Instant // older of the state and the oldest picture
}

// arrival is one chunk on its way from the receiver to the tick.
type arrival struct {
	epoch, episode uint32
	body           wire.ActionChunk
}

// glance is what a tick shows to people who look.
type glance struct {
	at, source          rt.Instant
	late                time.Duration
	state, goal         []float32 // [dof]
	stale, frozen, kept uint32    // joints, as follow.Follower's
	lives               []follow.Life
}

// show leaves a glance where the page finds it.
//
//rt:noalloc
func (c *control) show(t rt.Tick) {
	if c.glances == nil {
		return
	}
	g := c.glances.Back()
	g.at, g.source, g.late = t.Woke, c.source, t.Woke.Sub(t.Deadline)
	copy(g.state, c.arm.State)
	copy(g.goal, c.arm.Goal)
	g.stale, g.frozen, g.kept = c.arm.Stale(), c.arm.Frozen(), c.arm.Kept()
	c.arm.Lives(g.lives)
	c.glances.Publish(int64(t.Woke))
}
