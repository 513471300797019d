package edge

import (
	"sync/atomic"
	"time"

	"edgert/chunk"
	"edgert/edge/event"
	"edgert/edge/follow"
	"edgert/edge/tick"
	"edgert/record"
	"edgert/rt"
)

// The parts of a tick, in their order.
const (
	lapRead  = iota // all joints
	lapAct          // the next action, its limits, and the goals on the bus
	lapMerge        // at most one chunk
	lapAsk          // the trigger, and the snapshot for the sender
	numLaps
)

var lapNames = [numLaps]string{"read", "act", "merge", "ask"}

// control is one robot's tick: read, act, write, then merge and ask.
type control struct {
	// Constant after Open.
	clock   rt.Clock
	period  time.Duration
	dof     int
	bus     bus
	quiet   time.Duration // degraded_after
	offline time.Duration // max_offline
	exit    follow.Exit

	// Owner: tick thread.
	core     tick.Core
	log      *record.Log        // nil: nobody wants it
	sessions [4]*record.Session // by epoch
	arm      *follow.Follower
	joined   chunk.Chunk
	epoch    uint32
	key      int64
	episode  uint32
	fresh    bool   // the next observation starts an episode
	reset    uint32 // of resets, those carried out
	lastGood rt.Instant
	waits    rt.Instant // when the first request left that nothing has answered; 0: none
	began    rt.Instant
	now      State
	nowSince rt.Instant
	warned   uint32     // joints that people were told of
	resting  bool       // the last tick was paused
	waiting  bool       // an operator is waited for, since a motor has restarted
	source   rt.Instant // what the last action is made from was seen then; 0: none ran

	// Shared with other threads through their own types.
	stop      *atomic.Bool
	leave     atomic.Bool   // asked to park and stop
	hurry     atomic.Bool   // asked to stop without parking
	paused    atomic.Bool   // asked to hold and ask for nothing; the schedule stays
	resets    atomic.Uint32 // episodes asked for so far
	link      *linkFlags
	snapshots *rt.Latest[snapshot]
	glances   *rt.Latest[glance] // nil: nobody can look
	waker     *rt.Waker
	departed  *rt.Ring[departure]
	inbox     *rt.Latest[arrival]
	events    *event.Queue
	laps      *rt.Laps // of the tick, by lapNames
	stats     *tickStats
	failed    atomic.Pointer[error]
}

// tick is one period. Everything that touches the schedule happens here, so it
// has one owner and no lock.
//
//rt:noalloc
func (c *control) tick(t rt.Tick) rt.Wait {
	if c.began == 0 {
		c.begin(t.Woke)
	}
	if o := t.Overrun; o.Own {
		c.events.Emit(t.Woke, event.TickOverrun, int64(o.CPU+o.BusWait), int64(o.Stolen))
	}
	c.laps.Begin(t.Woke)
	if t.Suspended > 0 {
		c.suspended(t)
	}
	before := c.arm.Phase
	c.arm.Read(t)
	c.mind(t.Woke, before)
	c.laps.Mark(lapRead)
	c.obey(t.Woke)
	switch c.arm.Phase {
	case follow.Arming:
		c.armOn(t)
	case follow.Armed:
		c.act(t.Woke)
	case follow.Parking:
		c.arm.ParkOn(t.Woke, c.hurry.Load())
	}
	c.laps.Mark(lapAct)
	c.merge(t.Woke)
	c.laps.Mark(lapMerge)
	c.ask(t.Woke)
	c.settle(t.Woke)
	c.show(t)
	c.laps.Mark(lapAsk)
	c.laps.End()
	return c.bus.BusWait()
}

//rt:noalloc
func (c *control) begin(now rt.Instant) {
	c.began, c.lastGood, c.nowSince = now, now, now
}

// suspended drops what was asked and seen before the machine was suspended.
//
//rt:noalloc
func (c *control) suspended(t rt.Tick) {
	c.events.Emit(t.Woke, event.Suspended, int64(t.Suspended), 0)
	c.resets.Add(1)
	c.link.awake.Store(int64(t.Woke))
}

// armOn takes the next step towards a torque that holds the arm where it is; it
// happens once a run, over some ticks, and again where the arm was away.
func (c *control) armOn(t rt.Tick) {
	touched, err := c.arm.ArmOn(t)
	if touched {
		c.stats.touched.Store(true)
	}
	if err != nil {
		c.fail(err)
	}
	if c.arm.Phase == follow.Armed {
		c.core.Stages.Reset(c.arm.Goal)
		c.stats.armed.Store(true)
	}
}

// obey takes the operator's wishes.
//
//rt:noalloc
func (c *control) obey(now rt.Instant) {
	paused := c.paused.Load()
	if paused {
		// Nobody is asked, so nobody is missed; and nothing gets torque.
		c.lastGood = now
		c.link.merged.Store(int64(now))
		c.arm.Postpone()
	} else if c.resting {
		c.arm.Consent()
		c.waiting = false
		c.stats.waits.Store(false)
	}
	c.resting = paused
	if n := c.resets.Load(); n != c.reset {
		c.reset = n
		c.core.Reset(c.arm.Goal)
		c.waits = 0
		c.episode++
		c.fresh = true
		c.stats.episode.Store(c.episode)
	}
}

