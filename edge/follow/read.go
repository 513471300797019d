package follow

import (
	"time"

	"edgert/edge/event"
	"edgert/edge/hotplug"
	"edgert/rt"
	"edgert/servo"
	"edgert/servo/robot"
)

// Read fetches the joints until the deadline of a tick and works out what each of
// them may be told.
//
//rt:noalloc
func (f *Follower) Read(t rt.Tick) {
	f.ReadBy(t, t.Deadline.Add(f.cfg.Period-Reserve(f.cfg.Period)))
}

// ReadBy is Read with a deadline of its own, for who reads another arm in the same
// tick.
//
//rt:noalloc
func (f *Follower) ReadBy(t rt.Tick, deadline rt.Instant) {
	if !f.began {
		f.began = true
		for j := range f.seen {
			f.seen[j] = t.Woke
		}
	}
	slept := f.asleep.Passed() > 0 || t.Suspended > 0
	if slept {
		f.bus.Recheck()
	}
	f.stale = f.bus.Read(f.State, deadline)
	f.bus.Positions(f.Place)
	if slept && f.driven() {
		for j := range f.Goal {
			f.rejoin(t.Woke, j)
		}
	}
	f.listen(t.Woke)
	if why, restarted := f.bus.Reconnected(); why != 0 {
		f.welcome(t.Woke, why, restarted)
	}
	f.mind(t.Woke)
	f.watchStalls(t.Woke)
	for j := range f.joints {
		f.may[j] = f.joints[j].May()
		if f.joints[j]&Torque == 0 {
			f.Goal[j] = f.Place[j] // nothing holds it
		}
		if f.Phase == Armed && f.may[j] == MayArm {
			f.Phase = Arming // it could not be armed with the others
		}
	}
}

// listen applies the rules of silence.
//
//rt:noalloc
func (f *Follower) listen(now rt.Instant) {
	silenced := f.frozen
	f.frozen = 0
	doubted := f.bus.Unchecked()
	count, longest := 0, time.Duration(1<<62)
	for j := range f.seen {
		bit := uint32(1) << j
		f.happens(j, f.stale&bit != 0, Missed, Answered)
		f.happens(j, doubted&bit != 0, Doubted, Compared)
		if f.stale&bit == 0 {
			f.seen[j] = now
		}
		quiet := now.Sub(f.seen[j])
		longest = min(longest, quiet)
		if quiet >= jointStale {
			f.frozen |= bit
			count++
		}
		f.lapse(now, j, doubted&bit != 0)
	}
	if silenced = f.frozen &^ silenced; silenced != 0 {
		f.cfg.Events.Emit(now, event.JointFrozen, int64(silenced), 0)
	}
	for j, strayed := 0, f.bus.GoalMismatch(); strayed != 0; j, strayed = j+1, strayed>>1 {
		if strayed&1 != 0 && f.joints[j]&Pushing == 0 { // who pushes gets its own goal again
			f.rejoin(now, j)
		}
	}
	silent := count >= 2 || longest >= busSilence
	silent = silent || f.silent && doubted != 0 // who answers again may have restarted
	if silent && !f.silent {
		f.cfg.Events.Emit(now, event.BusLost, int64(count), 0)
	}
	if f.silent && !silent && f.driven() {
		for j := range f.Goal {
			if f.joints[j]&Pushing == 0 { // it was compared, and lets go of nothing
				f.rejoin(now, j)
			}
		}
	}
	f.silent = silent
}

// driven reports whether goals leave in this phase.
//
//rt:noalloc
func (f *Follower) driven() bool { return f.Phase == Armed || f.Phase == Parking }

