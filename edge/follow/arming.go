package follow

import (
	"errors"

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
	if f.Phase == Arming {
		f.Phase = Untouched
	}
}

// ArmOn takes the next step towards a torque that holds the arm where it is; it
// takes some ticks. It fails, with an exit code, when the arm must not or cannot be
// armed; torque may be on then.
func (f *Follower) ArmOn(t rt.Tick) (touched bool, err error) {
	joints := uint32(0)
	for j := range f.joints {
		switch {
		case f.joints[j]&(Limp|Blind) != 0: // stays as it is
		case f.may[j] < MayArm:
			return false, nil
		default:
			joints |= 1 << j
		}
	}
	if joints == 0 {
		return false, exit.Errorf(exit.Fault, "no joint may be armed: %s", f.Why(0))
	}
	if f.cfg.Rescue && !f.rescuing && f.bus.Outside()&joints != 0 {
		if err := f.bus.Rescue(); err != nil {
			return false, exit.With(exit.Fault, err)
		}
		f.rescuing = true
	}
	holds, err := f.bus.ArmStep(t.Deadline.Add(f.cfg.Period-f.cfg.Period/armRest), joints)
	if err != nil || !holds {
		return true, fault(err)
	}
	f.hold(t.Woke, joints)
	return true, nil
}

// fault gives an arm that stands where it must not be armed the code for that.
func fault(err error) error {
	if err != nil && errors.Is(err, servo.ErrOutside) {
		return exit.With(exit.Fault, err)
	}
	return err
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
	f.bus.Goals(f.Goal)
	if !f.parked {
		copy(f.park, f.Place) // and not where it was armed again, later
		f.parked = true
	}
	f.slowDown(now)
	f.Phase = Armed
	f.emit(now, rt.TorqueOn, 0)
}
