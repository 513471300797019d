package follow

import (
	"errors"
	"time"

	"edgert/edge/event"
	"edgert/internal/exit"
	"edgert/rt"
	"edgert/servo"
)

// armRest is the part of the period that a tick which arms leaves: it writes no goals.
const armRest = 8

// Begin lets an arm that is untouched be armed from now on.
//
//rt:noalloc
func (f *Follower) Begin() {
	if f.Phase == Untouched {
		f.Phase = Arming
	}
}

// Postpone takes Begin back: an arm that was not armed yet stays as it is.
//
//rt:noalloc
func (f *Follower) Postpone() {
	if f.Phase == Arming && !f.Stiff() {
		f.Phase = Untouched
	}
}

// ArmOn takes the next step towards a torque that holds the arm where it is; it
// takes some ticks. It fails, with an exit code, when the arm must not or cannot be
// armed; touched says whether torque may be on then.
func (f *Follower) ArmOn(t rt.Tick) (touched bool, err error) {
	joints, ready := f.toArm()
	if !ready {
		return false, nil
	}
	if joints == 0 {
		return false, exit.Errorf(exit.Fault, "no joint may be armed: %s", f.Why(0))
	}
	if out := f.bus.OutOfRange() & joints &^ f.rescued; f.cfg.Rescue && out != 0 {
		f.rescued |= out
		if err := f.bus.Rescue(); err != nil {
			return false, exit.With(exit.Fault, err)
		}
		f.rescuing, f.giveUp = true, t.Woke.Add(rescueLimit)
	}
	holds, err := f.bus.ArmStep(t.Deadline.Add(f.cfg.Period-f.cfg.Period/armRest), joints)
	if moving := f.bus.MovedWhileArming(); moving&^f.moved != 0 {
		f.cfg.Events.Emit(t.Woke, event.JointMoved, int64(moving), 0)
		f.moved |= moving
	}
	switch {
	case errors.Is(err, servo.ErrOutOfRange): // nothing was written
		return false, exit.With(exit.Fault, err)
	case err != nil || !holds:
		return true, err
	}
	f.hold(t.Woke, joints)
	return true, nil
}

// rescueLimit is how long the way in may take: a whole turn at the speed of it.
const rescueLimit = 40 * time.Second

// toArm returns the joints that want to be armed: all but those that stay as they
// are, and of an arm that is armed already those that have no torque. It is not
// ready while one of them is silent, or anyone waits for an operator.
//
//rt:noalloc
func (f *Follower) toArm() (joints uint32, ready bool) {
	if f.restarts {
		return 0, false
	}
	for j := range f.joints {
		switch l := f.joints[j]; {
		case l&(Limp|Blind) != 0, l&Torque != 0 && !f.waking:
		case f.may[j] < MayArm:
			return 0, false
		default:
			joints |= 1 << j
		}
	}
	return joints, true
}

// hold begins the armed phase.
func (f *Follower) hold(now rt.Instant, joints uint32) {
	for j := range f.joints {
		if joints&(1<<j) != 0 {
			f.joints[j] = f.joints[j].After(TorqueOn)
			f.may[j] = f.joints[j].May()
		}
		f.stalls[j] = stall{}
	}
	f.bus.Goals(f.want)
	for j := range f.Goal {
		if joints&(1<<j) != 0 {
			f.Goal[j] = f.want[j]
		}
	}
	f.waking, f.moved = false, 0
	if !f.parked {
		copy(f.park, f.Place) // and not where it was armed again, later
		f.parked = true
	}
	f.Slow(now)
	f.Phase = Armed
	f.cfg.Events.Emit(now, event.TorqueOn, 0, 0)
}
