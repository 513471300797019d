package follow

import (
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// The wheels of a base turn at their last goal until they get another goal, so a base does not hold when it gets no
// goal. A tick sends the base the goal 0 if the previous tick sent it no goal: for lack of an action, in a pause, at
// the end of the run, or because too many joints are silent. Each such tick sends the goal 0 again, since a wheel may
// miss it. A base drives only while all of its wheels may get a goal.

// Limits of a wheel that does not follow its goal velocity.
const (
	// ticks in a row on which a wheel has no permission, before the base stops: one lost reply does not stop it
	baseLost     = 2
	wheelTurns   = 200 // counts per second; a slower goal does not show whether a wheel turns
	wheelStands  = 0.1 // share of the goal below which a wheel counts as not turning
	wheelStrays  = 0.4 // share of the goal by which the velocity of a wheel may differ while the wheel grips
	wheelAtLeast = 150 // counts per second by which the velocity may differ in addition, because of ripple and friction
)

// base is the state of a base.
type base struct {
	driven bool // the wheels of the base have got a goal since the last Read, or keep their goal for this tick
	lost   int  // ticks in a row in which a wheel had no permission
	slips  []slip

	wish    [robot.Axes]float32 // the newest action
	blocked [robot.Axes]float32 // the goal at which a wheel has stalled

	// The summary shows the counts.
	stallCount, slipCount uint64
}

// slip is a wheel's deviation from its goal velocity.
type slip struct {
	since    rt.Instant // start of the deviation; 0: the wheel follows its goal
	stands   bool       // the wheel has not turned since then
	reported bool
}

// stopBase sends the goal 0 to the wheels of a base.
//
//rt:noalloc
func (f *Follower) stopBase() {
	f.base.driven = true
	if joints := f.zeroBase(); joints != 0 {
		f.bus.Write(f.Goal, joints)
	}
}

// zeroBase makes the goals of a base 0 and returns its wheels that may be under torque. A limp wheel gets no goal,
// because a goal would switch its torque on.
//
//rt:noalloc
func (f *Follower) zeroBase() (joints robot.Joints) {
	for j := range f.joints {
		if !f.gate.Wheels.Has(j) {
			continue
		}
		f.Goal[j] = 0
		if f.joints[j]&(Torque|Limp) == Torque {
			joints |= 1 << j
		}
	}
	return joints
}

// restBase stops the base if the previous tick did not drive it.
//
//rt:noalloc
func (f *Follower) restBase() {
	if f.gate.Wheels == 0 {
		return
	}
	if !f.base.driven {
		f.stopBase()
	}
	f.base.driven = false
}

// moveBase makes the goals of a base from an action, and returns the wheels that get them.
//
//rt:noalloc
func (f *Follower) moveBase(action []float32) (joints robot.Joints) {
	w, b := f.gate.Wheels, &f.base
	if w == 0 {
		return 0
	}
	first := w.First()
	copy(b.wish[:], action[first:])
	b.driven = true
	for j := range f.may {
		if w.Has(j) && f.may[j] < mayGoal {
			if b.lost++; b.lost >= baseLost {
				return f.zeroBase()
			}
			return 0
		}
	}
	b.lost = 0
	f.gate.PassBase(f.Goal[first:], action[first:])
	return w
}

// watchBase reports wheels that do not turn, or turn at another velocity than their goal.
//
//rt:noalloc
func (f *Follower) watchBase(now rt.Instant) {
	b := &f.base
	for j := range b.slips {
		s := &b.slips[j]
		if !f.gate.Wheels.Has(j) || f.joints[j]&(Torque|Answering) != Torque|Answering {
			*s = slip{}
			continue
		}
		goal, present := f.bus.Wheel(j)
		stands, strays := deviation(goal, present)
		switch {
		case f.stalls[j].reported:
			f.freeWheel(j)
		case !stands && !strays:
			*s = slip{}
		case s.since == 0 || s.stands != stands:
			*s = slip{since: now, stands: stands, reported: s.reported}
		case s.reported || now.Sub(s.since) < f.cfg.Safety.StallFor:
		case stands:
			f.stallWheel(now, j)
		default:
			s.reported = true
			b.slipCount++
			f.emitEach(now, event.WheelSlips, 1<<j)
		}
	}
}

// deviation reports two deviations of a wheel from its goal, in counts per second: the wheel does not turn although the
// goal is a motion, or it turns at another velocity.
//
//rt:noalloc
func deviation(goal, present int) (stands, strays bool) {
	size := max(goal, -goal)
	if size >= wheelTurns && float64(max(present, -present)) < wheelStands*float64(size) {
		return true, false
	}
	off := max(present-goal, goal-present)
	return false, float64(off) > wheelStrays*float64(size)+wheelAtLeast
}

//rt:noalloc
func (f *Follower) stallWheel(now rt.Instant, j int) {
	b := &f.base
	b.stallCount++
	b.slips[j] = slip{}
	copy(b.blocked[:], f.Goal[f.gate.Wheels.First():])
	f.stalls[j].reported = true
	f.stallBegins(now, 1<<j)
}

// freeWheel ends a wheel's stall when the newest action no longer leads against the obstacle.
//
//rt:noalloc
func (f *Follower) freeWheel(j int) {
	b, towards := &f.base, float32(0)
	for axis, v := range b.blocked {
		most := f.gate.Max[f.gate.Wheels.First()+axis]
		towards += v / most * b.wish[axis] / most
	}
	if towards <= 0 {
		f.stalls[j] = stall{}
	}
}
