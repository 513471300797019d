package follow

import (
	"math"
	"time"

	"edgert/rt"
)

// Drive moves one tick towards an action. What a joint may not do it does not; an
// arm that is silent is sent nothing.
//
//rt:noalloc
func (f *Follower) Drive(now rt.Instant, action []float32) { f.DriveAt(now, action, 1) }

// DriveAt is Drive at a share of the velocity limit.
//
//rt:noalloc
func (f *Follower) DriveAt(now rt.Instant, action []float32, pace float32) {
	if f.slow {
		pace = min(pace, float32(f.cfg.Safety.Slew))
	}
	clips := f.gate.StepClips
	f.move(action, pace)
	// The start is over once the arm has caught up, and not before.
	if f.slow && now >= f.slowEnd && f.gate.StepClips == clips {
		f.slow = false
	}
}

// move passes goals through the gate and sends those that may be.
//
//rt:noalloc
func (f *Follower) move(action []float32, pace float32) {
	if f.silent {
		return
	}
	if f.asleep.Passed() > 0 { // since the joints were read: nothing is known of them
		f.bus.Doubt()
		return
	}
	f.gate.Pace = pace
	joints := uint32(0)
	for j := range f.Goal {
		switch f.may[j] {
		case MayGoal:
			f.Goal[j] = f.gate.Pass(j, f.Goal[j], action[j], f.Place[j])
		case MayRelieve:
			f.Goal[j] = f.gate.Pass(j, f.Goal[j], relief(f.Goal[j], action[j], f.push[j]), f.Place[j])
		default:
			continue
		}
		joints |= 1 << j
	}
	if joints != 0 {
		f.bus.Write(f.Goal, joints)
	}
}

// relief is what a joint that pushes against something may want: less of it.
//
//rt:noalloc
func relief(goal, action, push float32) float32 {
	if (action-goal)*push > 0 {
		return goal
	}
	return action
}

// Rescuing reports whether the arm is on its way in from outside its range: WalkIn
// is to be called instead of Drive.
//
//rt:noalloc
func (f *Follower) Rescuing() bool { return f.rescuing }

// rescuePace is the share of the velocity limit on the way in; the servos
// themselves are slower still.
const rescuePace = 0.04

// WalkIn moves the joints that stand outside their range one tick towards it.
func (f *Follower) WalkIn(now rt.Instant) error {
	for j := range f.want {
		f.want[j] = min(f.gate.Max[j], max(f.gate.Min[j], f.Goal[j]))
	}
	f.move(f.want, rescuePace)
	if f.bus.Outside() != 0 || f.stale != 0 {
		return nil
	}
	f.rescuing = false
	f.slowDown(now)
	return f.bus.Rescued()
}

// Parking.
const (
	parkLimit     = 3 * time.Second // gives up after this
	parkSpeed     = 0.25            // of the robot's velocity limit
	parkTolerance = 2.0             // robot units; nearer counts as there
)

// ParkLimit is how long parking takes at most.
const ParkLimit = parkLimit

// Depart leaves the armed phase: towards the parking place, or at once.
//
//rt:noalloc
func (f *Follower) Depart(now rt.Instant) {
	f.Phase = Done
	if f.cfg.Exit == ExitPark && !f.silent && f.parked {
		f.Phase, f.parkEnd = Parking, now.Add(parkLimit)
	}
}

// ParkOn moves one tick towards the parking place. Joints that may not be driven
// stay where they are. With hurry it ends where it is.
//
//rt:noalloc
func (f *Follower) ParkOn(now rt.Instant, hurry bool) {
	f.move(f.park, parkSpeed)
	there := true
	for j := range f.Goal {
		if f.may[j] == MayGoal && math.Abs(float64(f.park[j]-f.Place[j])) > parkTolerance {
			there = false
		}
	}
	if there || f.silent || now >= f.parkEnd || hurry {
		f.Phase = Done
	}
}
