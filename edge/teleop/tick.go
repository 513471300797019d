package teleop

import (
	"edgert/edge/follow"
	"edgert/internal/exit"
	"edgert/rt"
)

// tick is one period: the leader is read in the first half of the time for reading,
// the follower in the rest.
//
//rt:noalloc
func (s *session) tick(t rt.Tick) rt.Wait {
	if s.began == 0 {
		s.began = t.Woke
	}
	time := s.period - follow.Reserve(s.period)
	if s.leader.Read(s.lead, t.Deadline.Add(time/2)) == 0 && s.leader.Reactions().Encoder == 0 {
		s.leaderSeen = t.Woke
	}
	s.arm.ReadBy(t, t.Deadline.Add(time))
	wait := s.leader.BusWait()
	wait.Add(s.follower.BusWait())
	s.leader.Reconnected() // it is read again: all there is to it
	if s.cfg.Duration > 0 && t.Woke.Sub(s.began) >= s.cfg.Duration {
		s.leave.Store(true)
	}
	if s.arm.NeedsResume() {
		// A person is at the leader, and starts anew.
		s.fail(exit.Errorf(exit.Fault, "the follower's motors have restarted: check their supply, then start again"))
	}
	if err := s.arm.Fatal(); err != nil {
		s.condemn(err)
	}
	s.drive(t)
	return wait
}

// drive does what the follower's phase asks for.
func (s *session) drive(t rt.Tick) {
	present := t.Woke.Sub(s.leaderSeen) < stillGone
	switch s.arm.Phase {
	case follow.Unarmed:
		switch {
		case s.leave.Load():
			s.stop.Store(true)
		case present:
			s.arm.StartArming()
		}
	case follow.Arming:
		switch {
		case s.leave.Load() && s.arm.HasTorque():
			s.arm.Finish(t.Woke)
			return
		case !present || s.leave.Load():
			s.arm.CancelArming()
			return
		}
		s.touched.Store(true)
		if _, err := s.arm.ArmStep(t); err != nil {
			s.fail(absent(err))
		}
	case follow.Armed:
		s.follow(t.Woke, present)
	case follow.Parking:
		s.arm.ParkStep(t.Woke, false)
	default:
		s.stop.Store(true)
	}
}

// absent gives a failure to arm that has no code yet that of a missing motor.
func absent(err error) error {
	if exit.Of(err) != exit.Failure {
		return err
	}
	return exit.With(exit.Absent, err)
}

// follow takes the leader's joints for goals. A leader that does not answer leaves
// the follower where it is, and may be anywhere when it is back.
//
//rt:noalloc
func (s *session) follow(now rt.Instant, present bool) {
	switch {
	case s.leave.Load():
		s.arm.Finish(now)
	case s.arm.Rescuing():
		if err := s.arm.RescueStep(now); err != nil {
			s.fail(err)
		}
	case !present:
		s.arm.StartSlowly(now)
	default:
		s.arm.Drive(now, s.lead)
	}
}

// condemn ends the run because of a motor.
func (s *session) condemn(err error) {
	err = exit.With(exit.Fault, err)
	s.failed.CompareAndSwap(nil, &err)
	s.leave.Store(true)
}

// fail ends the run at once.
func (s *session) fail(err error) {
	s.failed.CompareAndSwap(nil, &err)
	s.stop.Store(true)
}
