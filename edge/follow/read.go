package follow

import (
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// ReadBy reads the joints until a deadline and determines each joint's permission in this tick.
//
//rt:noalloc
func (f *Follower) ReadBy(t rt.Tick, deadline rt.Instant) {
	if !f.began {
		f.began = true
		for j := range f.silence.lastReply {
			f.silence.lastReply[j] = t.Woke
		}
	}
	f.restBase()
	slept := f.suspension.Passed() > 0 || t.Suspended > 0
	if slept {
		f.bus.Recheck()
	}
	f.silence.stale = f.bus.Read(f.State, deadline)
	copy(f.scratch, f.Place)
	f.bus.Positions(f.Place)
	f.tellJumps(t.Woke, f.scratch)
	if slept && f.driving() {
		f.startSlowly(t.Woke)
	}
	f.updateSilence(t.Woke)
	if why, restarted := f.bus.Reconnected(); why != 0 {
		f.onReconnect(t.Woke, why, restarted)
	}
	f.applyReactions(t.Woke)
	f.watchStalls(t.Woke)
	f.watchBase(t.Woke)
	for j := range f.joints {
		f.may[j] = f.joints[j].permission()
		if f.joints[j]&Torque == 0 {
			f.Goal[j] = f.Place[j] // a joint without torque has no goal to keep
			if f.gate.Wheels.Has(j) {
				f.Goal[j] = 0
			}
		}
		if f.Phase == Armed && f.may[j] == mayArm {
			f.Phase = Arming // this joint could not be armed with the others
		}
	}
	f.unload(t.Woke)
}

// jumpEvery is the shortest time between two reports of jumps.
const jumpEvery = time.Second

// tellJumps reports joints under torque whose position has jumped. It leaves out silent joints, joints with an encoder
// fault, which are not driven, and motors that may have restarted, whose registers are compared first.
//
//rt:noalloc
func (f *Follower) tellJumps(now rt.Instant, from []float32) {
	jumped := f.bus.Jumped() & f.with(Torque) &^ (f.with(EncoderFault) | f.silence.stale | f.bus.Unchecked())
	if jumped == 0 || f.jumpTold != 0 && now.Sub(f.jumpTold) < jumpEvery {
		return
	}
	f.jumpTold = now
	for j := range f.joints {
		if jumped.Has(j) {
			f.emit(now, event.JointJumped, 1<<j, event.Way(from[j], f.Place[j]))
		}
	}
}

// updateSilence updates which joints are silent. A joint that answers again is driven again after it was verified.
//
//rt:noalloc
func (f *Follower) updateSilence(now rt.Instant) {
	s := &f.silence
	before := f.silence.frozen
	unchecked := f.bus.Unchecked()
	s.frozen = 0
	shortest := time.Duration(1 << 62)
	for j := range s.lastReply {
		bit := robot.Joints(1) << j
		f.apply(j, s.stale&bit != 0, noReply, replied)
		f.apply(j, unchecked&bit != 0, verifyNeeded, verifyPassed)
		if s.stale&bit == 0 {
			s.lastReply[j] = now
		}
		since := now.Sub(s.lastReply[j])
		shortest = min(shortest, since)
		if since >= jointStale {
			s.frozen |= bit
		}
	}
	count := s.frozen.Len()
	if frozen := s.frozen &^ before; frozen != 0 {
		f.emit(now, event.JointFrozen, frozen, 0)
	}
	s.resuming |= s.frozen
	resumed := s.resuming &^ (s.frozen | unchecked)
	s.resuming &^= resumed
	// a motor that answers again may have restarted
	silent := count >= 2 || shortest >= busSilence || s.bus && unchecked != 0
	switch {
	case silent && !s.bus:
		f.cfg.Events.Emit(now, event.BusLost, int64(count), f.itself())
	case s.bus && !silent:
		resumed = ^robot.Joints(0)
	}
	if f.driving() && resumed != 0 {
		f.startSlowly(now) // the joints go on from the goals that the motors have kept
	}
	f.settle(now)
	s.bus = silent
}

//rt:noalloc
func (f *Follower) driving() bool { return f.Phase == Armed || f.Phase == Parking }

// settle makes the place of a joint its goal if its motor holds another goal than ours, as soon as the place is known.
// An overloaded joint keeps its goal. So does a joint whose motor has kept its goal, because the goal is known, but the
// place may be misread.
//
//rt:noalloc
func (f *Follower) settle(now rt.Instant) {
	s := &f.silence
	s.strayed |= f.bus.GoalMismatch()
	for j := range f.Goal {
		bit := robot.Joints(1) << j
		if s.strayed&bit == 0 || s.stale&bit != 0 {
			continue
		}
		s.strayed &^= bit
		if f.gate.Wheels.Has(j) {
			f.stopBase()
			continue
		}
		if f.joints[j]&Overloaded == 0 {
			f.Goal[j] = f.gate.settle(f.Goal[j], f.Place[j])
			f.startSlowly(now)
		}
	}
}

//rt:noalloc
func (f *Follower) apply(j int, is bool, yes, no jointEvent) {
	if is {
		f.joints[j] = f.joints[j].after(yes)
	} else {
		f.joints[j] = f.joints[j].after(no)
	}
}

// onReconnect prepares an arm that was away, so that it can be armed at its present pose. If the robot's description
// demands it, motors that have restarted wait for an operator.
func (f *Follower) onReconnect(now rt.Instant, why hotplug.Cause, restarted robot.Joints) {
	policy, which := f.cfg.Safety.AfterReplug, restarted
	if why == hotplug.Restarted {
		policy = f.cfg.Safety.AfterReset
	} else if policy == robot.Operator {
		restarted = ^robot.Joints(0)
	}
	for j := range f.joints {
		f.joints[j] = f.joints[j].after(reconnected)
		if restarted.Has(j) && policy == robot.Operator {
			f.joints[j] = f.joints[j].after(motorRestarted)
			f.needsResume = true
		}
		f.stalls[j] = stall{}
	}
	if limp := f.with(Limp); limp != 0 {
		f.bus.DisableTorque(limp)
	}
	told := int64(which&(1<<len(f.joints)-1)) << f.first << 1
	if f.needsResume {
		told |= 1
	}
	f.cfg.Events.Emit(now, event.BusBack, f.itself()<<event.CauseBits|int64(why), told)
	f.silence.bus = false
	f.silence.frozen = 0
	f.silence.strayed = 0
	f.rescue, f.reactions = rescue{}, servo.Reactions{}
	switch f.Phase {
	case Arming, Armed:
		f.Phase = Unarmed
	case Parking:
		f.Phase = Done
	}
}

//rt:noalloc
func (f *Follower) emitEach(now rt.Instant, what event.Code, joints robot.Joints) {
	for j := range f.joints {
		if joints.Has(j) {
			f.emit(now, what, 1<<j, 0)
		}
	}
}

//rt:noalloc
func (f *Follower) applyReactions(now rt.Instant) {
	r := f.bus.Reactions()
	for j := range f.joints {
		bit := robot.Joints(1) << j
		f.apply(j, r.Hold&bit != 0, heatOrSupplyBegan, heatOrSupplyEnded)
		f.apply(j, r.Encoder&bit != 0, encoderFailed, encoderRecovered)
		f.apply(j, (r.Overload|f.stalled())&bit != 0, overloadBegan, overloadEnded)
		if (r.Overload&^f.reactions.Overload)&bit != 0 {
			f.push[j] = newPush(now, f.Goal[j], f.Place[j])
		}
		if f.joints[j]&Overloaded != 0 {
			f.findPush(j)
		}
		if (f.reactions.Encoder&^r.Encoder)&bit != 0 {
			f.startSlowly(now) // the motor may have driven to its goal by itself, from anywhere
		}
		if r.Limp&bit != 0 {
			f.joints[j] = f.joints[j].after(torqueTaken)
		}
	}
	f.tellHeld(now, r.Hold, r.Hold&^f.reactions.Hold)
	f.emitEach(now, event.JointOverloaded, r.Overload&^f.reactions.Overload)
	f.emitEach(now, event.JointBlind, r.Encoder&^f.reactions.Encoder)
	f.emitEach(now, event.JointLimp, r.Limp&^f.reactions.Limp)
	f.reactions = r
	if f.Phase == Armed && f.bus.BusWatchdogFired() {
		f.Phase, f.rearmAll = Arming, true // armed again at the present pose, the arm starts slowly
	}
}
