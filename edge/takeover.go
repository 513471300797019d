package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// leaderSilent is the age from which a leader's pose no longer drives the follower.
const leaderSilent = 100 * time.Millisecond

// leaderArm has the methods of *leader.Leaders that the tick calls. Tests implement it without
// motors.
type leaderArm interface {
	Choose(joints robot.Joints) // joints of the parts that a person takes over
	Pose() *leader.Pose         // lent until the next call
	Want(now rt.Instant, number uint32, align bool, place []float32)
	Actuated() bool
}

// takeover is the state of the take-over by a person. Owner: the tick thread.
type takeover struct {
	leader leaderArm    // nil: the run has no leader
	parts  robot.Joints // joints of the parts that have a leader
	led    robot.Joints // joints of the parts that a person takes over, or has taken over
	order  uint32       // number of take-overs so far
	pushes uint32       // pushes of the leader that the tick has handled
	since  rt.Instant   // older poses are ignored, since they are from before the machine was suspended
	silent bool         // correcting, and the leader does not answer
	held   robot.Joints // joints of the leader that do not lead at present
	action []float32    // [dof] the leader's pose; a joint that does not lead keeps its goal
}

// checkLeader updates the parts that the next take-over concerns. It cancels a take-over while the
// run waits for a resume, and turns a push of the leader into a take-over.
//
//rt:noalloc
func (c *control) checkLeader(now rt.Instant) {
	k := &c.takeover
	if k.leader == nil {
		return
	}
	if c.needResume && c.operator.correct.Swap(false) {
		c.operator.pause.Store(true) // a correction does not count as the consent that a restarted motor needs
	}
	led := cmp.Or(robot.Joints(c.operator.taken.Load()), k.parts)
	if pose := k.leader.Pose(); pose.Pushes != k.pushes {
		k.pushes = pose.Pushes
		if r := c.request(); (r == goOn || r == breaks) && modes[c.mode][lead].do&takeOver != 0 &&
			c.arm.Phase == follow.Armed {
			c.events.Emit(now, event.LeaderPushed, 0, 0)
			c.operator.correct.Store(true)
			led = k.parts // even if the last command named one part
		}
	}
	if c.mode != aligning && c.mode != correcting {
		k.led = led
		k.leader.Choose(led)
		c.stats.led.Store(uint32(led))
	}
}

// request returns the strongest request of this tick.
//
//rt:noalloc
func (c *control) request() request {
	switch o := &c.operator; {
	case c.drive.Leaving() || c.run.state == stateDead:
		return end
	case o.pause.Load():
		return stop
	case c.takeover.leader != nil && o.correct.Load():
		return c.takeover.request(c.mode)
	case o.rest.Load():
		return breaks
	}
	return goOn
}

// request returns the request of a person who takes over.
//
//rt:noalloc
func (k *takeover) request(m mode) request {
	if !k.leader.Actuated() {
		return lead
	}
	switch pose := k.leader.Pose(); {
	case m != aligning || pose.Order != k.order:
	case pose.State == leader.Failed:
		return giveUp
	case pose.State == leader.Ready && !pose.Stiff:
		return lead
	}
	return align
}

// obey changes the mode at a request.
//
//rt:noalloc
func (c *control) obey(now rt.Instant, r request) {
	next := modes[c.mode][r]
	c.mode = next.to
	if next.do&takeOver != 0 {
		c.takeover.order++
		c.stats.takeovers.Add(1)
		if c.arm.Gate().Wheels&c.takeover.led != 0 {
			c.arm.StopBase() // the wheels would keep the velocity of the policy's last action
		}
	}
	if next.do&restart != 0 {
		c.operator.resets.Add(1)
		c.takeover.silent = false
		c.takeover.held = 0
	}
	if next.do&slowly != 0 {
		c.arm.StartSlowly(now)
	}
	if next.do&consent != 0 {
		c.arm.Resume()
		c.needResume = false
		c.stats.needResume.Store(false)
	}
	if next.do&latch != 0 {
		c.operator.pause.Store(true)
		c.operator.correct.Store(false)
	}
}

// orderLeader gives the leader its order and shows the phase of the take-over to other threads.
//
//rt:noalloc
func (c *control) orderLeader(now rt.Instant) {
	k := &c.takeover
	if k.leader == nil {
		return
	}
	k.leader.Want(now, k.order, c.mode == aligning, c.arm.Goal)
	pose := k.leader.Pose()
	c.stats.leaderAt.Store(int64(pose.At))
	c.stats.leaderStiff.Store(pose.Stiff)
	shown := c.mode
	if shown > correcting {
		shown = autonomous
		if c.operator.pause.Load() {
			shown = paused
		}
	}
	if was := mode(c.stats.phase.Swap(uint32(shown))); was != shown {
		c.events.Emit(now, event.PhaseChanged, int64(was), int64(shown))
	}
}

// shares reports whether the policy drives the parts that a person has not taken over.
//
//rt:noalloc
func (c *control) shares() bool {
	return c.mode == correcting && c.arm.Apart() && c.takeover.led != c.arm.Joints()
}

