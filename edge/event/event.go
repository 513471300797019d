// Package event carries the events of a robot's tick to a thread that may log them.
package event

import (
	"math"
	"strconv"

	"github.com/edge-rt/edge-rt/rt"
)

// Code identifies an event.
type Code uint8

// The codes, with the meaning of A and B in their Event. Sets of joints have one bit per joint.
const (
	None         Code = iota
	StateChanged      // state of the run. A: old state; B: new state
	// overrun by the tick itself. A: ns of its computing and of waiting for the bus; B: ns that the
	// host took meanwhile
	TickOverrun
	Suspended // A: ns for which the machine was suspended
	TorqueOn  // A: joints of the part
	// A: number of silent joints; B: joints of the part. For a robot of one part, the joints of the
	// part are 0, also in BusBack and TorqueOn.
	BusLost
	// A: hotplug.Cause | joints of the part << CauseBits; B: joints whose motors have restarted << 1 | 1 if the arm
	// waits for an operator
	BusBack
	JointFrozen     // A: the joints that have become silent, one bit each
	JointHeld       // B: Complaint of the motor; A here and in the next five codes: joints
	JointOverloaded //
	JointBlind      //
	JointLimp       //
	JointStalled    //
	JointMoved      //
	JointWarned     // A: joints; B: the hottest motor, deg C, << 16 | the lowest supply, 0.1 V
	// phase of the take-over. A: old phase; B: new phase. 0: the policy drives; 1: paused; 2: paused while the leader
	// moves to the follower; 3: a person drives
	PhaseChanged
	LeaderPushed // a hand has moved the leader, with --takeover push
	LeaderSilent // the leader is silent while it leads. A: joints of its part, 0: all joints; B: 1 in a policy's run
	LeaderBack   //

	// The next codes occur in records only. Threads other than the tick's write them, each with its own text.
	LinkUp         // the connection to the server or router is open
	LinkDown       // the connection is closed, or cannot be opened. A: Why
	SessionLost    // A: Loss
	SessionWaits   // no session could be opened; the link tries again. A: Wait
	SessionRefused // the server refuses with a final error
	Notice         // message of the server. A: NoticeKind; B: number of its request, 0: no request
	CameraSilent   // no usable picture for the camera's max-age. A: number of the camera
	CameraBack     // A: number of the camera
	CameraSpoilt   // pictures with stray bytes or missing parts. A: number of the camera
	TickMissing    // the tick hangs. A: ns since the end of the last tick
	Operated       // A: Word; B: 1 for a refused command
	Ended          // end of the run. A: exit code; B: Lack

	// The tick emits the next codes, except the codes from the link. They follow here, at the end, because earlier
	// records use the numbers above.
	LeaderHeld  // during a correction. A: the leader's joints that do not lead; B: leader.Cause
	LeaderLeads // A: the leader's joints that lead again
	// the bundle drives this arm for the first time. A: ms of slow driving; B: permitted % of the
	// velocity limits
	FirstRun
	FirstRunOver // end of the slow driving
	// from the link: the server's pace exceeds a limit of the run. A: ns of an inference; B: ns of
	// waiting for other robots
	SlowPolicy
	ArmHeld // no joint is driven, since the motors complain. A: joints; B: Complaint of a motor
	Empty   // ticks in a row had no action. A: their number; B: Lack
	// a wheel of a base turns at another velocity than its goal. A: joints
	WheelSlips
	ModelChanged // the link reports that the run goes on with another model
	JointJumped  // two readings agree on a position that the joint cannot have reached. A: joint; B: Way
	numCodes
)

// CauseBits is the number of bits of the hotplug.Cause in BusBack.
const CauseBits = 8

// The subject of a motor's complaint, in Complaint.
const (
	ComplainsOfSupply = iota + 1 // supply, in tenths of a volt
	ComplainsOfHeat              // temperature, in degrees Celsius
)

// Complaint packs the subject of a motor's complaint and the measured value; 0: not known.
//
//rt:noalloc
func Complaint(of, value int) int64 { return int64(of)<<32 | int64(uint32(value)) }

// ComplaintOf unpacks a Complaint. value is in volts or degrees Celsius, 0 before a measurement.
//
//rt:noalloc
func ComplaintOf(b int64) (of int, value float64) {
	of, value = int(b>>32), float64(uint32(b))
	if of == ComplainsOfSupply {
		value /= 10
	}
	return of, value
}

// ComplaintText formats a Complaint, "" if it is not known.
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

// Way packs two positions of a joint, in its unit.
//
//rt:noalloc
func Way(from, to float32) int64 {
	return int64(math.Float32bits(from))<<32 | int64(math.Float32bits(to))
}

// WayOf unpacks a Way.
func WayOf(b int64) (from, to float32) {
	return math.Float32frombits(uint32(b >> 32)), math.Float32frombits(uint32(b))
}

// Why is the reason for a missing connection.
type Why int64

// The reasons of LinkDown.
const (
	WhyOther       Why = iota
	WhyClosed          // the other end closed the connection
	WhySilent          // no message or confirmation for longer than the lease
	WhyRefused         // no process listens at the address
	WhyUnreachable     // no route to the address
)

// Loss is the reason for the loss of a session.
type Loss int64

