// Package event carries what happens on a robot's tick to a thread that may log it.
package event

import (
	"strconv"

	"edgert/rt"
)

// Code says what happened.
type Code uint8

// The codes, with what A and B of their Event are.
const (
	None            Code = iota
	StateChanged         // the run's state. A: state before; B: state after
	TickOverrun          // by the tick itself. A: ns it computed and waited for the bus; B: ns the host took around it
	Suspended            // A: ns that the machine was suspended
	TorqueOn             //
	BusLost              // A: how many joints are silent
	BusBack              // A: why the arm was away, hotplug.Cause; B: the joints whose motors have restarted, one bit each, << 1 | 1 when the arm waits for an operator
	JointFrozen          // A: the joints that have become silent, one bit each
	JointHeld            // likewise, as in those below; B: what its motor complains of, from Complaint
	JointOverloaded      //
	JointBlind           //
	JointLimp            //
	JointStalled         //
	JointMoved           //
	JointWarned          // A: the joints, one bit each; B: the hottest motor, deg C, << 16 | the lowest supply, 0.1 V
	PhaseChanged         // who has the arm, in a run with a leader. A: before; B: after: 0 the policy, 1 nobody, 2 nobody, while the leader comes to the follower, 3 a person
	LeaderPushed         // with --takeover push
	LeaderSilent         // while it leads
	LeaderBack           //

	// On record only, from other threads than the tick's; with a text of their own.
	LinkUp         // the connection to the server or router stands
	LinkDown       // or does not. A: Why
	SessionLost    // A: Loss
	SessionWaits   // no session could be opened, it is tried again. A: Wait
	SessionRefused // nor ever will
	Notice         // of the server. A: NoticeKind; B: the request that it is about, 0: none
	CameraSilent   // a camera gives no usable picture for its max-age. A: its number
	CameraBack     // A: its number
	CameraSpoilt   // its pictures have stray bytes or parts missing. A: its number
	TickMissing    // the tick hangs. A: ns since the last one ended
	Operated       // A: Word; B: 1 when it was refused
	Ended          // the run. A: exit code; B: Lack

	// Of the tick again: earlier records have the numbers above.
	LeaderHeld   // while it leads. A: the leader's joints that do not lead, one bit each; B: why, leader.Cause
	LeaderLeads  // A: the joints that lead again
	FirstRun     // of a bundle on this arm, which is armed. A: ms that it is slow; B: % of the velocity limits that it may use
	FirstRunOver // so long was it driven slowly
	SlowPolicy   // from the link: a limit of the run that its server exceeds. A: ns of an inference; B: ns of waiting for other robots
	ArmHeld      // no joint is driven, since the motors complain. A: the joints, one bit each; B: what one complains of, as of JointHeld
	numCodes
)

// What a motor complains of, in Complaint.
const (
	ComplainsOfSupply = iota + 1 // in tenths of a volt
	ComplainsOfHeat              // in degrees Celsius
)

// Complaint packs what a motor complains of, with what it measures of it; 0: not known.
//
//rt:noalloc
func Complaint(of, value int) int64 { return int64(of)<<32 | int64(uint32(value)) }

// ComplaintOf unpacks a Complaint, in volts or degrees Celsius; 0: it was not measured yet.
//
//rt:noalloc
func ComplaintOf(b int64) (of int, value float64) {
	of, value = int(b>>32), float64(uint32(b))
	if of == ComplainsOfSupply {
		value /= 10
	}
	return of, value
}

// ComplaintText is a Complaint in words; "" where none is known.
func ComplaintText(b int64) string {
	name, unit := "", ""
	of, value := ComplaintOf(b)
	switch of {
	case ComplainsOfSupply:
		name, unit = "supply", "V"
	case ComplainsOfHeat:
		name, unit = "heat", "C"
	default:
		return ""
	}
	if value == 0 {
		return name
	}
	return name + ": " + strconv.FormatFloat(value, 'f', -1, 64) + " " + unit
}

// Why is why a connection does not stand.
type Why int64

// The reasons of LinkDown.
const (
	WhyOther       Why = iota
	WhyClosed          // the other end closed it
	WhySilent          // nothing was heard, or confirmed, for longer than its lease
	WhyRefused         // nobody listens there
	WhyUnreachable     // no way there
)

// Loss is why a session is lost.
type Loss int64

// The reasons of SessionLost.
const (
	LossToken      Loss = iota + 1 // the server's liveliness token went away
	LossUnseen                     // or never came
	LossClosed                     // the server ended the session: it drains, or does not know it
	LossUnanswered                 // no chunk for --request-timeout
)

// Wait is why no session could be opened for now.
type Wait int64

// The reasons of SessionWaits.
const (
	WaitOther    Wait = iota
	WaitNobody        // no server answers
	WaitFull          // the server has no room
	WaitDraining      // it is going away
	WaitTaken         // another robot runs under this name
)

// NoticeKind is what a server says instead of a chunk.
type NoticeKind int64

// The kinds of Notice.
const (
	NoticeOther NoticeKind = iota
	NoticeDraining
	NoticeBadObservation
	NoticeUnknownSession
	NoticeLate
)

// Word is a command of an operator.
type Word int64

