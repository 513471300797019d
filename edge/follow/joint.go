package follow

import "strings"

// Condition is a set of conditions of a joint.
type Condition uint8

const (
	Torque        Condition = 1 << iota // it was switched on here, and has not been lost since
	Answering                           // it answered in this tick
	Verified                            // since its last silence its motor was found to hold what it should
	HeatOrSupply                        // its motor reports a fault of heat or supply
	Overloaded                          // or stalled: it pushes against something
	EncoderFault                        // its motor reports one
	Restarted                           // its motor has restarted, and no operator has resumed the run since
	Limp                                // its torque was taken for the rest of the run
	numConditions = 1 << 8
)

// conditionNames are what documents, the page and its JSON show.
var conditionNames = [...]string{"torque", "answering", "known", "heated", "pushing", "blind", "restarted", "limp"}

func (c Condition) String() string {
	var names []string
	for i, name := range conditionNames {
		if c&(1<<i) != 0 {
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
	has, lacks Condition
	may        Permission
	why        string
}

// rules is what a joint may be told. The first line that fits counts; the last fits
// every joint.
var rules = [...]rule{
	{Limp, 0, MayRelax, "limp: its torque was taken for the rest of the run"},
	{Restarted, 0, MayNothing, "its motor has restarted, or its arm was away: waits for an operator (edge-rt ctl resume)"},
	{0, Answering, MayNothing, "silent: it did not answer in this tick"},
	{0, Verified, MayNothing, "was silent: compared with what it held before it gets a goal"},
	{EncoderFault, 0, MayNothing, "its encoder complains: what it says of its place is not believed"},
	{0, Torque, MayArm, "not armed"},
	{HeatOrSupply, 0, MayNothing, "its motor complains of heat or supply: keeps its goal"},
	{Overloaded, 0, MayRelieve, "pushes against something: follows what relieves it"},
	{0, 0, MayGoal, "driven"},
}

// Event is what happens to a joint.
type Event uint8

// The events; effects describes each.
const (
	NoReply Event = iota
	Replied
	VerifyNeeded
	VerifyPassed
	TorqueOn
	Reconnected
	MotorRestarted
	OperatorResumed
	HeatOrSupplyBegan
	HeatOrSupplyEnded
	OverloadBegan
	OverloadEnded
	EncoderFailed
	EncoderRecovered
	TorqueTaken
	numEvents
)

// effect is what an event does to a joint: conditions that begin, and that end.
type effect struct {
	name        string
	begin, ends Condition
}

var effects = [numEvents]effect{
	NoReply:           {"does not answer", 0, Answering | Verified},
	Replied:           {"answers", Answering, 0},
	VerifyNeeded:      {"was silent, or holds something else than it should", 0, Verified},
	VerifyPassed:      {"was verified: holds what it should", Verified, 0},
	TorqueOn:          {"is armed", Torque, 0},
	Reconnected:       {"its arm is back", 0, Torque},
	MotorRestarted:    {"its motor has restarted", Restarted, Torque},
	OperatorResumed:   {"an operator resumes the run", 0, Restarted},
	HeatOrSupplyBegan: {"reports a fault of heat or supply", HeatOrSupply, 0},
	HeatOrSupplyEnded: {"reports no fault of heat or supply any more", 0, HeatOrSupply},
	OverloadBegan:     {"is overloaded or stalled", Overloaded, 0},
	OverloadEnded:     {"is not overloaded any more", 0, Overloaded},
	EncoderFailed:     {"its encoder fails", EncoderFault, 0},
	EncoderRecovered:  {"its encoder works again", 0, EncoderFault},
	TorqueTaken:       {"its torque is taken", Limp, Torque},
}

// After returns the conditions after an event.
//
//rt:noalloc
func (c Condition) After(e Event) Condition { return c&^effects[e].ends | effects[e].begin }

// May returns what the joint may be told.
//
//rt:noalloc
func (c Condition) May() Permission { return rules[c.rule()].may }

// Why returns the reason for that, in words.
func (c Condition) Why() string { return rules[c.rule()].why }

//rt:noalloc
func (c Condition) rule() int {
	for i := range rules {
		if r := &rules[i]; c&r.has == r.has && c&r.lacks == 0 {
			return i
		}
	}
	panic("follow: the last rule fits every joint")
}