// The reasons of SessionLost.
const (
	LossToken      Loss = iota + 1 // the server's liveliness token disappeared
	LossUnseen                     // the token never appeared
	LossClosed                     // the server ended the session, because it drains or has no such session
	LossUnanswered                 // no chunk for --request-timeout
	LossModel                      // the run takes another model of the service
)

// Wait is the reason why no session could be opened for now.
type Wait int64

// The reasons of SessionWaits.
const (
	WaitOther    Wait = iota
	WaitNobody        // no server answers
	WaitFull          // the server has no room
	WaitDraining      // the server is stopping
	WaitTaken         // another robot runs under this name
)

// NoticeKind is the kind of a server's message instead of a chunk.
type NoticeKind int64

// The kinds of Notice.
const (
	NoticeOther NoticeKind = iota
	NoticeDraining
	NoticeBadObservation
	NoticeUnknownSession
	NoticeLate
	NoticeModel
	NoticeUnavailable
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

	// Earlier records have WordOther for the words below.
	WordCorrect
	WordStart
	WordSuccess
	WordFailure
	WordDiscard
	WordRerecord
	WordUnload
	WordStop
	WordRelease
)

// codes has a row for each Code: its group on record, and the message of its log line.
var codes = [numCodes]struct{ kind, message string }{
	None:            {"", "nothing happened"},
	StateChanged:    {"state", "state"},
	TickOverrun:     {"tick", "a tick computed and waited for the bus longer than its period"},
	Suspended:       {"tick", "the machine was suspended: requests and pictures from before are not used any more"},
	TorqueOn:        {"joint", "torque was switched on"},
	BusLost:         {"bus", "motors do not answer: the arm holds, and no goals are sent"},
	BusBack:         {"bus", "the arm was away and is back"},
	JointFrozen:     {"joint", "a motor does not answer, or its position cannot be right: its joint gets no goal"},
	JointHeld:       {"joint", "a joint keeps its goal because its motor complains"},
	JointOverloaded: {"joint", "a motor is overloaded; the joint follows only what takes load off it"},
	JointBlind:      {"joint", "a motor's encoder complains; the joint is not driven"},
	JointLimp:       {"joint", "a joint's torque was taken for the rest of the run"},
	JointStalled: {"joint", "a joint works hard and does not move: something is in its way, or it holds on to " +
		"something"},
	JointMoved:     {"joint", "a limp joint moves during the arming: hold it still, then it is armed"},
	JointWarned:    {"joint", "a motor is hotter, or its supply lower, than the robot's description permits"},
	PhaseChanged:   {"operator", "phase of the take-over"},
	LeaderPushed:   {"operator", "a hand moves the leader: the arm is handed over"},
	LeaderSilent:   {"leader", "the leader does not answer: the follower holds"},
	LeaderBack:     {"leader", "the leader answers: the follower moves slowly to its pose"},
	LinkUp:         {"link", "connected"},
	LinkDown:       {"link", "no connection"},
	SessionLost:    {"link", "session lost"},
	SessionWaits:   {"link", "no session"},
	SessionRefused: {"link", "refused"},
	Notice:         {"server", "message of the server"},
	CameraSilent:   {"camera", "a camera gives no pictures"},
	CameraBack:     {"camera", "a camera gives pictures again"},
	CameraSpoilt:   {"camera", "a camera's pictures are spoilt"},
	TickMissing:    {"tick", "no tick"},
	Operated:       {"operator", "an operator's command"},
	Ended:          {"exit", "the run ends"},
	LeaderHeld:     {"leader", "a joint of the leader does not lead: the follower's holds"},
	LeaderLeads:    {"leader", "a joint of the leader leads again: the follower moves slowly to its pose"},
	FirstRun:       {"joint", "this bundle runs on this arm for the first time: it starts slowly"},
	FirstRunOver:   {"joint", "the slow start of this bundle's first run is over"},
	SlowPolicy:     {"server", "the policy is slow"},
	Empty:          {"tick", "ticks in a row had no action: the arm holds"},
	ArmHeld:        {"joint", "every joint keeps its goal because the motors complain: nothing moves"},
	WheelSlips: {"joint", "a wheel turns at another velocity than its goal: it slips, is pushed, or has too little " +
		"torque"},
	ModelChanged: {"link", "the run goes on with another model"},
	JointJumped: {"joint", "a joint's position jumped farther than the joint can move: it passed the end of its " +
		"encoder's turn, or its encoder slipped"},
}

// Kind returns the code's group on record, "" for an unknown code of a later edge-rt or of another
// program's record.
func (c Code) Kind() string {
	if c >= numCodes {
		return ""
	}
	return codes[c].kind
}

// Fault reports whether the event is a fault of the arm or the tick, so that the time before it is
// worth saving.
func (c Code) Fault() bool {
	switch c {
	case TickOverrun, BusLost, JointFrozen, JointHeld, JointOverloaded, JointBlind, JointLimp, JointStalled, ArmHeld,
		WheelSlips, JointJumped:
		return true
	}
	return false
}

// String returns the message of the event's log line.
func (c Code) String() string {
	if c >= numCodes {
		return "code " + strconv.Itoa(int(c))
	}
	return codes[c].message
}

// Event is an event of the tick, which leaves the logging to another thread.
type Event struct {
	At   rt.Instant
	Code Code
	A, B int64 // numbers whose meaning depends on Code
}

// Queue carries events from the tick to another thread. A full or nil queue drops them. Owner: one
// goroutine emits events, and one goroutine drains the queue.
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
