package edge

import (
	"sync/atomic"
	"time"

	"edgert/chunk"
	"edgert/chunk/stage"
	"edgert/edge/limit"
	"edgert/edge/plug"
	"edgert/record"
	"edgert/rt"
	"edgert/servo/robot"
)

// How long a joint may be silent, design.md section 3.
const (
	jointStale = 100 * time.Millisecond // this joint keeps its goal
	busSilence = 200 * time.Millisecond // nothing may move
	busReserve = 3 * time.Millisecond   // of each period, for the goal write and the rest of the tick
)

// phase is what the tick does with the motors.
type phase uint8

const (
	untouched phase = iota // torque is as it was found: nothing is written
	arming                 // a chunk is there: goal := present, torque on
	armed                  // actions run
	parking                // moving back to where the run began
	done
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
	clock    rt.Clock
	period   time.Duration
	dof      int
	bus      bus
	maxAge   time.Duration
	quiet    time.Duration // degraded_after
	offline  time.Duration // max_offline
	parkStep []float32     // [dof] travel per tick while parking
	returns  map[plug.Cause]robot.Return
	slewFor  time.Duration // after arming the arm is slow
	slewPace float32       // share of the velocity limit then
	parkMax  time.Duration
	exitMode ExitMode

	// Owner: tick thread.
	plan     chunk.Discipline
	shape    *stage.Chain
	cycle    int                // ticks since the discipline's last one
	log      *record.Log        // nil: nobody wants it
	sessions [4]*record.Session // by epoch
	limits   limit.Limiter
	joined   chunk.Chunk
	state    []float32
	seen     []rt.Instant // per joint
	goal     []float32
	park     []float32 // where the arm stood when it was armed
	parkEnd  rt.Instant
	phase    phase
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
	stale    uint32 // joints that did not answer in this tick
	frozen   uint32 // those silent for so long that they keep their goal
	held     uint32 // those whose motor complains
	warned   uint32 // those that people were told of
	slewEnd  rt.Instant
	silent   bool
	mute     bool       // the last tick could not ask
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
	events    *rt.Events
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
		c.events.Emit(rt.Event{At: t.Woke, Code: rt.TickOverrun, A: int64(o.CPU + o.BusWait), B: int64(o.Stolen)})
	}
	c.laps.Begin(t.Woke)
	c.read(t)
	c.mind(t.Woke)
	c.laps.Mark(lapRead)
	c.obey(t.Woke)
	switch c.phase {
	case arming:
		c.arm(t)
	case armed:
		c.act(t.Woke)
	case parking:
		c.parkOn(t.Woke)
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
	for j := range c.seen {
		c.seen[j] = now
	}
}

// read fetches the joints and applies the stale rules.
//
//rt:noalloc
func (c *control) read(t rt.Tick) {
	c.stale = c.bus.Read(c.state, t.Deadline.Add(c.period-busReserve))
	c.frozen = 0
	count, longest := 0, time.Duration(1<<62)
	for j := range c.seen {
		if c.stale&(1<<j) == 0 {
			c.seen[j] = t.Woke
		}
		quiet := t.Woke.Sub(c.seen[j])
		longest = min(longest, quiet)
		if quiet >= jointStale {
			c.frozen |= 1 << j
			count++
		}
	}
	silent := count >= 2 || longest >= busSilence
	if silent && !c.silent {
		c.events.Emit(rt.Event{At: t.Woke, Code: rt.BusLost, A: int64(count)})
	}
	c.silent = silent
}

// arm takes the next step towards a torque that holds the arm where it is; it
// happens once a run, over some ticks.
func (c *control) arm(t rt.Tick) {
	if c.stale != 0 {
		return
	}
	c.stats.touched.Store(true)
	holds, err := c.bus.ArmStep(t.Deadline.Add(c.period - busReserve))
	if err != nil {
		c.fail(err)
	}
	if !holds {
		return
	}
	copy(c.goal, c.state)
	if !c.stats.armed.Load() {
		copy(c.park, c.state) // and not where it was armed again, later
	}
	c.shape.Reset(c.goal)
	c.phase = armed
	c.slewEnd = t.Woke.Add(c.slewFor)
	c.events.Emit(rt.Event{At: t.Woke, Code: rt.TorqueOn})
	c.stats.armed.Store(true)
}

// obey takes the operator's wishes.
//
//rt:noalloc
func (c *control) obey(now rt.Instant) {
	if c.paused.Load() {
		// Nobody is asked, so nobody is missed.
		c.lastGood = now
		c.link.merged.Store(int64(now))
	}
	if n := c.resets.Load(); n != c.reset {
		c.reset = n
		c.plan.Reset()
		c.shape.Reset(c.goal)
		c.waits = 0
		c.episode++
		c.fresh = true
		c.stats.episode.Store(c.episode)
		c.events.Emit(rt.Event{At: now, Code: rt.EpisodeReset, A: int64(c.episode)})
	}
}

