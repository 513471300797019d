package follow

import "strings"

// Life is what is known of a joint, a set of conditions.
type Life uint8

// The conditions.
const (
	Torque    Life = 1 << iota // it was switched on here, and has not been lost since
	Answering                  // it answered in this tick
	Known                      // its motor was compared with what it should hold since it was silent last
	Heated                     // its motor complains of its supply or its heat
	Pushing                    // it is overloaded or stalled: it pushes against something
	Blind                      // its encoder complains
	Restarted                  // its motor has restarted, and no operator has consented since
	Limp                       // its torque was taken for the rest of the run
	numLives  = 1 << 8
)

// lifeNames are the conditions' names, as documents and pages say them.
var lifeNames = [...]string{"torque", "answering", "known", "heated", "pushing", "blind", "restarted", "limp"}

func (l Life) String() string {
	var names []string
	for i, name := range lifeNames {
		if l&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// Permission is what a joint may be told. Each allows what those before it do, but
// for MayArm: goal := present and torque on are the way to the two behind it.
type Permission uint8

const (
	MayNothing Permission = iota // nothing is sent to it
	MayRelax                     // torque off
	MayArm                       // goal := present, torque on
	MayRelieve                   // a goal that takes load off it
	MayGoal                      // any goal that passes the gate
)

var permissionNames = [...]string{"nothing", "torque off", "goal := present, torque on", "a goal that relieves the load", "any goal that passes the gate"}

func (p Permission) String() string { return permissionNames[p] }

// rule is one line of the table: a joint with all conditions of has and none of
// lacks may be told may.
type rule struct {
	has, lacks Life
	may        Permission
	why        string
}

// rules is what a joint may be told. The first line that fits counts; the last fits
// every joint.
var rules = [...]rule{
	{Limp, 0, MayRelax, "limp: its torque was taken for the rest of the run"},
	{Restarted, 0, MayNothing, "its motor has restarted, or its arm was away: waits for an operator (edge-rt ctl resume)"},
	{0, Answering, MayNothing, "silent: it did not answer in this tick"},
	{0, Known, MayNothing, "was silent: compared with what it held before it gets a goal"},
	{Blind, 0, MayNothing, "its encoder complains: what it says of its place is not believed"},
	{0, Torque, MayArm, "not armed"},
	{Heated, 0, MayNothing, "its motor complains of heat or supply: keeps its goal"},
	{Pushing, 0, MayRelieve, "pushes against something: follows what relieves it"},
	{0, 0, MayGoal, "driven"},
}

// Event is what happens to a joint.
type Event uint8

// The events.
const (
	Missed        Event = iota // it did not answer
	Answered                   //
	Doubted                    // it was silent, or holds something else than it should
	Compared                   // its motor holds what it should
	TorqueOn                   // armed
	Returned                   // its arm was away and is back
	LostMark                   // its motor has restarted
	Consented                  // an operator has said that it may be armed
	Held                       // its motor complains of heat or supply
	Relieved                   //
	Overloaded                 // or stalled
	Unloaded                   //
	EncoderFailed              //
	EncoderWell                //
	TakenLimp                  // its torque was taken
	numEvents
)

// effect is what an event does to a joint: conditions that begin, and that end.
type effect struct {
	name        string
	begin, ends Life
}

var effects = [numEvents]effect{
	Missed:        {"does not answer", 0, Answering | Known},
	Answered:      {"answers", Answering, 0},
	Doubted:       {"is doubted", 0, Known},
	Compared:      {"was compared: holds what it should", Known, 0},
	TorqueOn:      {"is armed", Torque, 0},
	Returned:      {"its arm is back", 0, Torque},
	LostMark:      {"its motor has restarted", Restarted, Torque},
	Consented:     {"an operator consents", 0, Restarted},
	Held:          {"complains of heat or supply", Heated, 0},
	Relieved:      {"complains no more of heat or supply", 0, Heated},
	Overloaded:    {"is overloaded or stalled", Pushing, 0},
	Unloaded:      {"is not overloaded any more", 0, Pushing},
	EncoderFailed: {"its encoder fails", Blind, 0},
	EncoderWell:   {"its encoder is well", 0, Blind},
	TakenLimp:     {"its torque is taken", Limp, Torque},
}

// After returns what is known of the joint after an event.
//
//rt:noalloc
func (l Life) After(e Event) Life { return l&^effects[e].ends | effects[e].begin }

// May returns what the joint may be told.
//
//rt:noalloc
func (l Life) May() Permission { return rules[l.rule()].may }

// Why says in words why it is that.
func (l Life) Why() string { return rules[l.rule()].why }

//rt:noalloc
func (l Life) rule() int {
	for i := range rules {
		if r := &rules[i]; l&r.has == r.has && l&r.lacks == 0 {
			return i
		}
	}
	panic("follow: the last rule fits every joint")
}
