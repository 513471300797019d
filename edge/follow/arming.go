package follow

import (
	"errors"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// A step of arming may use the bus until period/armRest before the next tick, because a tick of arming writes no goals.
const armRest = 8

// StartArming makes ArmStep arm an unarmed arm in the following ticks.
//
//rt:noalloc
func (f *Follower) StartArming() {
	if f.Phase == Unarmed {
		f.Phase = Arming
	}
}

// cancelArming undoes StartArming if no joint has torque yet.
//
//rt:noalloc
func (f *Follower) cancelArming() {
	if f.Phase == Arming && !f.hasTorque() {
		f.Phase = Unarmed
	}
}

// ArmStep takes the next step of arming, which lasts several ticks. touched reports whether this step may have switched
// torque on. The error has an exit code.
func (f *Follower) ArmStep(t rt.Tick) (touched bool, err error) {
	joints, ready := f.jointsToArm()
	if !ready {
		return false, nil
	}
	if joints == 0 {
		return false, exit.Errorf(exit.Fault, "no joint may be armed: %s", f.why(0))
	}
	if out := f.bus.OutOfRange() & joints &^ f.rescue.joints; f.cfg.Rescue && out != 0 {
		f.rescue.joints |= out
		if err := f.bus.Rescue(); err != nil {
			return false, exit.With(exit.Fault, err)
		}
		f.rescue.active, f.rescue.left = true, rescueLimit
		f.rescue.silent.Reset(t.Woke)
	}
	armed, err := f.bus.ArmStep(t.Deadline.Add(f.cfg.Period-f.cfg.Period/armRest), joints)
	if moving := f.bus.MovedWhileArming(); moving&^f.movedLimp != 0 {
		f.emit(t.Woke, event.JointMoved, moving, 0)
		f.movedLimp |= moving
	}
	switch {
	case errors.Is(err, servo.ErrOutOfRange): // the motors got no command
		return false, exit.With(exit.Fault, err)
	case err != nil || !armed:
		return true, err
	}
	f.armed(t.Woke, joints)
	return true, nil
}

// rescueLimit bounds a rescue (the return of joints into their range): enough for a whole turn at its speed.
const rescueLimit = 40 * time.Second

// jointsToArm returns the joints to arm: the joints without torque, or all joints if rearmAll is set, except limp
// joints and joints with an encoder fault. ready is false while one of these joints is silent or not verified, or while
// an operator must resume the run.
//
//rt:noalloc
func (f *Follower) jointsToArm() (joints robot.Joints, ready bool) {
	if f.needsResume {
		return 0, false
	}
	for j := range f.joints {
		switch c := f.joints[j]; {
		case c&(Limp|EncoderFault) != 0, c&Torque != 0 && !f.rearmAll:
		case f.may[j] < mayArm:
			return 0, false
		default:
			joints |= 1 << j
		}
	}
	return joints, true
}

// armed begins the armed phase. joints are the joints that have just got torque.
func (f *Follower) armed(now rt.Instant, joints robot.Joints) {
	for j := range f.joints {
		if joints.Has(j) {
			f.joints[j] = f.joints[j].after(torqueOn)
			f.may[j] = f.joints[j].permission()
		}
		f.stalls[j] = stall{}
	}
	f.bus.Goals(f.scratch)
	for j := range f.Goal {
		if joints.Has(j) {
			f.Goal[j] = f.scratch[j]
		}
	}
	f.rearmAll, f.movedLimp = false, 0
	if !f.parking.known {
		copy(f.parking.place, f.Place) // the first arming determines the place of parking
		f.keepGoals(f.parking.place, f.gate.Wheels)
		f.parking.known = true
		f.tellEaseIn(now)
	}
	f.startSlowly(now)
	f.Phase = Armed
	f.cfg.Events.Emit(now, event.TorqueOn, f.itself(), 0)
}
