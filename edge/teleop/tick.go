package teleop

import (
	"math"

	"edgert/edge/plug"
	"edgert/internal/exit"
	"edgert/rt"
	"edgert/servo/robot"
)

// tick is one period.
//
//rt:noalloc
func (s *session) tick(t rt.Tick) rt.Wait {
	if s.began == 0 {
		s.began = t.Woke
	}
	deadline := t.Deadline.Add(s.period - busReserve)
	half := t.Deadline.Add((s.period - busReserve) / 2)
	if s.leader.Read(s.lead, half) == 0 {
		s.leaderSeen = t.Woke
	}
	stale := s.follower.Read(s.at, deadline)
	wait := s.leader.BusWait()
	wait.Add(s.follower.BusWait())
	s.leader.Returned() // it is read again: all there is to it
	if why, back := s.follower.Returned(); back {
		s.armed, s.synced = false, false // it stands wherever it stands now
		s.refuseAfter(why)
	}
	if s.cfg.Duration > 0 && t.Woke.Sub(s.began) >= s.cfg.Duration {
		s.leave.Store(true)
	}
	if s.follower.Asleep() {
		s.armed, s.synced = false, false
	}
	switch {
	case s.leave.Load():
		s.depart(t.Woke)
	case !s.armed:
		s.arm(t.Woke, deadline, stale)
	default:
		s.follow(t.Woke, stale)
	}
	return wait
}

// arm switches the follower's torque on where it stands, once both arms answer.
func (s *session) arm(now, deadline rt.Instant, stale uint32) {
	if stale != 0 || now.Sub(s.leaderSeen) >= stillGone {
		return
	}
	s.touched.Store(true)
	done, err := s.follower.ArmStep(deadline)
	if err != nil {
		s.fail(exit.With(exit.Absent, err))
	}
	if done {
		if !s.parked {
			copy(s.park, s.at)
		}
		copy(s.goal, s.at)
		s.armed, s.parked = true, true
	}
}

// follow takes the leader's joints for goals. A leader that does not answer
// leaves them where they are.
//
//rt:noalloc
func (s *session) follow(now rt.Instant, stale uint32) {
	held := s.follower.Hold()
	for j := range s.goal {
		if held&^s.held&(1<<j) != 0 {
			s.goal[j] = s.at[j] // what pushes against something gives way
		}
	}
	s.held = held
	if err := s.follower.Fatal(); err != nil {
		s.condemn(err)
	}
	if now.Sub(s.leaderSeen) >= stillGone {
		s.synced = false // it may be anywhere when it is back
		s.follower.Write(s.goal)
		return
	}
	s.gate.Pace = 1
	if !s.synced {
		s.gate.Pace = float32(s.cfg.Follower.Robot.Safety.Slew)
	}
	s.gate.Apply(s.goal, s.lead, s.at, stale|held)
	s.follower.Write(s.goal)
	s.synced = s.synced || near(s.goal, s.lead, caughtUp)
}

// condemn ends the run because of a motor.
func (s *session) condemn(err error) {
	err = exit.Errorf(exit.Fault, "stopped by a motor: %w", err)
	s.failed.CompareAndSwap(nil, &err)
	s.leave.Store(true)
}

// near reports whether a and b are within reach in every joint.
//
//rt:noalloc
func near(a, b []float32, reach float64) bool {
	for j := range a {
		if math.Abs(float64(a[j]-b[j])) > reach {
			return false
		}
	}
	return true
}

// depart ends the run: the follower goes back to where it was armed, or stays.
//
//rt:noalloc
func (s *session) depart(now rt.Instant) {
	if s.parking == 0 {
		s.parking = now
	}
	over := now.Sub(s.parking) >= parkLimit || s.follower.Away()
	if !s.armed || s.cfg.OnExit != "park" || over || near(s.at, s.park, parkReach) {
		s.stop.Store(true)
		return
	}
	s.gate.Pace = parkPace
	s.gate.Apply(s.goal, s.park, s.at, s.follower.Hold())
	s.follower.Write(s.goal)
}

// refuseAfter ends the run where the robot's description wants an operator
// before its motors move again: a person is at the leader, and starts anew.
func (s *session) refuseAfter(why plug.Cause) {
	if why == plug.Restarted && s.cfg.Follower.Robot.Safety.AfterReset == robot.Operator {
		s.fail(exit.Errorf(exit.Fault, "the follower's motors have restarted: check their supply, then start again"))
	}
}

// fail ends the run at once.
func (s *session) fail(err error) {
	s.failed.CompareAndSwap(nil, &err)
	s.stop.Store(true)
}