// lapse has a joint that was silent for long go on from where it is once it was
// compared, unless it pushes against something: it was told to keep its force.
//
//rt:noalloc
func (f *Follower) lapse(now rt.Instant, j int, doubted bool) {
	bit := uint32(1) << j
	if f.frozen&bit != 0 {
		f.lapsed |= bit
		return
	}
	if f.lapsed&bit == 0 || doubted {
		return
	}
	f.lapsed &^= bit
	if f.driven() && f.joints[j]&Pushing == 0 {
		f.rejoin(now, j)
	}
}

// rejoin lets a joint go on from where it is.
//
//rt:noalloc
func (f *Follower) rejoin(now rt.Instant, j int) {
	f.Goal[j] = f.Place[j]
	f.Slow(now)
}

// happens applies one of two events.
//
//rt:noalloc
func (f *Follower) happens(j int, is bool, yes, no Event) {
	if is {
		f.joints[j] = f.joints[j].After(yes)
	} else {
		f.joints[j] = f.joints[j].After(no)
	}
}

// welcome takes up an arm that was away. Nothing moves at once: it is armed again
// where it stands; joints whose motors have restarted perhaps only when an operator
// says so.
func (f *Follower) welcome(now rt.Instant, why hotplug.Cause, restarted uint32) {
	policy, which := f.cfg.Safety.AfterReplug, restarted
	if why == hotplug.Restarted {
		policy = f.cfg.Safety.AfterReset
	} else if policy == robot.Operator {
		restarted = ^uint32(0)
	}
	for j := range f.joints {
		f.joints[j] = f.joints[j].After(Returned)
		if restarted&(1<<j) != 0 && policy == robot.Operator {
			f.joints[j] = f.joints[j].After(LostMark)
			f.restarts = true
		}
		f.stalls[j] = stall{}
	}
	if f.limp != 0 {
		f.bus.DisableTorque(f.limp)
	}
	told := int64(which&(1<<len(f.joints)-1)) << 1
	if f.restarts {
		told |= 1
	}
	f.cfg.Events.Emit(now, event.BusBack, int64(why), told)
	f.silent, f.frozen, f.rescuing, f.rescued, f.said = false, 0, false, 0, servo.Reactions{}
	switch f.Phase {
	case Arming, Armed:
		f.Phase = Untouched
	case Parking:
		f.Phase = Done // it stands wherever it stands
	}
}

// tell has people told of each joint of which something is new.
//
//rt:noalloc
func (f *Follower) tell(now rt.Instant, what event.Code, joints uint32) {
	for j := range f.joints {
		if joints&(1<<j) != 0 {
			f.cfg.Events.Emit(now, what, 1<<j, 0)
		}
	}
}

// mind turns complaints into what the joints may be told.
//
//rt:noalloc
func (f *Follower) mind(now rt.Instant) {
	c := f.bus.Reactions()
	f.limp |= c.Limp
	for j := range f.joints {
		bit := uint32(1) << j
		f.happens(j, c.Hold&bit != 0, Held, Relieved)
		f.happens(j, c.Encoder&bit != 0, EncoderFailed, EncoderWell)
		f.happens(j, (c.Overload|f.stalled())&bit != 0, Overloaded, Unloaded)
		if (c.Overload&^f.said.Overload)&bit != 0 {
			f.push[j] = f.Goal[j] - f.Place[j]
		}
		if (f.said.Encoder&^c.Encoder)&bit != 0 {
			f.rejoin(now, j) // its motor may have gone anywhere meanwhile
		}
		if f.limp&bit != 0 {
			f.joints[j] = f.joints[j].After(TakenLimp)
		}
	}
	f.tell(now, event.JointHeld, c.Hold&^f.said.Hold)
	f.tell(now, event.JointOverloaded, c.Overload&^f.said.Overload)
	f.tell(now, event.JointBlind, c.Encoder&^f.said.Encoder)
	f.tell(now, event.JointLimp, c.Limp&^f.said.Limp)
	f.said = c
	if f.Phase == Armed && f.bus.WatchdogFired() {
		f.Phase, f.waking = Arming, true // goal := present, and slowly on from there
	}
}
