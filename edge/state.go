package edge

import (
	"time"

	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/leader"
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
	// no action is fit to run, the bus is silent, or no joint may be driven: the arm holds
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
	causeStarved                // an action was due and the schedule had no action fit to run
	causeBusSilent              // the bus rules demand a hold; reported on every such tick
	causeHeld                   // no joint is driven, since the motors complain; reported on every such tick
	causeLinkLost               // the session or the server's token is gone
	causeOffline                // no chunk for max_offline
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

// leaderSilent is the age from which a leader's pose no longer drives the follower.
const leaderSilent = 100 * time.Millisecond

// phase names the driver of the arm. The names are those of LeRobot's DAgger strategy; aligning is
// the part of its PAUSED in which the leader is brought to the follower.
type phase uint32

const (
	autonomous phase = iota // the policy drives
	paused                  // the arm holds
	aligning                // the arm holds while the leader moves to the follower's pose
	correcting              // a person drives, with the leader
)

var takeoverPhases = [...]string{"autonomous", "paused", "aligning", "correcting"}

func (p phase) String() string { return takeoverPhases[p] }

// leaderArm is the part of a *leader.Leader that the tick uses. Tests have one without motors.
type leaderArm interface {
	Pose() *leader.Pose // lent until the next call
	Want(now rt.Instant, number uint32, align bool, place []float32)
	Actuated() bool
}

// takeover is the state of the take-over by a person. Owner: the tick thread.
type takeover struct {
	leader leaderArm  // nil: the run has no leader
	phase  phase      // autonomous also while the run is paused
	order  uint32     // number of take-overs so far
	pushes uint32     // pushes of the leader that the tick has handled
	since  rt.Instant // older poses are ignored: the machine was suspended
	silent bool       // correcting, and the leader does not answer
	held   uint32     // bit set of the leader's joints that do not lead while it leads
	action []float32  // the leader's pose; a joint that does not lead keeps its goal
}

// updateTakeover moves the arm between the policy and the person. Actions that were planned or
// requested before a change never run after it.
//
//rt:noalloc
func (c *control) updateTakeover(now rt.Instant) {
	k := &c.takeover
	if k.leader == nil {
		return
	}
	if c.needResume && c.operator.correct.Swap(false) {
		c.operator.pause.Store(true) // only a resume is an operator's consent
	}
	pause := c.operator.pause.Load()
	pose := k.leader.Pose()
	ends := c.drive.Leaving() || c.run.state == stateDead
	if pose.Pushes != k.pushes {
		k.pushes = pose.Pushes
		if k.phase == autonomous && !pause && !ends && c.arm.Phase == follow.Armed {
			c.events.Emit(now, event.LeaderPushed, 0, 0)
			c.operator.correct.Store(true)
		}
	}
	want := c.operator.correct.Load() && !pause && !ends
	switch {
	case k.phase == autonomous && want:
		k.order++
		c.stats.takeovers.Add(1)
		c.operator.resets.Add(1)
		if k.phase = correcting; k.leader.Actuated() {
			k.phase = aligning
		}
		c.arm.StartSlowly(now)
	case k.phase == aligning && !want:
		k.phase = autonomous
	case k.phase == aligning && pose.Order == k.order && pose.State == leader.Failed:
		k.phase = autonomous
		c.operator.pause.Store(true)
		c.operator.correct.Store(false)
	case k.phase == aligning && pose.Order == k.order && pose.State == leader.Ready && !pose.Stiff:
		k.phase = correcting
		c.arm.StartSlowly(now)
	case k.phase == correcting && !want:
		k.phase = autonomous
		k.silent = false
		k.held = 0
		c.operator.resets.Add(1)
		c.arm.StartSlowly(now)
	}
	k.leader.Want(now, k.order, k.phase == aligning, c.arm.Goal)
	c.stats.leaderAt.Store(int64(pose.At))
	c.stats.leaderStiff.Store(pose.Stiff)
	c.reportPhase(now)
}

// reportPhase publishes the phase to the other threads.
//
//rt:noalloc
func (c *control) reportPhase(now rt.Instant) {
	p := c.takeover.phase
	if p == autonomous && c.operator.pause.Load() {
		p = paused
	}
	if was := phase(c.stats.phase.Swap(uint32(p))); was != p {
		c.events.Emit(now, event.PhaseChanged, int64(was), int64(p))
	}
}

// correct drives the follower to the leader's pose. While the leader is silent the follower holds;
// afterwards it starts slowly, since the leader may have moved.
//
//rt:noalloc
func (c *control) correct(now rt.Instant) {
	k := &c.takeover
	pose := k.leader.Pose()
	c.reportHeld(now, pose)
	if pose.At <= k.since || pose.Stiff || now.Sub(pose.At) >= leaderSilent {
		if !k.silent {
			k.silent = true
			c.events.Emit(now, event.LeaderSilent, 0, 0)
		}
		c.arm.CancelArming()
		c.arm.StartSlowly(now)
		return
	}
	if k.silent {
		k.silent = false
		c.events.Emit(now, event.LeaderBack, 0, 0)
	}
	switch c.arm.Phase {
	case follow.Unarmed:
		c.arm.StartArming()
	case follow.Armed:
		k.action = append(k.action[:0], pose.Joints...)
		c.arm.KeepGoals(k.action, k.held)
		c.arm.Drive(now, k.action)
		c.source = pose.At
		c.stats.corrected.Add(1)
		if e := c.entry; e != nil {
			e.Intervention, e.Source = true, pose.At
			e.Action.Set(k.action)
		}
	}
}

// reportHeld reports the joints of the leader that no longer lead, and those that lead again. The
// follower then starts slowly.
//
//rt:noalloc
func (c *control) reportHeld(now rt.Instant, pose *leader.Pose) {
	k := &c.takeover
	if k.held == pose.Held {
		return
	}
	for j, cause := range pose.Causes {
		if bit := uint32(1) << j; (pose.Held&^k.held)&bit != 0 {
			c.events.Emit(now, event.LeaderHeld, int64(bit), int64(cause))
		}
	}
	if ended := k.held &^ pose.Held; ended != 0 {
		c.arm.StartSlowly(now)
		c.events.Emit(now, event.LeaderLeads, int64(ended), 0)
	}
	k.held = pose.Held
}

// returnLimit is the time for the way back to the arming pose, at the speed of parking.
const returnLimit = 2 * follow.ParkLimit

// rest holds the arm between two episodes. With returns set, the arm first moves to its arming
// pose, for at most returnLimit.
//
//rt:noalloc
func (c *control) rest(now rt.Instant) {
	c.core.Hold()
	if c.restedFrom == 0 {
		c.restedFrom = now
	}
	if c.returns && now.Sub(c.restedFrom) < returnLimit && c.arm.ReturnStep() {
		c.restedFrom = now.Add(-returnLimit) // arrived
	}
}

// checkArm handles an arm that has returned, must be armed again, or must end the run.
//
//rt:noalloc
func (c *control) checkArm(now rt.Instant, before follow.Phase) {
	if before >= follow.Arming && c.arm.Phase == follow.Unarmed {
		c.operator.resets.Add(1) // the planned actions belong to another pose of the arm
	}
	if waits := c.arm.NeedsResume(); waits && !c.needResume {
		c.needResume, c.paused = true, true
		c.stats.needResume.Store(true)
		c.operator.pause.Store(true)
		c.operator.correct.Store(false)
	}
	held := c.arm.AllHeld()
	if held != 0 && c.heldAll == 0 {
		c.events.Emit(now, event.ArmHeld, int64(held), c.arm.Complaint(0))
	}
	c.heldAll = held
	warned := c.bus.Warned()
	if warned&^c.warned != 0 {
		hottest, volts := c.bus.Extremes()
		c.events.Emit(now, event.JointWarned, int64(warned), int64(hottest)<<16|int64(volts*10+0.5))
	}
	c.warned = warned
	if c.drive.Leaving() {
		return
	}
	if err := c.arm.Fatal(); err != nil {
		c.drive.Abort(err)
	}
}

// lastAction is the action that ran last, for --fallback repeat_last.
type lastAction struct {
	row  []float32  // [dof], after the stages
	from rt.Instant // instant of the observation that the action is made from; 0: nothing may be repeated
}

// repeatLast drives the last action again under --fallback repeat_last, until it is too old.
//
//rt:noalloc
func (c *control) repeatLast(now rt.Instant) {
	if !c.repeats || c.last.from == 0 || c.core.MaxAge > 0 && now.Sub(c.last.from) > c.core.MaxAge {
		return
	}
	c.arm.Drive(now, c.last.row)
	c.stats.repeated.Add(1)
}

// updateState applies this tick's causes to the state of the run, which ends when it gives up.
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
	// The state becomes Degraded only when a request has been open for a while: some disciplines
	// ask rarely.
	unanswered := c.run.firstRequest != 0 && now.Sub(c.run.firstRequest) >= c.degradedAfter/4
	if c.arm.Phase == follow.Armed && unanswered &&
		now.Sub(c.run.lastMerge) >= c.patience.Quiet(c.out.Pace().Or(c.in.Announced())) {
		c.change(now, causeQuiet)
	}
	if lost := c.session.all.Lost; lost != c.session.lost {
		c.session.lost = lost
		c.change(now, causeLinkLost)
	}
	if c.in.Refused.Load() && c.takeover.phase != correcting { // a person gives the arm back first
		c.change(now, causeRefused)
	}
	alive := rt.Instant(c.in.AliveAt.Load())
	if alive > c.run.alive { // the server answered: lacks begin anew
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
	c.stats.size.Store(int64(c.core.Schedule.View().Size))
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