// The words of Operated.
const (
	WordOther Word = iota
	WordPause
	WordResume
	WordReset
	WordTask
	WordSave
)

var messages = [numCodes]string{
	None:            "nothing happened",
	StateChanged:    "state",
	TickOverrun:     "a tick computed and waited for the bus longer than its period",
	Suspended:       "the machine was suspended: what was asked and seen before it is not used any more",
	TorqueOn:        "torque was switched on",
	BusLost:         "motors do not answer: the arm holds and is sent nothing",
	BusBack:         "the arm was away and is back",
	JointFrozen:     "a motor does not answer: its joint gets no goal",
	JointHeld:       "a joint keeps its goal because its motor complains",
	JointOverloaded: "a motor is overloaded; the joint follows only what takes load off it",
	JointBlind:      "a motor's encoder complains; the joint is not driven",
	JointLimp:       "a joint's torque was taken for the rest of the run",
	JointStalled:    "a joint works hard and does not move: something is in its way, or it holds on to something",
	JointMoved:      "a limp joint moves while the arm is to be armed: it is armed as soon as it is held still",
	JointWarned:     "a motor is hotter, or its supply lower, than the robot's description wants",
	PhaseChanged:    "who has the arm",
	LeaderPushed:    "a hand moves the leader: the arm is handed over",
	LeaderSilent:    "the leader does not answer: the follower holds; edge-rt ctl resume gives it back to the policy",
	LeaderBack:      "the leader answers: the follower goes slowly to where it is",
	LinkUp:          "connected",
	LinkDown:        "no connection",
	SessionLost:     "session lost",
	SessionWaits:    "no session",
	SessionRefused:  "refused",
	Notice:          "the server says",
	CameraSilent:    "a camera gives no pictures",
	CameraBack:      "a camera gives pictures again",
	CameraSpoilt:    "a camera's pictures are spoilt",
	TickMissing:     "no tick",
	Operated:        "an operator's command",
	Ended:           "the run ends",
	LeaderHeld:      "a joint of the leader does not lead: the follower's holds",
	LeaderLeads:     "a joint of the leader leads again: the follower goes slowly to where it is",
	FirstRun:        "this bundle runs on this arm for the first time: it starts slowly",
	FirstRunOver:    "the slow start of this bundle's first run is over",
	SlowPolicy:      "the policy is slow",
	ArmHeld:         "every joint keeps its goal because the motors complain: nothing moves",
}

// kinds group the codes on record.
var kinds = [...]string{
	StateChanged: "state", TickOverrun: "tick", Suspended: "tick", TorqueOn: "joint", BusLost: "bus", BusBack: "bus", JointFrozen: "joint", JointHeld: "joint",
	JointOverloaded: "joint", JointBlind: "joint", JointLimp: "joint", JointStalled: "joint", JointMoved: "joint", JointWarned: "joint",
	PhaseChanged: "operator", LeaderPushed: "operator", LeaderSilent: "leader", LeaderBack: "leader",
	LinkUp: "link", LinkDown: "link", SessionLost: "link", SessionWaits: "link", SessionRefused: "link", Notice: "server",
	CameraSilent: "camera", CameraBack: "camera", CameraSpoilt: "camera", TickMissing: "tick", Operated: "operator", Ended: "exit",
	LeaderHeld: "leader", LeaderLeads: "leader",
	FirstRun: "joint", FirstRunOver: "joint", ArmHeld: "joint",
	SlowPolicy: "server",
}

// Kind is the group on record that it belongs to; a code of a later edge-rt, or of a
// stranger's record, has none.
func (c Code) Kind() string {
	if int(c) >= len(kinds) {
		return ""
	}
	return kinds[c]
}

// Fault reports whether something is wrong with the arm or the tick, so that what was
// before it is worth keeping.
func (c Code) Fault() bool {
	switch c {
	case TickOverrun, BusLost, JointFrozen, JointHeld, JointOverloaded, JointBlind, JointLimp, JointStalled, ArmHeld:
		return true
	}
	return false
}

// String is the message of a log line about it.
func (c Code) String() string {
	if int(c) >= len(messages) {
		return "code " + strconv.Itoa(int(c))
	}
	return messages[c]
}

// Event is what the tick leaves behind instead of a log line.
type Event struct {
	At   rt.Instant
	Code Code
	A, B int64 // what the Code says
}

// Queue takes events off the tick; a full or nil one drops them.
// Owner: one goroutine emits, one drains.
type Queue struct{ ring *rt.Ring[Event] }

// NewQueue returns a queue for n events, a power of two.
func NewQueue(n int) *Queue { return &Queue{rt.NewRing[Event](n)} }

// Emit queues an event. It never blocks.
//
//rt:noalloc
func (q *Queue) Emit(at rt.Instant, code Code, a, b int64) {
	if q == nil {
		return
	}
	if slot := q.ring.Reserve(); slot != nil {
		*slot = Event{at, code, a, b}
		q.ring.Commit()
	}
}

// Drain calls handle for every event queued before, oldest first.
func (q *Queue) Drain(handle func(Event)) {
	for range q.ring.Len() {
		e := *q.ring.Peek()
		q.ring.Release()
		handle(e)
	}
}
