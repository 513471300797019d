package why

import (
	"math/bits"
	"strings"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/servo"
)

// lastFault is the maximum time from a fault to the end that it caused.
const lastFault = 30 * second

// exit explains an end that no operator requested; bad is false for any other end.
func (x *explainer) exit() (f Finding, bad bool) {
	l := x.log
	f = found(Exit, "", l.last, l.last)
	ends := l.between(0, l.last+minute, event.Ended)
	if len(ends) == 0 {
		if !l.Torn && !l.Repaired {
			return f, false // the run continued, or the end is in another file
		}
		f.Cause = Killed
		f.Evidence = []Evidence{{l.last,
			"nothing is on record after this instant, neither a reason nor an end of the file"}}
		if len(l.between(l.last-second, l.last+minute, event.TickMissing)) > 0 {
			f.Cause, f.Also = TickHung, []Cause{Killed}
		}
		return f, true
	}
	e := ends[len(ends)-1]
	if e.a == int64(exit.Clean) {
		return f, false
	}
	r := x.end(exit.Code(e.a), e)
	return found(Exit, r.cause, e.At, e.At, append([]Evidence{e.Evidence}, r.evidence...)...), true
}

// end explains an exit code.
func (x *explainer) end(code exit.Code, e happened) *reason {
	switch code {
	case exit.Config:
		if strings.Contains(e.Text, hopelessText) {
			return because(SlowPolicy)
		}
		if r := x.session(e.At-lastFault, e.At); r != nil && r.cause == ServerRefuses {
			return r
		}
		return because(BadConfig)
	case exit.RealTime:
		return because(RealTime)
	case exit.Fault:
		return x.fault(e)
	case exit.Absent:
		return x.absent(e)
	}
	return because(Failure)
}

// faultCauses maps the faults with which the servo driver ends a run to causes.
var faultCauses = []struct {
	fault servo.Fault
	cause Cause
}{
	{servo.FaultEncoder, Encoder}, {servo.FaultTemperature, HeatOrSupply}, {servo.FaultVoltage, Supply},
	{servo.FaultShock, Supply},
	{servo.FaultOverload, Overload}, {servo.FaultCurrent, Overload},
}

// fault explains the end of a run because of a motor: by the fault in the text of the end, or else by the events about
// motors before the end.
func (x *explainer) fault(e happened) *reason {
	at := e.At
	for _, c := range faultCauses {
		if strings.Contains(e.Text, c.fault.Error()) {
			return because(c.cause)
		}
	}
	told := x.log.between(at-lastFault, at, event.JointHeld, event.JointBlind, event.JointLimp, event.JointStalled,
		event.JointOverloaded, event.JointWarned)
	if len(told) == 0 {
		if r := x.away(at-2*second, at); r != nil && r.cause == Restarted {
			return r // this fault ends teleop and replay
		}
		if x.log.actions == 0 {
			return because(OutsideRange)
		}
		return because(Failure)
	}
	// The last event has stopped the arm. A warning is the cause only if there is no other event.
	r := because(HeatOrSupply, evidenceOf(told)...)
	for _, t := range told {
		if c := jointCause(t); c != "" && c != HeldJoints {
			r.cause = c
		}
	}
	return r
}

// absent explains the end of a run for lack of an arm, a server or pictures. Of several lacks it names the longest,
// which may not be the lack on the last tick. The run's last event names the longest lack. For older records, absent
// computes it from the ticks.
func (x *explainer) absent(e happened) *reason {
	l, at := x.log, e.At
	lack := event.Lack(e.b)
	if lack == event.LackNone {
		lack = l.lacks.Longest()
	}
	s := &span{
		from:   at,
		to:     at,
		ticks:  1,
		frozen: uint32(l.lacks.Joints()),
	}
	switch lack {
	case event.LackJoints:
		if bits.OnesCount32(s.frozen) == 1 {
			return x.joint(s, at-minute)
		}
		s.busSilent = 1
		return x.bus(s, at-minute)
	case event.LackPictures:
		s.noPicture = 1
		return x.pictures(s, at-minute)
	}
	if r := x.session(at-minute-lastFault, at); r != nil {
		return r
	}
	missing, last := l.due(at)
	if r := x.request(s, missing, last); r != nil {
		return r
	}
	if lack == event.LackSession {
		return because(ServerGone)
	}
	return because(Unknown)
}
