package rt

import "sync/atomic"

// Code says what happened; codeTable has one sentence for each.
type Code uint8

// The events of the tick. The comment says what A and B of the Event are.
const (
	NoEvent      Code = iota
	TickOverrun       // by the tick itself. A: ns it computed and waited for the bus; B: ns the host took around it
	BusStale          // A: bit set of the joints without a present position
	BusLost           // A: how many joints are silent
	JointFrozen       // A: the joints that have become silent, one bit each
	ChunkMerged       // A: request key; B: rows that were joined
	ChunkRefused      // A: request key; B: the refusal, chunk's own number
	RequestSent       // A: request key; B: delay asked for, in action steps
	Starved           // A: last executed step
	ActionTooOld      // A: step; B: age, ns
	LimitClipped      // A: bit set of the joints that were clipped
	GoalRefused       // A: bit set of the joints whose goal was not a number
	StateChanged      // A: state before; B: state after
	TorqueOn
	BusBack   // A: why the arm was away, hotplug.Cause; B: the joints whose motors have restarted, one bit each, << 1 | 1 when the arm waits for an operator
	JointHeld // A: the joints, one bit each
	TorqueOff
	EpisodeReset    // A: the new episode
	ForcedGC        // A: collections since the last one; B: how many of them by hand
	JointOverloaded // A: the joints, one bit each
	JointBlind      // likewise
	JointLimp       // likewise
	JointStalled    // likewise
	JointWarned     // A: the joints, one bit each; B: the hottest motor, deg C, << 16 | the lowest supply, 0.1 V
	JointMoved      // A: the joints, one bit each
	Suspended       // A: ns that the machine was suspended
	numCodes
)

var codeTable = [numCodes]struct{ name, sentence string }{
	NoEvent:         {"none", "nothing happened"},
	TickOverrun:     {"overrun", "a tick computed and waited for the bus longer than its period"},
	BusStale:        {"bus_stale", "some joints did not answer and keep their last position"},
	BusLost:         {"bus_lost", "motors do not answer: the arm holds and is sent nothing"},
	JointFrozen:     {"joint_frozen", "a motor does not answer: its joint gets no goal"},
	ChunkMerged:     {"chunk_merged", "a chunk was joined into the schedule"},
	ChunkRefused:    {"chunk_refused", "a chunk was not joined into the schedule"},
	RequestSent:     {"request_sent", "an observation was handed to the sender"},
	Starved:         {"starved", "an action was due and the schedule had none"},
	ActionTooOld:    {"action_too_old", "an action was older than the maximum action age and was not executed"},
	LimitClipped:    {"limit_clipped", "a goal lay outside the robot's limits and was clipped"},
	GoalRefused:     {"goal_refused", "a goal was not a number and the joint keeps its last one"},
	StateChanged:    {"state_changed", "the edge changed its state"},
	TorqueOn:        {"torque_on", "torque was switched on"},
	BusBack:         {"bus_back", "the arm was away and is back"},
	JointHeld:       {"joint_held", "a joint keeps its goal because its motor complains"},
	JointOverloaded: {"joint_overloaded", "a motor is overloaded; the joint follows only what takes load off it"},
	JointBlind:      {"joint_blind", "a motor's encoder complains; the joint is not driven"},
	JointLimp:       {"joint_limp", "a joint's torque was taken for the rest of the run"},
	JointStalled:    {"joint_stalled", "a joint works hard and does not move: something is in its way, or it holds on to something"},
	TorqueOff:       {"torque_off", "torque was switched off"},
	EpisodeReset:    {"episode_reset", "a new episode began"},
	ForcedGC:        {"forced_gc", "the memory limit forced a garbage collection while the arm was armed"},
	JointWarned:     {"joint_warned", "a motor is hotter, or its supply lower, than the robot's description wants"},
	JointMoved:      {"joint_moved", "a limp joint moves while the arm is to be armed: it is armed as soon as it is held still"},
	Suspended:       {"suspended", "the machine was suspended: what was asked and seen before it is not used any more"},
}

// String returns the code's name as it appears in logs and JSON.
func (c Code) String() string { return c.row().name }

// Sentence says in plain words what happened.
func (c Code) Sentence() string { return c.row().sentence }

func (c Code) row() struct{ name, sentence string } {
	if c >= numCodes {
		c = NoEvent
	}
	return codeTable[c]
}

// Event is what a real-time thread leaves behind instead of a log line.
type Event struct {
	At   Instant
	Code Code
	A, B int64 // what the Code says
}

// Events carries events off the tick and counts them by code, also those for
// which the queue had no room.
//
// Owner: one goroutine emits, one drains, any may read the counters.
type Events struct {
	ring    *Ring[Event]
	dropped atomic.Uint64
	counts  [numCodes]atomic.Uint64
}

// NewEvents returns a queue for n events, a power of two.
func NewEvents(n int) *Events { return &Events{ring: NewRing[Event](n)} }

// Emit queues the event. It never blocks: when the queue is full the event is
// dropped, and counted.
//
//rt:noalloc
func (q *Events) Emit(e Event) {
	q.counts[e.Code].Add(1)
	slot := q.ring.Reserve()
	if slot == nil {
		q.dropped.Add(1)
		return
	}
	*slot = e
	q.ring.Commit()
}

// Drain calls handle for every event that was queued when it was called, oldest
// first.
func (q *Events) Drain(handle func(Event)) {
	for range q.ring.Len() {
		e := *q.ring.Peek()
		q.ring.Release()
		handle(e)
	}
}

// Dropped returns how many events found the queue full.
func (q *Events) Dropped() uint64 { return q.dropped.Load() }

// Count returns how many events of the code were emitted, dropped ones included.
func (q *Events) Count(c Code) uint64 { return q.counts[c].Load() }