// merge joins at most one waiting chunk.
//
//rt:noalloc
func (c *control) merge(now rt.Instant) {
	for d := c.departed.Peek(); d != nil; d = c.departed.Peek() {
		c.plan.Pictured(d.key, d.source)
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
	res := c.plan.OnChunk(c.clock.Now(), &c.joined)
	switch {
	case res.Outcome == chunk.Unknown:
		c.stats.drop(dropUnknown)
		return
	case res.Outcome != chunk.Joined:
		c.stats.drop(dropOutcome + int(res.Outcome))
		c.events.Emit(rt.Event{At: now, Code: rt.ChunkRefused, A: key, B: int64(res.Outcome)})
		return
	}
	c.stats.chunks.Add(1)
	c.stats.rtt.Record(res.RTT)
	served := time.Duration((a.body.QueueWaitMs + a.body.InferenceMs) * float64(time.Millisecond))
	c.stats.network.Record(max(0, res.RTT-served))
	c.lastGood, c.fresh, c.waits = now, false, 0
	c.link.merged.Store(int64(now))
	if c.phase == untouched {
		c.phase = arming
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
			c.plan.Rearm()
			c.move(now, Opened)
		}
	}
	if c.cycle++; c.cycle < c.shape.Multiplier() {
		return // the discipline counts actions, not ticks
	}
	c.cycle = 0
	if c.epoch == 0 || c.silent || c.frozen != 0 || c.phase >= parking || c.now == Dead || c.link.blind.Load() > 0 || c.paused.Load() {
		c.plan.OnIdleTick()
		c.mute = true
		return
	}
	if c.mute {
		c.mute = false
		c.plan.Resume()
	}
	s := c.snapshots.Back()
	if !c.plan.OnTick(now, c.state, &s.ask) {
		return
	}
	c.key = s.ask.Key
	s.epoch, s.episode, s.start = c.epoch, c.episode, c.fresh
	s.at = now
	s.runway = time.Duration(s.ask.Runway*c.shape.Multiplier()) * c.period
	copy(s.state, c.state)
	if c.phase == armed {
		rows := s.ask.Robot[:s.ask.Rows*c.dof]
		c.shape.Preview(rows)
		c.limits.Preview(c.goal, rows, c.shape.Multiplier())
	}
	c.link.sentKey.Store(c.key)
	c.link.asked.Store(int64(now))
	if c.waits == 0 {
		c.waits = now
	}
	c.stats.requests.Add(1)
	c.stats.delay.Store(int64(c.plan.View().Estimate))
	if c.snapshots.Publish(c.key) {
		c.waker.Wake()
	}
}

// settle reports what this tick changed about the run as a whole.
//
//rt:noalloc
func (c *control) settle(now rt.Instant) {
	if c.silent {
		c.move(now, BusSilent)
	}
	// A discipline that asks rarely is not left alone before it has asked for a while.
	if c.phase == armed && c.waits != 0 && now.Sub(c.lastGood) >= c.quiet && now.Sub(c.waits) >= c.quiet/4 {
		c.move(now, Quiet)
	}
	if c.link.lost.Swap(false) {
		c.move(now, LinkLost)
	}
	if c.link.refused.Load() {
		c.move(now, Refused)
	}
	if now.Sub(c.lastGood) >= c.offline && c.phase < parking {
		c.stats.busFault.Store(c.silent || c.frozen != 0)
		c.move(now, Offline)
	}
	c.stats.inState[c.now].Add(int64(now.Sub(c.nowSince)))
	c.nowSince = now
	c.stats.size.Store(int64(c.plan.View().Size))
	switch {
	case c.now == Dead:
		c.leave.Store(true)
		fallthrough
	case c.leave.Load():
		if c.phase < armed || c.phase == done {
			c.stop.Store(true)
		} else if c.phase == armed && c.now == Dead {
			c.depart(now)
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
	c.events.Emit(rt.Event{At: now, Code: rt.StateChanged, A: int64(c.now), B: int64(next)})
	c.stats.inState[c.now].Add(int64(now.Sub(c.nowSince)))
	c.now, c.nowSince = next, now
	c.stats.state.Store(uint32(next))
}

// fail ends the run with an error; the arm is let go by whoever waits for it.
func (c *control) fail(err error) {
	c.failed.CompareAndSwap(nil, &err)
	c.stop.Store(true)
}
