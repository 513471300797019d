package edge

import (
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// The phases of a tick, in their order.
const (
	phaseRead  = iota // all joints
	phaseAct          // the next action, its limits, and the goals on the bus
	phaseMerge        // the merge of at most one chunk
	phaseAsk          // the trigger, and the snapshot for the sender
	numPhases
)

var phaseNames = [numPhases]string{"read", "act", "merge", "ask"}

const (
	eventSlots    = 1024 // slots of the ring of events
	observedSlots = 64   // requests whose pictures' ages are kept
)

// control is one robot's tick: read, act, write, then merge and ask. Owner: the tick thread, except
// for fields marked otherwise.
type control struct {
	controlConfig
	core     follow.Core
	operator operatorRequests // any thread
	run      runState
	session  sessionState
	takeover takeover
	viewer   *drive.Viewer // nil: no page

	mode       mode
	blocked    block        // reasons why this tick sends no observation
	needResume bool         // a motor has restarted: the arm waits for an operator's resume
	warned     robot.Joints // joints for which a warning was emitted
	source     rt.Instant   // instant of the observation or leader's pose that led to the last action; 0: no action
	last       lastAction
	heldAll    robot.Joints // if no joint can be driven: the joints whose motors are the cause; else 0
	merged     chunk.Chunk
	inferences uplink.Inferences
	returnLeft time.Duration                // remaining time of the return between two episodes; 0: it has ended
	observed   [observedSlots]uplink.Source // ages of the pictures of the last requests
	entry      *record.Tick                 // record of this tick; nil: the tick is not recorded
	counted    servo.Stats                  // bus counters when the previous tick was recorded
	phases     *rt.Laps                     // durations of the tick's parts, in the order of phaseNames
}

type controlConfig struct {
	clock         rt.Clock
	period        time.Duration
	degradedAfter time.Duration
	maxOffline    time.Duration
	patience      uplink.Patience // zero: fixed limits degradedAfter, maxOffline and MaxAge of the core
	arm           *follow.Parts
	bus           bus
	record        *record.Recorder // nil: nothing is recorded
	events        *event.Queue
	waker         *rt.Waker // wakes the sender
	drive         *drive.Run
	out           *uplink.Outbox
	in            *uplink.Inbox
	missing       *atomic.Int32 // cameras without a first picture
	stats         *tickStats
	maxEmpty      int  // ticks in a row without an action until a warning; 0: no warning
	actions       int  // number of a chunk's first rows that are used; 0: all
	returns       bool // between two episodes the arm moves back to its arming pose
	repeats       bool // --fallback repeat_last
}

// bus has the methods of hotplug.Parts that the tick calls itself, not through its followers. Tests
// implement it without motors.
type bus interface {
	Stats() servo.Stats
	Warned() robot.Joints // joints whose temperature or supply is outside the limits of the robot's description
	Extremes() (hottest, volts float64)
}

// runState is the state of the run, with the instants that it depends on.
type runState struct {
	state        state
	since        rt.Instant // stats.inState includes the time until this instant
	lastMerge    rt.Instant
	alive        rt.Instant  // instant of the server's last status reply while a chunk was due
	lacks        event.Lacks // reasons for missing chunks since the later of lastMerge and alive
	gaveUp       event.Lacks // copy of lacks at the end of maxOffline
	empty        int         // ticks in a row without an action
	firstRequest rt.Instant  // first request since the last answer; 0: no request is open
	resets       uint32      // number of operatorRequests.resets that the tick has carried out
}

// sessionState identifies the tick's requests by session, episode and key. merge drops an answer of an unknown session
// or of another episode.
type sessionState struct {
	epoch   uint32
	key     int64 // key of the newest request
	episode uint32
	start   bool             // the next observation starts the episode
	began   rt.Instant       // beginning of the episode
	all     *uplink.Sessions // sessions as the last tick read them
	lost    uint64           // number of lost sessions that updateState has handled
}

// block is a set of reasons why a tick sends no observation.
type block uint8

const (
	blockMode        block = 1 << iota // the policy does not drive, or the arm parks
	blockBusSilent                     // too many joints are silent: nothing may move
	blockJointSilent                   // a joint is silent: its measured position is old
	blockNoPicture                     // a camera has not given its first picture
	blockNoSession                     // no session is open
)

// newControl returns the tick of an arm. The caller has called Prepare of cfg.out before.
func newControl(cfg controlConfig, core follow.Core) *control {
	dof := len(cfg.arm.Goal)
	core.Gate = cfg.arm.Gate()
	if cfg.patience == (uplink.Patience{}) {
		cfg.patience = uplink.FixedPatience(core.MaxAge, cfg.degradedAfter, cfg.maxOffline)
	}
	c := &control{
		controlConfig: cfg,
		core:          core,
		phases:        rt.NewLaps(cfg.clock, numPhases),
		run:           runState{state: stateConnecting},
		last:          lastAction{row: make([]float32, dof)},
		returnLeft:    returnLimit,
		session: sessionState{
			episode: 1,
			start:   true,
			all:     cfg.in.Sessions(),
		},
	}
	c.stats.episode.Store(c.session.episode)
	return c
}

// tick runs one period. Only tick changes the schedule, so the schedule needs no lock.
//
//rt:noalloc
func (c *control) tick(t rt.Tick) rt.Wait {
	now := t.Woke
	if c.run.since == 0 {
		c.run.since, c.run.lastMerge = now, now
		c.run.lacks.Reset(now)
	}
	if o := t.Overrun; o.Own {
		c.events.Emit(now, event.TickOverrun, int64(o.CPU+o.IOWait), int64(o.Stolen))
	}
	c.phases.Begin(now)
	c.entry = recording.Begin(c.record, t)
	if t.Suspended > 0 {
		c.onSuspend(t)
	}
	before := c.arm.Phase
	c.arm.Read(t)
	c.checkArm(now, before)
	c.phases.Mark(phaseRead)
	c.applyRequests(now)
	c.blocked = c.blocks()
	c.stats.silent.Store(c.blocked&blockBusSilent != 0)
	if c.arm.Phase != follow.Armed || c.blocked&(blockMode|blockBusSilent) != 0 {
		c.last.from = 0
	}
	c.move(t)
	c.phases.Mark(phaseAct)
	c.merge(now)
	c.phases.Mark(phaseMerge)
	c.ask(now)
	c.updateState(now)
	c.viewer.Publish(t, c.arm, c.source)
	c.phases.Mark(phaseAsk)
	c.phases.End()
	c.commitRecord()
	return c.arm.Waited()
}

// onSuspend drops requests and pictures from before the machine was suspended.
//
//rt:noalloc
func (c *control) onSuspend(t rt.Tick) {
	c.events.Emit(t.Woke, event.Suspended, int64(t.Suspended), 0)
	c.takeover.since = t.Woke
	c.operator.resets.Add(1)
	c.out.ResumedAt.Store(int64(t.Woke))
}

//rt:noalloc
func (c *control) applyRequests(now rt.Instant) {
	c.checkLeader(now)
	c.obey(now, c.request())
	c.orderLeader(now)
	if c.mode != autonomous && c.mode != ending {
		// The policy does not drive, or drives only some parts, so no answer counts as missing.
		c.run.lastMerge = now
		c.run.lacks.Reset(now)
		if !c.shares() {
			c.out.MergedAt.Store(int64(now))
		}
	}
	if d := c.mode.drives(); d != policy && d != person {
		c.arm.CancelArming() // no joint gets torque
	}
	if n := c.operator.resets.Load(); n != c.run.resets {
		c.run.resets, c.run.firstRequest = n, 0
		c.last.from = 0
		if c.operator.anew.Swap(false) {
			c.arm.EaseIn(now, time.Duration(c.operator.easeIn.Load()))
		}
		c.core.Reset(c.arm.Goal)
		c.session.episode++
		c.session.start, c.session.began = true, now
		c.stats.episode.Store(c.session.episode)
	}
}

//rt:noalloc
func (c *control) blocks() (b block) {
	if c.mode != autonomous && !c.shares() {
		b |= blockMode
	}
	if c.arm.Silent() {
		b |= blockBusSilent
	}
	if c.arm.Blind() {
		b |= blockJointSilent
	}
	if c.missing.Load() > 0 {
		b |= blockNoPicture
	}
	return b
}

// move advances the arm's phase, and drives an armed arm.
//
//rt:noalloc
func (c *control) move(t rt.Tick) {
	before, drives := c.arm.Phase, c.mode.drives()
	switch {
	case c.drive.Step(t, before == follow.Arming, drives == nothing):
		c.act(t.Woke, drives)
	case before == follow.Armed:
		c.core.Hold()
	case before == follow.Arming && c.arm.Phase == follow.Armed:
		c.core.Stages.Reset(c.arm.Goal)
		c.stats.armed.Store(true)
	case before == follow.Unarmed && !c.drive.Leaving() && drives == person && c.blocked&blockBusSilent == 0:
		c.correct(t.Woke, nil) // correct arms the arm, too
	}
}

// act drives an armed arm.
//
//rt:noalloc
func (c *control) act(now rt.Instant, drives source) {
	if drives != home {
		c.returnLeft = returnLimit
	}
	switch {
	case c.blocked&blockBusSilent != 0:
		c.core.Hold() // no goal is sent: the motors hold

		if drives == policy || drives == person && c.shares() { // otherwise no action was due
			c.starve()
			c.stats.starvedBus.Add(1)
		}
	case drives == policy:
		c.actPolicy(now)
	case drives == person && c.shares():
		c.correct(now, c.nextRow(now))
	case drives == person:
		c.core.Hold()
		c.correct(now, nil)
	case drives == home:
		c.core.Hold()
		c.rest()
	default:
		c.core.Hold()
	}
}

// actPolicy drives the arm by the policy's action of this tick.
//
//rt:noalloc
func (c *control) actPolicy(now rt.Instant) {
	if row := c.nextRow(now); row != nil {
		c.arm.Drive(now, row)
	} else {
		c.repeatLast(now)
	}
}

// nextRow returns the policy's action of this tick, as the stages have shaped it. It returns nil
// when the schedule has no action that may run.
//
//rt:noalloc
func (c *control) nextRow(now rt.Instant) []float32 {
	action := c.core.Next(now)
	if action.TooOld {
		c.stats.tooOld.Add(1)
		if c.entry != nil {
			c.entry.TooOld = true
		}
	}
	if action.Policy != nil {
		c.source = now.Add(-action.Age)
		c.stats.age.Record(action.Age)
		c.stats.actions.Add(1)
	}
	if action.Row == nil {
		c.starve()
		if c.session.start && now.Sub(c.session.began) < c.degradedAfter {
			c.stats.starvedStart.Add(1)
		}
		c.change(now, causeStarved)
		if c.run.empty++; c.run.empty == c.maxEmpty && c.run.state != stateConnecting {
			c.events.Emit(now, event.Empty, int64(c.run.empty), int64(c.run.lacks.Longest()))
		}
		return nil
	}
	c.run.empty = 0
	copy(c.last.row, action.Row)
	c.last.from = c.source
	if action.Policy != nil {
		c.recordAction(action.Policy)
	}
	return action.Row
}

// returnLimit is the maximum time for the return to the arming pose, at the speed of parking.
const returnLimit = 2 * follow.ParkLimit

// rest holds the arm between two episodes. If c.returns is true, the arm first moves to its arming
// pose, for at most returnLimit. The time in which no joint may be driven does not count.
//
//rt:noalloc
func (c *control) rest() {
	if !c.returns || c.returnLeft <= 0 || c.heldAll != 0 {
		return
	}
	if c.returnLeft -= c.period; c.arm.ReturnStep() {
		c.returnLeft = 0
	}
}

// checkArm reacts to the state of the arm after Read. It voids the planned actions of an arm that must be armed again,
// and pauses the run after a restart of a motor. It reports held and warned joints, and ends the run at a fault.
//
//rt:noalloc
func (c *control) checkArm(now rt.Instant, before follow.Phase) {
	if before >= follow.Arming && c.arm.Phase == follow.Unarmed {
		c.operator.resets.Add(1) // the planned actions belong to another pose of the arm
	}
	if waits := c.arm.NeedsResume(); waits && !c.needResume {
		c.needResume = true
		c.stats.needResume.Store(true)
		c.operator.pause.Store(true)
		c.operator.correct.Store(false)
		c.obey(now, stop) // at once, because an operator may end the pause before the next tick
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
	from rt.Instant // instant of the observation that led to the action; 0: no action may be repeated
}

// repeatLast drives the arm by the last action again under --fallback repeat_last, until that
// action is too old.
//
//rt:noalloc
func (c *control) repeatLast(now rt.Instant) {
	if c.repeats && c.last.from != 0 && (c.core.MaxAge <= 0 || now.Sub(c.last.from) <= c.core.MaxAge) {
		c.arm.Drive(now, c.last.row)
		c.stats.repeated.Add(1)
	}
}

//rt:noalloc
func (c *control) merge(now rt.Instant) {
	for s := c.in.Sources.Peek(); s != nil; s = c.in.Sources.Peek() {
		c.core.Schedule.SetSource(s.Key, s.At)
		c.observed[s.Key%int64(len(c.observed))] = *s
		c.in.Sources.Release()
	}
	a, key, fresh := c.in.Answers.Front()
	switch {
	case !fresh:
		return
	case a.Epoch != c.session.epoch && c.session.all.Of(a.Epoch) == nil:
		c.dropAnswer(a, key, uplink.DropEpoch, chunk.Result{})
		return
	case a.Episode != c.session.episode:
		c.dropAnswer(a, key, uplink.DropEpisode, chunk.Result{})
		return
	}
	robot, model := a.Body.ChunkRobot, a.Body.ChunkModel.Data
	if c.actions > 0 && robot.Rows > c.actions {
		robot.Rows, robot.Data = c.actions, robot.Data[:c.actions*robot.Cols]
		model = model[:min(len(model), len(robot.Data))]
	}
	c.merged = chunk.Chunk{
		Key:   key,
		Rows:  robot.Rows,
		DOF:   robot.Cols,
		Robot: robot.Data,
		Model: model,
		Prov:  chunk.Provenance{Seq: uint64(key), Epoch: a.Epoch, Episode: a.Episode},
	}
	res := c.core.Schedule.OnChunk(c.clock.Now(), &c.merged)
	c.learnPace(a.Body.InferenceMs, res.RTT)
	if res.Outcome != chunk.Joined {
		reason := dropOutcome + int(res.Outcome)
		if res.Outcome == chunk.Unknown {
			reason = uplink.DropUnknown
		}
		c.dropAnswer(a, key, reason, res)
		return
	}
	c.recordChunk(a, key, record.Joined, res)
	c.stats.chunks.Add(1)
	c.stats.rtt.Record(res.RTT)
	served := time.Duration((a.Body.QueueWaitMs + a.Body.InferenceMs) * float64(time.Millisecond))
	c.stats.network.Record(max(0, res.RTT-served))
	c.run.lastMerge = now
	c.run.firstRequest = 0
	c.session.start = false
	c.run.lacks.Reset(now)
	c.out.MergedAt.Store(int64(now))
	if c.mode.drives() == policy {
		c.arm.StartArming()
	}
	// Two kinds of chunks do not change the run's state: a chunk that answers a request of a lost session, and a chunk
	// whose actions are all too old to run, for example because a camera is away.
	asked := c.asked(key)
	old := asked != 0 && c.core.MaxAge > 0 && now.Sub(asked) > c.core.MaxAge
	if c.heldAll == 0 && c.session.epoch != 0 && !old {
		c.change(now, causeMerged)
	}
}

//rt:noalloc
func (c *control) dropAnswer(a *uplink.Answer, key int64, reason int, res chunk.Result) {
	c.stats.drop(reason)
	c.recordChunk(a, key, dropNames[reason], res)
}

//rt:noalloc
func (c *control) ask(now rt.Instant) {
	if all := c.in.Sessions(); c.operator.resets.Load() == c.run.resets {
		c.session.all = all // after a requested reset the next tick begins the episode, and then takes the sessions
	}
	if epoch := c.session.all.Epoch(); epoch != c.session.epoch {
		c.session.epoch = epoch
		if epoch != 0 {
			c.core.Schedule.RequestNow()
			c.learnPace(0, 0)
			c.change(now, causeOpened)
		}
	}
	if c.session.epoch == 0 {
		c.blocked |= blockNoSession
	}
	if c.arm.Phase >= follow.Parking || c.run.state == stateDead {
		c.blocked |= blockMode
	}
	var goal []float32
	if c.arm.Phase == follow.Armed {
		goal = c.arm.Goal
	}
	s := c.out.Snapshots.Back()
	asked := c.core.Ask(now, c.blocked == 0, c.arm.State, goal, &s.Ask)
	s.Step = c.keepStep(now)
	if !asked {
		return
	}
	c.session.key = s.Ask.Key
	s.Epoch = c.session.epoch
	s.Episode = c.session.episode
	s.Start = c.session.start
	s.At = now
	s.Runway = time.Duration(s.Ask.Runway*c.core.Stages.Multiplier()) * c.period
	copy(s.State, c.arm.State)
	c.out.SentKey.Store(s.Ask.Key)
	if c.out.AskedAt.Load() <= c.out.MergedAt.Load() {
		c.out.AskedAt.Store(int64(now))
	}
	if c.run.firstRequest == 0 {
		c.run.firstRequest = now
	}
	c.stats.requests.Add(1)
	c.recordRequest(s)
	if c.out.Snapshots.Publish(s.Ask.Key) {
		c.waker.Wake()
	}
}

// keepStep puts the arm's state into the history once per action, and returns its key. It returns 0 on other ticks, and
// for a policy without a history. A tick that may send no observation breaks the history.
//
//rt:noalloc
func (c *control) keepStep(now rt.Instant) (key int64) {
	switch h := c.out.Steps; {
	case h == nil:
		return 0
	case c.blocked != 0:
		h.Break()
		return 0
	case c.core.AtAction():
		key = h.Put(now, c.session.epoch, c.session.episode, c.arm.State,
			c.arm.Stale() == 0)
		c.waker.Wake()
	}
	return key
}
