package edge

import (
	"fmt"
	"time"

	"edgert/chunk"
	"edgert/edge/follow"
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
		c.shape.Rest()
		if err := c.arm.WalkIn(now); err != nil {
			c.fail(err)
		}
		return
	}
	if c.arm.Silent() || c.paused.Load() {
		c.shape.Rest() // and nothing is sent: the motors hold
		if c.arm.Silent() {
			c.stats.starved.Add(1)
			c.stats.starvedBus.Add(1)
		}
		return
	}
	var noted *record.Action
	if c.shape.NeedsAction() {
		noted = c.pop(now)
	}
	if row := c.shape.Next(); row != nil {
		c.arm.Drive(now, row)
	} else {
		c.starve(now)
	}
	if noted != nil {
		copy(noted.Goal[:], c.arm.Goal)
		c.log.Commit()
	}
}

// pop takes the next action, if there is one, and returns its record to complete,
// nil when nobody wants one.
//
//rt:noalloc
func (c *control) pop(now rt.Instant) *record.Action {
	action, age, verdict := c.plan.Pop(now, c.maxAge)
	switch verdict {
	case chunk.TooOld:
		c.stats.tooOld.Add(1)
		return nil
	case chunk.Empty:
		return nil
	}
	c.source = now.Add(-age)
	c.stats.age.Record(age)
	c.stats.actions.Add(1)
	c.shape.Add(action)
	if c.log == nil {
		return nil
	}
	a := c.log.Reserve()
	if a == nil {
		return nil
	}
	p := c.plan.Last()
	a.At, a.Source, a.Step = now, now.Add(-age), c.plan.View().N
	a.Seq, a.Epoch, a.Episode, a.Index, a.Delay, a.Dropped = p.Seq, p.Epoch, p.Episode, p.Index, p.Asked, p.Delay
	a.Session = c.sessions[p.Epoch%uint32(len(c.sessions))]
	if a.Session != nil && a.Session.Epoch != p.Epoch {
		a.Session = nil
	}
	a.Joints = copy(a.Action[:], action)
	copy(a.State[:], c.arm.State)
	return a
}

//rt:noalloc
func (c *control) starve(now rt.Instant) {
	c.stats.starved.Add(1)
	c.move(now, Starved)
}

// exitModes are the words of --on-exit.
var exitModes = map[string]follow.Exit{"park": follow.ExitPark, "hold": follow.ExitHold, "off": follow.ExitOff}

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
