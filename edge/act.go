package edge

import (
	"fmt"
	"math"
	"time"

	"edgert/chunk"
	"edgert/record"
	"edgert/rt"
)

// act runs the next action, or holds.
//
//rt:noalloc
func (c *control) act(now rt.Instant) {
	if c.leave.Load() {
		c.depart(now)
		return
	}
	if c.silent || c.paused.Load() {
		c.shape.Rest()
		c.bus.Write(c.goal)
		if c.silent {
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
		c.slew(now)
		c.limits.Apply(c.goal, row, c.state, c.frozen|c.held)
	} else {
		c.starve(now)
	}
	if noted != nil {
		copy(noted.Goal[:], c.goal)
		c.log.Commit()
	}
	c.bus.Write(c.goal)
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
	copy(a.State[:], c.state)
	return a
}

//rt:noalloc
func (c *control) starve(now rt.Instant) {
	c.stats.starved.Add(1)
	c.move(now, Starved)
}

// ExitMode says what the arm does when the run ends, --on-exit.
type ExitMode uint8

// The exit modes. Whatever the mode, a robot that was never armed is left as
// it was found.
const (
	ExitPark ExitMode = iota // back to where it was armed, then torque off
	ExitHold                 // torque stays on at the last goal
	ExitOff                  // torque off where it stands
)

// exitModes are the words of --on-exit.
var exitModes = map[string]ExitMode{"park": ExitPark, "hold": ExitHold, "off": ExitOff}

const (
	parkLimit     = 3 * time.Second // parking gives up after this
	parkSpeed     = 0.25            // of the robot's velocity limit
	parkTolerance = 2.0             // robot units; nearer counts as there
)

// depart leaves the armed phase: towards the parking place, or at once.
//
//rt:noalloc
func (c *control) depart(now rt.Instant) {
	c.bus.Write(c.goal)
	c.phase = done
	if c.exitMode == ExitPark && !c.silent {
		c.phase, c.parkEnd = parking, now.Add(c.parkMax)
	}
}

// parkOn moves one tick towards the parking place.
//
//rt:noalloc
func (c *control) parkOn(now rt.Instant) {
	there := true
	for j := range c.goal {
		d := c.park[j] - c.goal[j]
		c.goal[j] += min(max(d, -c.parkStep[j]), c.parkStep[j])
		if math.Abs(float64(c.park[j]-c.state[j])) > parkTolerance {
			there = false
		}
	}
	c.bus.Write(c.goal)
	if there || c.silent || now >= c.parkEnd || c.hurry.Load() {
		c.phase = done
	}
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
