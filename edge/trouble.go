package edge

import (
	"edgert/edge/plug"
	"edgert/internal/exit"
	"edgert/rt"
	"edgert/servo/robot"
)

// bus is what the tick needs of an arm; *servo.Arm is one.
type bus interface {
	Read(dst []float32, deadline rt.Instant) (stale uint32)
	Write(goal []float32)
	BusWait() rt.Wait
	ArmStep(deadline rt.Instant) (armed bool, err error)
	Returned() (plug.Cause, bool) // once after the arm was away
	Hold() uint32                 // joints that keep their goal because their motor complains
	Warned() uint32               // joints that are too hot or whose supply is too low for the robot's description
	Climate() (hottest, volts float64)
	Asleep() bool // the motors have stopped by themselves and want to be armed again
	Fatal() error // why the run must end; nil: it need not
}

// mind reacts to what the motors complain about: a joint may have to keep its
// goal, or the run may have to end.
//
//rt:noalloc
func (c *control) mind(now rt.Instant) {
	if why, back := c.bus.Returned(); back {
		c.welcome(now, why)
	}
	held := c.bus.Hold()
	if begun := held &^ c.held; begun != 0 {
		for j := range c.goal {
			if begun&(1<<j) != 0 {
				c.goal[j] = c.state[j] // what pushes against something gives way
			}
		}
		c.events.Emit(rt.Event{At: now, Code: rt.JointHeld, A: int64(held)})
	}
	c.held = held
	warned := c.bus.Warned()
	if warned&^c.warned != 0 {
		hottest, volts := c.bus.Climate()
		c.events.Emit(rt.Event{At: now, Code: rt.JointWarned, A: int64(warned), B: int64(hottest)<<16 | int64(volts*10+0.5)})
	}
	c.warned = warned
	if c.phase == armed && c.bus.Asleep() {
		c.phase = arming // goal := present, and slowly on from there
	}
	if c.leave.Load() {
		return
	}
	if err := c.bus.Fatal(); err != nil {
		c.condemn(err)
	}
}

// welcome takes up an arm that was away. Nothing moves at once: what was planned
// is dropped, and the arm is armed where it stands when the next chunk is there;
// after a restart of its motors perhaps only when an operator says so.
func (c *control) welcome(now rt.Instant, why plug.Cause) {
	policy := c.returns[why]
	c.events.Emit(rt.Event{At: now, Code: rt.BusBack, A: int64(why)})
	c.resets.Add(1)
	c.silent, c.frozen = false, 0
	switch c.phase {
	case arming, armed:
		c.phase = untouched
	case parking:
		c.phase = done // it stands wherever it stands
	}
	if policy == robot.Operator {
		c.paused.Store(true)
	}
}

// condemn ends the run as --on-exit says, though it never holds; an operator is
// needed.
func (c *control) condemn(err error) {
	err = exit.Errorf(exit.Fault, "stopped by a motor: %w", err)
	c.failed.CompareAndSwap(nil, &err)
	c.leave.Store(true)
}

// slew lets the arm move slowly at first.
//
//rt:noalloc
func (c *control) slew(now rt.Instant) {
	c.limits.Pace = 1
	if now < c.slewEnd {
		c.limits.Pace = c.slewPace
	}
}
