package follow

import "strings"

// Condition is a set of a joint's conditions, one bit each.
type Condition uint8

const (
	Torque       Condition = 1 << iota // this run has switched its torque on, and the joint has not lost it since
	Answering                          // the motor gave a position in this tick
	Verified                           // its motor was compared after the last silence, and had the expected values
	HeatOrSupply                       // the motor reports a fault of heat or supply
	// its motor reports an overload, or the joint has stalled: it pushes against something
	Overloaded
	EncoderFault  // the motor reports an encoder fault
	Restarted     // the motor has restarted, and no operator has resumed the run since
	Limp          // the torque was switched off for the rest of the run
	numConditions = 1 << 8
)

// conditionNames are the names of the conditions in documents, on the page and in the page's JSON.
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

// permission is the set of commands that a joint may get. Each permission includes those before it, except that
// mayRelieve and mayGoal do not include mayArm: a joint with one of them is already armed.
type permission uint8

const (
	mayNothing permission = iota // no command
	mayRelax                     // torque off
	mayArm                       // goal := present, torque on
	mayRelieve                   // a goal that reduces its load
	mayGoal                      // any goal that passes the gate
)

// rule is one line of the table. It matches a joint that has all conditions in r.has and none in
// r.lacks.
type rule struct {
	has, lacks Condition
	may        permission
	why        string
}

// rules is the table of permissions. The first matching line applies; the last line matches every
// joint.
var rules = [...]rule{
	{Limp, 0, mayRelax, "limp: its torque was taken for the rest of the run"},
	{Restarted, 0, mayNothing, "its motor has restarted, or its arm was away: waits for an operator (edge-rt ctl " +
		"resume)"},
	{0, Answering, mayNothing, "silent: it gave no valid position in this tick"},
	{0, Verified, mayNothing, "was silent: gets no goal before its motor is compared with its last values"},
	{EncoderFault, 0, mayNothing, "its encoder complains: its position is ignored"},
	{0, Torque, mayArm, "not armed"},
	{HeatOrSupply, 0, mayNothing, "its motor complains of heat or supply: keeps its goal"},
	{Overloaded, 0, mayRelieve, "pushes against something: follows what relieves it"},
	{0, 0, mayGoal, "driven"},
}

type jointEvent uint8

// The events of a joint. The table effects has the effect of each event.
const (
	noReply jointEvent = iota
	replied
	verifyNeeded
	verifyPassed
	torqueOn
	reconnected
	motorRestarted
	operatorResumed
	heatOrSupplyBegan
	heatOrSupplyEnded
	overloadBegan
	overloadEnded
	encoderFailed
	encoderRecovered
	torqueTaken
	numEvents
)

// effect is the effect of an event on a joint: the conditions that it begins and ends.
type effect struct {
	name        string
	begin, ends Condition
}

var effects = [numEvents]effect{
	noReply:           {"does not answer", 0, Answering | Verified},
	replied:           {"answers", Answering, 0},
	verifyNeeded:      {"was silent, or its motor has other values than it should", 0, Verified},
	verifyPassed:      {"was verified: its motor has the values it should", Verified, 0},
	torqueOn:          {"is armed", Torque, 0},
	reconnected:       {"its arm is back", 0, Torque},
	motorRestarted:    {"its motor has restarted", Restarted, Torque},
	operatorResumed:   {"an operator resumes the run", 0, Restarted},
	heatOrSupplyBegan: {"reports a fault of heat or supply", HeatOrSupply, 0},
	heatOrSupplyEnded: {"reports no fault of heat or supply any more", 0, HeatOrSupply},
	overloadBegan:     {"is overloaded or stalled", Overloaded, 0},
	overloadEnded:     {"is not overloaded any more", 0, Overloaded},
	encoderFailed:     {"its encoder fails", EncoderFault, 0},
	encoderRecovered:  {"its encoder works again", 0, EncoderFault},
	torqueTaken:       {"its torque is taken", Limp, Torque},
}

//rt:noalloc
func (c Condition) after(e jointEvent) Condition { return c&^effects[e].ends | effects[e].begin }

//rt:noalloc
func (c Condition) permission() permission { return rules[c.rule()].may }

// Why returns the reason for the permission, in words.
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
