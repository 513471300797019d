package follow

import (
	"math"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// DriveAt moves one tick towards an action, as far as each joint may, at a share (pace) of the velocity limit.
//
//rt:noalloc
func (f *Follower) DriveAt(now rt.Instant, action []float32, pace float32) {
	f.drive(now, action, pace, true)
}

// drive is DriveAt for an action of the policy or of a person.
//
//rt:noalloc
func (f *Follower) drive(now rt.Instant, action []float32, pace float32, policy bool) {
	if policy {
		pace = f.ease(now, pace)
	}
	if f.slow.active {
		pace = min(pace, float32(f.cfg.Safety.Slew))
	}
	caught := f.slow.active && now >= f.slow.until && f.caughtUp(action)
	f.move(action, pace)
	if caught {
		f.slow.active = false // the next tick is not slow any more
	}
}

// easePace is the share of the velocity limit while an unknown policy drives the arm. If the robot's Slew (the share
// in a slow start) is smaller, the Slew applies.
const easePace = 0.3

// ease counts down the time for which an unknown policy drives the arm at easePace, and returns the pace of this tick.
// After this time the slow start goes on until the arm has caught up.
//
//rt:noalloc
func (f *Follower) ease(now rt.Instant, pace float32) float32 {
	if f.slow.easeIn <= 0 {
		return pace
	}
	f.slow.active = true
	if f.slow.easeIn -= f.cfg.Period; f.slow.easeIn > 0 {
		return min(pace, easePace)
	}
	if f.first == 0 {
		f.cfg.Events.Emit(now, event.FirstRunOver, 0, 0)
	}
	return pace
}

// easeIn begins another policy slowly. If d is not 0 the policy is unknown, and drives the arm at easePace for the
// duration d. With d = 0, the remaining time of an earlier unknown policy stays.
//
//rt:noalloc
func (f *Follower) easeIn(now rt.Instant, d time.Duration) {
	f.startSlowly(now)
	if d == 0 {
		return
	}
	f.slow.easeIn = d
	if f.parking.known {
		f.tellEaseIn(now)
	} // otherwise the arming emits event.FirstRun
}

// tellEaseIn emits event.FirstRun: the arm starts slowly because this policy has never run on it.
//
//rt:noalloc
func (f *Follower) tellEaseIn(now rt.Instant) {
	if e := f.slow.easeIn; e > 0 && f.first == 0 {
		pace := min(easePace, f.cfg.Safety.Slew)
		f.cfg.Events.Emit(now, event.FirstRun, e.Milliseconds(), int64(100*pace+0.5))
	}
}

// caughtUp reports whether the goal of every driven joint is within one tick's travel of the action.
//
//rt:noalloc
func (f *Follower) caughtUp(action []float32) bool {
	for j, c := range f.joints {
		if f.gate.Wheels.Has(j) || c&Torque == 0 || c&(Limp|EncoderFault|HeatOrSupply|Overloaded) != 0 ||
			notFinite(action[j]) {
			continue
		}
		want := min(f.gate.Max[j], max(f.gate.Min[j], action[j]))
		if d := want - f.Goal[j]; f.may[j] != mayGoal || d > f.gate.Step[j]*(1+slack) || d < -f.gate.Step[j]*(1+slack) {
			return false
		}
	}
	return true
}

//rt:noalloc
func (f *Follower) move(action []float32, pace float32) {
	if f.silence.bus {
		return
	}
	if f.suspension.Passed() > 0 { // the machine was suspended since the read: the joints may be anywhere
		f.bus.Recheck()
		f.slow.active = true
		return
	}
	f.gate.Pace = pace
	joints := robot.Joints(0)
	for j := range f.Goal {
		switch {
		case f.gate.Wheels.Has(j):
			continue
		case f.may[j] == mayGoal:
			f.Goal[j] = f.gate.Pass(j, f.Goal[j], action[j], f.Place[j])
		case f.may[j] == mayRelieve:
			f.Goal[j] = f.gate.Pass(j, f.Goal[j], relief(f.Goal[j], action[j], &f.push[j], f.Place[j]), f.Place[j])
		default:
			continue
		}
		joints |= 1 << j
	}
	joints |= f.moveBase(action)
	if joints != 0 {
		f.bus.Write(f.Goal, joints)
	}
}

// rescuing reports whether RescueStep must be called instead of Drive.
//
//rt:noalloc
func (f *Follower) rescuing() bool { return f.rescue.active && f.Phase == Armed }

// rescuePace is the share of the velocity limit in a rescue; the servos themselves are slower.
const rescuePace = 0.04

// rescueStep moves the joints outside their range one tick towards it.
func (f *Follower) rescueStep(now rt.Instant) error {
	f.zeroBase()
	f.rescue.left -= f.cfg.Period
	for j := range f.scratch {
		f.scratch[j] = min(f.gate.Max[j], max(f.gate.Min[j], f.Goal[j]))
	}
	f.move(f.scratch, rescuePace)
	for j, c := range f.joints {
		if c&(Limp|EncoderFault) != 0 {
			f.rescue.joints &^= 1 << j // the joint cannot be driven any more
		}
	}
	f.rescue.silent.Add(now, event.Lacking{Joints: f.silence.stale})
	if left := f.bus.OutOfRange() & f.rescue.joints; left != 0 || f.silence.stale != 0 {
		if f.rescue.left > 0 {
			return nil
		}
		return f.rescueError(left)
	}
	if err := f.bus.EndRescue(); err != nil {
		if f.rescue.left > 0 {
			return nil // the line loses replies: try again in the next tick
		}
		return err
	}
	f.rescue.active, f.rescue.joints = false, 0
	f.startSlowly(now)
	return nil
}

// rescueError returns the error of a rescue that took too long. It names the cause that lasted longer: silent joints,
// or the joints in left, which are still outside their range.
func (f *Follower) rescueError(left robot.Joints) error {
	silent := f.rescue.silent.Joints()
	if silent != 0 && (left == 0 || 2*f.rescue.silent.Lasted(event.LackJoints) > rescueLimit) {
		return exit.Errorf(exit.Fault,
			"joint %d was silent during the rescue into its range: check the arm's cables and power",
			silent.First()+1)
	}
	return exit.Errorf(exit.Fault,
		"joint %d does not come into its range: something blocks it, or its load is too high",
		left.First()+1)
}

// ParkLimit bounds the duration of parking.
const ParkLimit = 3 * time.Second

const (
	parkSpeed     = 0.25 // share of the robot's velocity limit
	parkTolerance = 2.0  // robot units within which a joint has arrived
)

// finish ends the armed phase, with parking if the exit mode is ExitPark.
//
//rt:noalloc
func (f *Follower) finish(now rt.Instant) {
	f.stopBase()
	f.Phase = Done
	if f.cfg.Exit == ExitPark && !f.silence.bus && f.parking.known {
		f.Phase, f.parking.end = Parking, now.Add(ParkLimit)
	}
}

// parkStep moves one tick towards the parking place. If hurry is true, it ends the parking.
//
//rt:noalloc
func (f *Follower) parkStep(now rt.Instant, hurry bool) {
	if f.returnStep() || f.silence.bus || now >= f.parking.end || hurry {
		f.Phase = Done
	}
}

// returnStep moves one tick towards the pose of the first arming, and reports whether the arm has
// arrived. The arm stays armed.
//
//rt:noalloc
func (f *Follower) returnStep() (there bool) {
	if !f.parking.known {
		return true
	}
	f.zeroBase() // the base stops at once, regardless of its acceleration limit
	f.move(f.parking.place, parkSpeed)
	there = true
	for j := range f.Goal {
		// a joint that may not be driven stays where it is
		driven := !f.gate.Wheels.Has(j) && f.joints[j]&(Torque|HeatOrSupply|Overloaded|EncoderFault|Limp) == Torque
		if driven && math.Abs(float64(f.parking.place[j]-f.Place[j])) > parkTolerance {
			there = false
		}
	}
	return there
}
