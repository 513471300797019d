package edge

import (
	"edgert/edge/event"
	"edgert/edge/follow"
	"edgert/internal/exit"
	"edgert/rt"
)

// bus is what the tick asks of an arm beside what its Follower does.
type bus interface {
	BusWait() rt.Wait
	Warned() uint32 // joints that are too hot or whose supply is too low for the robot's description
	Extremes() (hottest, volts float64)
}

// mind reacts to what became of the arm in this tick: it may be back after it was
// away, want to be armed again, or have to end the run.
//
//rt:noalloc
func (c *control) mind(now rt.Instant, before follow.Phase) {
	if before >= follow.Arming && c.arm.Phase == follow.Untouched {
		c.resets.Add(1) // what was planned is for an arm that stood elsewhere
	}
	if waits := c.arm.Waits(); waits && !c.waiting {
		c.waiting, c.resting = true, true
		c.stats.waits.Store(true)
		c.paused.Store(true)
	}
	warned := c.bus.Warned()
	if warned&^c.warned != 0 {
		hottest, volts := c.bus.Extremes()
		c.events.Emit(now, event.JointWarned, int64(warned), int64(hottest)<<16|int64(volts*10+0.5))
	}
	c.warned = warned
	if c.leave.Load() {
		return
	}
	if err := c.arm.Fatal(); err != nil {
		c.condemn(err)
	}
}

// condemn ends the run as --on-exit says, though it never holds; an operator is
// needed.
func (c *control) condemn(err error) {
	err = exit.With(exit.Fault, err)
	c.failed.CompareAndSwap(nil, &err)
	c.leave.Store(true)
}