// correct drives the parts that a person has taken over, to the pose of their leader. While the leader
// is silent these parts hold; afterwards they start slowly, since the leader may have moved. row is
// the policy's action for the other parts, nil while they hold.
//
//rt:noalloc
func (c *control) correct(now rt.Instant, row []float32) {
	k := &c.takeover
	pose := k.leader.Pose()
	c.reportHeld(now, pose)
	if row != nil {
		c.arm.DriveOnly(now, row, ^k.led)
	}
	if pose.At <= k.since || pose.Stiff || now.Sub(pose.At) >= leaderSilent {
		if !k.silent {
			k.silent = true
			c.events.Emit(now, event.LeaderSilent, 0, 1)
		}
		c.arm.CancelArming()
		c.arm.StartOnlySlowly(now, k.led)
		return
	}
	if k.silent {
		k.silent = false
		c.events.Emit(now, event.LeaderBack, 0, 0)
	}
	c.arm.StartArming() // also a part that was away while the other parts stayed armed
	if c.arm.Phase != follow.Armed {
		return
	}
	clear(k.action) // a base gets velocity 0
	copy(k.action, pose.Joints)
	c.arm.KeepGoals(k.action, k.held|^k.led)
	for j, v := range row {
		if !k.led.Has(j) {
			k.action[j] = v
		}
	}
	c.arm.Lead(now, k.action, k.led)
	c.source = pose.At
	c.stats.corrected.Add(1)
	if e := c.entry; e != nil {
		e.Intervention, e.Source = true, pose.At
		e.Action.Set(k.action)
	}
}

// reportHeld reports the joints of the leader that no longer lead, and the joints that lead again.
// If joints lead again, the follower starts slowly.
//
//rt:noalloc
func (c *control) reportHeld(now rt.Instant, pose *leader.Pose) {
	k := &c.takeover
	if k.held == pose.Held {
		return
	}
	for j, cause := range pose.Causes {
		if bit := robot.Joints(1) << j; (pose.Held&^k.held)&bit != 0 {
			c.events.Emit(now, event.LeaderHeld, int64(bit), int64(cause))
		}
	}
	if ended := k.held &^ pose.Held; ended != 0 {
		c.arm.StartSlowly(now)
		c.events.Emit(now, event.LeaderLeads, int64(ended), 0)
	}
	k.held = pose.Held
}

// held reports, for the record, that a pause, a break between episodes or an alignment holds the arm.
//
//rt:noalloc
func (c *control) held() bool { return c.mode == paused || c.mode == aligning || c.mode == resting }

// led reports whether the run has a leader.
func (e *Edge) led() bool { return e.control.takeover.leader != nil }

// correction hands the arm, or one part of it, to the person at the leader, and waits until the tick
// has begun the take-over.
func (e *Edge) correction(_ context.Context, part string) (bool, error) {
	c := e.control
	if err := e.choose(part); err != nil {
		return false, err
	}
	if err := e.checkCorrection(); err != nil {
		return false, err
	}
	before := c.stats.takeovers.Load()
	c.operator.correct.Store(true)
	was := c.operator.pause.Swap(false)
	begun := func() bool { return c.stats.takeovers.Load() != before || c.holder() >= aligning }
	err := e.await(func() bool { return begun() || !c.operator.correct.Load() })
	if err == nil && !begun() {
		err = errors.New("a pause came first: nobody has the arm")
	}
	if err != nil {
		if was {
			c.operator.pause.Store(true) // otherwise the policy would go on as soon as the tick does
		}
		c.operator.correct.Store(false)
	} else if e.jog != nil {
		e.log.Info(e.jog.Help())
	}
	return false, err
}

// choose selects the part that the next take-over concerns. An empty name selects every part with a
// leader.
func (e *Edge) choose(part string) error {
	c, joints := e.control, e.control.takeover.parts
	if part != "" && e.led() {
		i := slices.IndexFunc(e.robot.Parts(), func(p robot.Part) bool { return p.Name == part })
		switch {
		case i < 0:
			return fmt.Errorf("no part %s: %s has %s", part, e.robot.Name, cmp.Or(e.robot.PartNames(), "one arm"))
		case e.robot.Parts()[i].Joints()&joints == 0:
			return fmt.Errorf("the part %s has no leader: start the run with --leader %[1]s=PORT", part)
		}
		joints = e.robot.Parts()[i].Joints()
	}
	if had := robot.Joints(c.stats.led.Load()); c.holder() >= aligning && had != joints {
		return fmt.Errorf("a person has %s: edge-rt ctl resume gives it back first", e.partsOf(had))
	}
	c.operator.taken.Store(uint32(joints))
	return e.await(func() bool { return !e.led() || c.stats.led.Load() == uint32(joints) })
}

// partsOf returns the names of the parts of these joints, empty for a robot of one arm.
func (e *Edge) partsOf(joints robot.Joints) string {
	var names []string
	for _, p := range e.robot.Parts() {
		if p.Joints()&joints != 0 && p.Name != "" {
			names = append(names, p.Name)
		}
	}
	return strings.Join(names, ", ")
}

// taken returns the names of the parts that a person drives now, "" for a robot of one arm.
func (e *Edge) taken() string {
	if e.control.holder() != correcting {
		return ""
	}
	return e.partsOf(robot.Joints(e.control.stats.led.Load()))
}

// checkCorrection refuses a take-over that cannot succeed now.
func (e *Edge) checkCorrection() error {
	st := e.control.stats
	age := e.clock.Now().Sub(rt.Instant(st.leaderAt.Load()))
	switch {
	case !e.led():
		return errNoLeader
	case e.drive.Leaving() || state(st.state.Load()) == stateDead:
		return errors.New("the run is ending")
	case e.waits() != "":
		return errors.New(e.waits())
	case st.leaderStiff.Load() && e.control.holder() < aligning:
		return errors.New("the leader is under torque and does not let go: check its cable and supply")
	case age >= leaderSilent+leaderGrace:
		return fmt.Errorf("the leader does not answer%s", e.leaderAway())
	}
	return nil
}

// leaderGrace is added to leaderSilent outside the tick, since the tick sees newer poses than other
// threads.
const leaderGrace = 100 * time.Millisecond
