package edge

import (
	"fmt"
	"time"

	"edgert/edge/tick"
	"edgert/record"
	"edgert/rt"
)

// act runs the next action, or holds.
//
//rt:noalloc
func (c *control) act(now rt.Instant) {
	if c.leave.Load() {
		c.arm.Depart(now)
		return
	}
	if c.arm.Rescuing() && !c.paused.Load() {
		c.core.Hold()
		if err := c.arm.WalkIn(now); err != nil {
			c.fail(err)
		}
		return
	}
	if c.arm.Silent() || c.paused.Load() {
		c.core.Hold() // and nothing is sent: the motors hold
		if c.arm.Silent() {
			c.stats.starved.Add(1)
			c.stats.starvedBus.Add(1)
		}
		return
	}
	action := c.core.Next(now)
	if action.TooOld {
		c.stats.tooOld.Add(1)
	}
	if action.Policy != nil {
		c.source = now.Add(-action.Age)
		c.stats.age.Record(action.Age)
		c.stats.actions.Add(1)
	}
	if action.Row == nil {
		c.starve(now)
		return
	}
	c.arm.Drive(now, action.Row)
	if action.Policy != nil && c.log != nil {
		c.recordAction(now, &action)
	}
}

// recordAction notes the action that this tick began to run; without room it is lost.
//
//rt:noalloc
func (c *control) recordAction(now rt.Instant, action *tick.Action) {
	a := c.log.Reserve()
	if a == nil {
		return
	}
	p := c.core.Plan.Last()
	a.At, a.Source, a.Step = now, c.source, c.core.Plan.View().N
	a.Seq, a.Epoch, a.Episode, a.Index, a.Delay, a.Dropped = p.Seq, p.Epoch, p.Episode, p.Index, p.Asked, p.Delay
	a.Session = c.sessions[p.Epoch%uint32(len(c.sessions))]
	if a.Session != nil && a.Session.Epoch != p.Epoch {
		a.Session = nil
	}
	a.Joints = copy(a.Action[:], action.Policy)
	copy(a.State[:], c.arm.State)
	copy(a.Goal[:], c.arm.Goal)
	c.log.Commit()
}

//rt:noalloc
func (c *control) starve(now rt.Instant) {
	c.stats.starved.Add(1)
	c.move(now, Starved)
}

// recordEvery is how often the log of actions is written out.
const recordEvery = 50 * time.Millisecond

// beginRecord writes the head of the record while the arm is untouched.
func (e *Edge) beginRecord() (err error) {
	if e.cfg.Record == nil {
		return nil
	}
	e.record, err = record.NewLog(e.cfg.Record, record.Header{
		ID: e.identity.ID, Robot: e.cfg.Robot, Schedule: e.cfg.Plan.Schedule, FPS: e.cfg.FPS, Names: e.robot.ActionNames(),
	})
	if err != nil {
		return fmt.Errorf("--record: %w; make room there, name another file, or leave --record out", err)
	}
	return nil
}

// keepRecord writes out the actions that ran, until the run is over. A file that
// cannot be written stops the record, not the robot: the run ends as it was to
// end, and then says that it failed.
func (e *Edge) keepRecord() error {
	for ended := false; !ended; {
		ended = e.ending.Load() // the tick has ended then: once more
		if err := e.record.Drain(); err != nil {
			e.recorded = fmt.Errorf("--record stopped after %d actions, the arm went on: %w; make room there, or name another file", e.record.Written(), err)
			e.log.Warn("--record stops here, the arm goes on", "actions", e.record.Written(), "why", err)
		}
		e.clock.SleepUntil(e.clock.Now().Add(recordEvery))
	}
	return nil
}
