package follow

import (
	"math"
	"math/bits"
	"time"

	"edgert/internal/exit"
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
	caught := f.slow && now >= f.slowEnd && f.caughtUp(action)
	f.move(action, pace)
	if caught {
		f.slow = false // and not before
	}
}

// caughtUp reports whether every joint that is driven at all is driven in this tick,
// and is near enough to what is wanted to go there at full speed.
//
//rt:noalloc
func (f *Follower) caughtUp(action []float32) bool {
	for j, l := range f.joints {
		if l&Torque == 0 || l&(Limp|Blind|Heated|Pushing) != 0 || isBad(action[j]) {
			continue
		}
		want := min(f.gate.Max[j], max(f.gate.Min[j], action[j]))
		if d := want - f.Goal[j]; f.may[j] != MayGoal || d > f.gate.Step[j]+slack || d < -f.gate.Step[j]-slack {
			return false
		}
	}
	return true
}

// move passes goals through the gate and sends those that may be.
//
//rt:noalloc
func (f *Follower) move(action []float32, pace float32) {
	if f.silent {
		return
	}
	if f.asleep.Passed() > 0 { // since the joints were read: nothing is known of them
		f.bus.Recheck()
		return
	}
	f.gate.Pace = pace
	joints := uint32(0)
	for j := range f.Goal {
		switch f.may[j] {
		case MayGoal:
			f.Goal[j] = f.gate.Pass(j, f.Goal[j], action[j], f.Place[j])
		case MayRelieve:
			f.Goal[j] = f.gate.Pass(j, f.Goal[j], relief(f.Goal[j], action[j], f.push[j], f.Place[j]), f.Place[j])
		default:
			continue
		}
		joints |= 1 << j
	}
	if joints != 0 {
		f.bus.Write(f.Goal, joints)
	}
}

// reliefPast is how far past a joint that pushes against something its goal may go:
// one that is free follows, and one that is wedged does not push the other way.
const reliefPast = 3.0 // robot units

// relief is what a joint that pushes against something may want: less of it.
//
//rt:noalloc
func relief(goal, action, push, place float32) float32 {
	if (action-goal)*push < 0 {
		if push > 0 {
			return max(action, min(goal, place-reliefPast))
		}
		return min(action, max(goal, place+reliefPast))
	}
	return goal // it pushes nowhere that is known: the complaint ends by itself
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
	for j, l := range f.joints {
		if l&(Limp|Blind) != 0 {
			f.rescued &^= 1 << j // it does not come in any more
		}
	}
	if left := f.bus.OutOfRange() & f.rescued; left != 0 || f.stale != 0 {
		if now < f.giveUp {
			return nil
		}
		return exit.Errorf(exit.Fault, "joint %d does not come into its range: something blocks it, or its load is too high", bits.TrailingZeros32(left)+1)
	}
	if err := f.bus.EndRescue(); err != nil {
		if now < f.giveUp {
			return nil // a line that loses replies: again in the next tick
		}
		return err
	}
	f.rescuing, f.rescued = false, 0
	f.Slow(now)
	return nil
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
		driven := f.joints[j]&(Torque|Heated|Pushing|Blind|Limp) == Torque // the others stay where they are
		if driven && math.Abs(float64(f.park[j]-f.Place[j])) > parkTolerance {
			there = false
		}
	}
	if there || f.silent || now >= f.parkEnd || hurry {
		f.Phase = Done
	}
}