// merge joins at most one waiting chunk.
//
//rt:noalloc
func (c *control) merge(now rt.Instant) {
	for d := c.departed.Peek(); d != nil; d = c.departed.Peek() {
		c.core.Plan.Pictured(d.key, d.source)
		c.departed.Release()
	}
	a, key, fresh := c.inbox.Front()
	if !fresh {
		return
	}
	switch {
	case a.epoch != c.epoch:
		c.stats.drop(dropEpoch)
		return
	case a.episode != c.episode:
		c.stats.drop(dropEpisode)
		return
	}
	robot := a.body.ChunkRobot
	c.joined = chunk.Chunk{
		Key: key, Rows: robot.Rows, DOF: robot.Cols, Robot: robot.Data, Model: a.body.ChunkModel.Data,
		Prov: chunk.Provenance{Seq: uint64(key), Epoch: a.epoch, Episode: a.episode},
	}
	res := c.core.Plan.OnChunk(c.clock.Now(), &c.joined)
	switch {
	case res.Outcome == chunk.Unknown:
		c.stats.drop(dropUnknown)
		return
	case res.Outcome != chunk.Joined:
		c.stats.drop(dropOutcome + int(res.Outcome))
		return
	}
	c.stats.chunks.Add(1)
	c.stats.rtt.Record(res.RTT)
	served := time.Duration((a.body.QueueWaitMs + a.body.InferenceMs) * float64(time.Millisecond))
	c.stats.network.Record(max(0, res.RTT-served))
	c.lastGood, c.fresh, c.waits = now, false, 0
	c.link.merged.Store(int64(now))
	if !c.paused.Load() {
		c.arm.Begin()
	}
	c.move(now, Merged)
}

// ask decides whether the next observation leaves, and hands it over.
//
//rt:noalloc
func (c *control) ask(now rt.Instant) {
	if epoch := c.link.epoch.Load(); epoch != c.epoch {
		c.epoch = epoch
		if epoch != 0 {
			c.sessions[epoch%uint32(len(c.sessions))] = c.link.session.Load()
			c.core.Plan.Rearm()
			c.move(now, Opened)
		}
	}
	able := c.epoch != 0 && !c.arm.Silent() && c.arm.Frozen() == 0 && c.arm.Phase < follow.Parking && c.now != Dead && c.link.blind.Load() == 0 && !c.paused.Load()
	var goal []float32
	if c.arm.Phase == follow.Armed {
		goal = c.arm.Goal
	}
	s := c.snapshots.Back()
	if !c.core.Ask(now, able, c.arm.State, goal, &s.ask) {
		return
	}
	c.key = s.ask.Key
	s.epoch, s.episode, s.start = c.epoch, c.episode, c.fresh
	s.at = now
	s.runway = time.Duration(s.ask.Runway*c.core.Stages.Multiplier()) * c.period
	copy(s.state, c.arm.State)
	c.link.sentKey.Store(c.key)
	c.link.asked.Store(int64(now))
	if c.waits == 0 {
		c.waits = now
	}
	c.stats.requests.Add(1)
	c.stats.delay.Store(int64(c.core.Plan.View().Estimate))
	if c.snapshots.Publish(c.key) {
		c.waker.Wake()
	}
}

// settle reports what this tick changed about the run as a whole.
//
//rt:noalloc
func (c *control) settle(now rt.Instant) {
	if c.arm.Silent() {
		c.move(now, BusSilent)
	}
	// A discipline that asks rarely is not left alone before it has asked for a while.
	if c.arm.Phase == follow.Armed && c.waits != 0 && now.Sub(c.lastGood) >= c.quiet && now.Sub(c.waits) >= c.quiet/4 {
		c.move(now, Quiet)
	}
	if c.link.lost.Swap(false) {
		c.move(now, LinkLost)
	}
	if c.link.refused.Load() {
		c.move(now, Refused)
	}
	if now.Sub(c.lastGood) >= c.offline && c.arm.Phase < follow.Parking {
		c.stats.busFault.Store(c.arm.Silent() || c.arm.Frozen() != 0)
		c.move(now, Offline)
	}
	c.stats.inState[c.now].Add(int64(now.Sub(c.nowSince)))
	c.nowSince = now
	c.stats.size.Store(int64(c.core.Plan.View().Size))
	switch {
	case c.now == Dead:
		c.leave.Store(true)
		fallthrough
	case c.leave.Load():
		rearming := c.arm.Phase == follow.Arming && c.arm.Stiff()
		if c.arm.Phase < follow.Armed && !rearming || c.arm.Phase == follow.Done {
			c.stop.Store(true)
		} else if c.arm.Phase == follow.Armed && c.now == Dead || rearming {
			c.arm.Depart(now)
		}
	}
}

// move applies a cause to the state machine.
//
//rt:noalloc
func (c *control) move(now rt.Instant, cause Cause) {
	next := c.now.After(cause)
	if next == c.now {
		return
	}
	c.events.Emit(now, event.StateChanged, int64(c.now), int64(next))
	c.stats.inState[c.now].Add(int64(now.Sub(c.nowSince)))
	c.now, c.nowSince = next, now
	c.stats.state.Store(uint32(next))
}

// fail ends the run with an error; the arm is let go by whoever waits for it.
func (c *control) fail(err error) {
	c.failed.CompareAndSwap(nil, &err)
	c.stop.Store(true)
}
