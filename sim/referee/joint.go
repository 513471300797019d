package referee

import (
	"cmp"
	"math"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// joint is the state of one servo, as far as the rules need it. Guarded by Referee.mu.
type joint struct {
	Joint
	pace  float64 // largest change of the servo's goal, in counts per second
	step  float64 // largest change of the servo's goal in a tick, in counts
	state servosim.Snapshot

	// For the next goal; aimAt is the time of the last one.
	first  bool // the next goal must be the servo's present position
	budget float64
	aimAt  rt.Instant

	silent   bool
	silentAt rt.Instant
	backAt   rt.Instant // when its last silence ended
	missed   int        // ticks of a short silence, in which the servo may not have received its goals

	fellAt         rt.Instant // time when the servo restarted or lost its torque by itself; 0: neither happened
	before         servosim.Snapshot
	limp           bool
	encoderFault   bool // the alarm reports a fault of the encoder
	encoderFaultAt rt.Instant
	over           bool // the overload bit is set
	overAt         rt.Instant
	grip           int // the goal when the overload began
	load           int // direction in which the goal at the overload pushes, -1 or 1; 0: it does not push
	hasPolicyGoal  bool
	policyGoal     int
	policyGoalAt   rt.Instant
	onward         bool // the wheel turned without permission, which is reported once
	reliefRefused  bool // the driver did not follow the relieving goal, which is reported once
}

func (r *Referee) stateChanged(j *joint, e *servosim.Event) {
	was, is := e.Before, e.After
	if is.Answers != was.Answers {
		j.setSilent(!is.Answers, e.At, r)
	}
	if r.armed && !r.over && j.fellAt == 0 && (is.Boots != was.Boots && was.Boots != 0 || was.Torque && !is.Torque) {
		j.fellAt = e.At
		j.before = was
		j.first = true
	}
	if was.Torque && !is.Torque {
		r.noteTorqueOff(e.At)
	}
	if is.EncoderOK != was.EncoderOK && was.Boots != 0 {
		j.encoderFault, j.encoderFaultAt = !is.EncoderOK, e.At
	}
	r.trackOverload(j, e)
}

func (j *joint) setSilent(on bool, at rt.Instant, r *Referee) {
	if on {
		j.silent, j.silentAt = true, at
		return
	}
	if !j.silent {
		return
	}
	j.silent, j.backAt = false, at
	quiet := at.Sub(j.silentAt)
	if quiet >= stale {
		j.first = true
		return
	}
	j.missed = min(1+int(quiet/r.cfg.Period), missedMost)
}

func (r *Referee) noteTorqueOff(at rt.Instant) {
	if r.over {
		r.offAt = max(r.offAt, at)
	}
}

func (r *Referee) checkWrite(j *joint, e *servosim.Event) {
	if e.Before.Answers != j.state.Answers {
		j.setSilent(false, e.At, r) // the servo receives writes, so its silence has ended
	}
	end := e.Addr + len(e.Data)
	torque := e.Addr <= torqueAddr && torqueAddr < end
	goal := e.Addr < goalAddr+2 && goalAddr < end
	if j.Wheel { // a goal velocity of 0 stops the wheel and needs no permission
		goal = e.Addr < spinAddr+2 && spinAddr < end && e.After.Spin != 0
	}
	on := torque && e.Data[torqueAddr-e.Addr] == 1
	if torque && !on {
		r.releasedByDriver(j, e)
	}
	known := j.fellAt == 0 || e.At.Sub(j.fellAt) > r.ticks(j.fallTicks())
	held := e.Before.Torque || !known && j.before.Torque // the torque, as far as the driver can know it
	if (on || goal) && !held {
		r.checkTorque(j, e)
	}
	if on || goal {
		r.checkPermission(j, e, known)
	}
	if j.Wheel {
		r.checkSpin(j, e, on)
		r.checkAcceleration(j, e)
		return
	}
	if goal {
		r.checkGoal(j, e, held, known)
	} else if on && !held {
		r.checkFirstGoal(j, e)
	}
	r.trackOverload(j, e)
}

// fallTicks returns the number of ticks after which a driver can detect that a servo has restarted
// or lost its torque. A restart begins with a silence. A servo that switches its torque off by
// itself only raises an alarm.
func (j *joint) fallTicks() int {
	if j.state.Boots == j.before.Boots {
		return alarmTicks
	}
	return knowTicks
}

// releasedByDriver judges a torque-off that the driver wrote.
func (r *Referee) releasedByDriver(j *joint, e *servosim.Event) {
	if !e.Before.Torque {
		return
	}
	r.noteTorqueOff(e.At)
	j.first = true
	if r.armed && !r.over {
		j.limp = true
	}
}

// checkTorque judges a write that switches the torque on: a write to Torque_Enable, or the write of
// a goal, which switches on the torque of some servos.
func (r *Referee) checkTorque(j *joint, e *servosim.Event) {
	switch {
	case r.over:
	case !r.hasChunk:
		r.early = append(r.early, Violation{
			At:    e.At,
			Rule:  torqueRule,
			Joint: j.Name,
			What:  "torque before the first chunk",
		})
	case r.paused:
		r.violation(e.At, torqueRule, j, "torque while paused")
	}
	if !r.over {
		r.armed = true
	}
}

// checkPermission judges whether the driver may drive the servo to which it writes.
func (r *Referee) checkPermission(j *joint, e *servosim.Event, known bool) {
	if r.over {
		r.violation(e.At, endRule, j, "written to after the end")
		return
	}
	switch {
	case j.limp && !e.Before.Torque:
		r.violation(e.At, limpRule, j, "torque after it was let go")
	case j.fellAt != 0 && known:
		r.violation(e.At, restartRule, j, "driven without a consent after it restarted or lost its torque")
	}
	if j.encoderFault && e.At.Sub(j.encoderFaultAt) > r.ticks(alarmTicks) &&
		(e.After.Aim != e.Before.Aim || !e.Before.Torque) {
		r.violation(e.At, encoderRule, j, "driven from %d to %d, and its encoder is wrong", e.Before.Aim, e.After.Aim)
	}
}

func (r *Referee) ticks(n int) time.Duration { return time.Duration(n) * r.cfg.Period }

func (r *Referee) checkGoal(j *joint, e *servosim.Event, held, known bool) {
	goal := e.After.Goal
	aim := e.After.Aim
	present := e.Before.Present
	if out, stands := j.outside(goal), j.outside(present); out > 0 && (stands == 0 || out > stands+noise) {
		r.violation(e.At, rangeRule, j, "goal %d, the range is %d to %d and the servo is at %d", goal, j.Min, j.Max,
			present)
	}
	from := e.Before.Aim
	if !known && j.fellAt != 0 {
		from = j.before.Aim
	}
	if held && aim == from {
		return // the goal is unchanged
	}
	r.goals++
	// the new goal continues from the servo's present goal
	again := held && math.Abs(float64(aim-from)) <= j.step+rounding
	if (j.first && known || !held) && !again {
		j.first, j.missed = false, 0
		r.checkFirstGoal(j, e)
		j.spendBudget(e.At, 0)
		return
	}
	j.first = false
	travel := aim - from
	limit := j.step*float64(1+j.missed) + rounding
	j.missed = 0
	far := math.Abs(float64(aim - present))
	if was := math.Abs(float64(from - present)); far <= j.step+rounding && far < was {
		// A goal at the present position is permitted at any distance from the last goal: it
		// reduces force and moves nothing.
		r.measure(j, aim-present)
		return
	}
	r.measure(j, travel)
	switch size := math.Abs(float64(travel)); {
	case size > limit:
		r.violation(e.At, stepRule, j, "%d counts (%.1f degrees) from goal %d to %d in a tick, at most %.0f", travel,
			float64(travel)/j.Degree, from, aim, limit)
		j.budget = burst * j.step
	case j.spendBudget(e.At, size) < 0:
		r.violation(e.At, stepRule, j, "goals come faster than %.0f counts a second", j.Velocity)
		j.budget = burst * j.step
	}
	if most := max(j.step, j.Velocity*leadFor.Seconds()) + rounding + noise; far > most &&
		math.Abs(float64(from-present)) < far {
		r.violation(e.At, stepRule, j, "goal %d is %.0f counts ahead of %d, at most %.0f", aim, far, present, most)
	}
}

// checkSpin judges the goal velocity of a wheel after a write.
func (r *Referee) checkSpin(j *joint, e *servosim.Event, on bool) {
	spin := e.After.Spin
	if spin == 0 || !e.After.Torque {
		return
	}
	switch {
	case on && !e.Before.Torque:
		r.violation(e.At, stepRule, j, "the first goal velocity under torque is %d, want 0", spin)
	case math.Abs(float64(spin)) > j.Velocity+rounding:
		r.violation(e.At, rangeRule, j, "goal velocity %d, at most %.0f", spin, j.Velocity)
	case e.Before.Spin != spin:
		r.goals++
	}
}

// checkAcceleration judges the change of a wheel's goal velocity. A stop has no limit.
func (r *Referee) checkAcceleration(j *joint, e *servosim.Event) {
	was, is := e.Before.Spin, e.After.Spin
	if j.step == 0 || is == was || is == 0 || !e.After.Torque {
		return
	}
	size := math.Abs(float64(is - was))
	limit := j.step*float64(1+j.missed) + 2*rounding
	j.missed = 0
	switch {
	case size > limit:
		r.violation(e.At, stepRule, j, "goal velocity from %d to %d in a tick, at most %.0f more or less", was, is,
			limit)
	case j.spendBudget(e.At, size-rounding) < 0:
		r.violation(e.At, stepRule, j, "goal velocities change faster than %.0f counts a second, per second", j.pace)
	default:
		return
	}
	j.budget = burst * j.step
}

// checkStopped judges a wheel that has lost its permission.
func (r *Referee) checkStopped(j *joint) {
	if !j.Wheel || j.onward || r.idleAt == 0 || !j.state.Torque || !j.state.Answers || j.state.Spin == 0 {
		return
	}
	late := r.now.Sub(max(r.idleAt, j.backAt)) // a wheel gets no goal while it does not answer
	if late <= r.ticks(stopTicks) {
		return
	}
	j.onward = true
	r.violation(r.now, wheelRule, j, "goal velocity %d, %v after it lost its permission", j.state.Spin,
		late.Round(time.Millisecond))
}

// checkFirstGoal judges the first goal after arming, a silence or a restart: it must be the servo's
// present position. The caller does not call it for a goal that continues from the servo's present
// goal.
func (r *Referee) checkFirstGoal(j *joint, e *servosim.Event) {
	travel := e.After.Aim - e.Before.Present
	r.measure(j, travel)
	if limit := j.step + rounding + noise; math.Abs(float64(travel)) > limit {
		r.violation(e.At, stepRule, j,
			"the first goal after torque or silence is %d, %d counts (%.1f degrees) from the "+
				"servo's position, at most %.0f",
			e.After.Aim, travel, float64(travel)/j.Degree, limit)
	}
}

// spendBudget adds the travel that is allowed since the last step to the joint's budget, subtracts
// the size of this step, and returns the budget. A budget below 0 means that the step came too
// early.
func (j *joint) spendBudget(at rt.Instant, size float64) float64 {
	j.budget = min(j.budget+j.pace*at.Sub(j.aimAt).Seconds(), burst*j.step)
	j.aimAt = at
	j.budget -= max(size-rounding, 0)
	return j.budget
}

func (r *Referee) measure(j *joint, travel int) {
	degrees := math.Abs(float64(travel)) / j.Degree
	if degrees > r.longest.Degrees {
		r.longest = Figure{Joint: j.Name, Counts: int(math.Abs(float64(travel))), Degrees: degrees}
	}
}

// outside returns by how many counts a position is outside the joint's range; 0 when it is inside.
func (j *joint) outside(raw int) int { return max(0, j.Min-raw, raw-j.Max) }

// trackOverload follows the servo's overload bit, and judges the goals that the servo gets while the bit
// is set.
func (r *Referee) trackOverload(j *joint, e *servosim.Event) {
	over := e.After.Alarm&alarmOverload != 0 && e.After.Torque
	switch {
	case !over:
		j.over = false
	case !j.over:
		j.over = true
		j.overAt = e.At
		j.grip = e.After.Aim
		j.load = cmp.Compare(e.After.Aim, e.After.Present)
		j.reliefRefused = false
	case e.Data == nil || e.At.Sub(j.overAt) <= r.ticks(alarmTicks):
		j.grip = e.After.Aim // the driver could not have detected the overload yet
	case e.After.Aim == e.Before.Aim || j.load == 0:
	case j.load*(e.After.Aim-j.grip) > rounding:
		r.violation(e.At, overloadRule, j, "goal %d pushes further than the %d under which it was overloaded",
			e.After.Aim,
			j.grip)
		j.grip = e.After.Aim
	case j.hasPolicyGoal && j.load*(j.policyGoal-j.grip) >= 0 && j.load*(e.After.Aim-j.grip) < -rounding:
		r.violation(e.At, overloadRule, j, "goal %d releases the hold at %d, and the policy's goal is %d", e.After.Aim,
			j.grip, j.policyGoal)
		j.load = 0
	}
}

// checkRelief judges whether the driver follows the policy's goal when that goal relieves an overloaded
// joint.
func (r *Referee) checkRelief(j *joint) {
	if !j.over || j.reliefRefused || !j.hasPolicyGoal || j.load == 0 || r.over || r.paused ||
		j.load*(j.policyGoal-j.grip) >= -int(j.step) {
		return
	}
	since := max(j.policyGoalAt, j.overAt)
	if r.now.Sub(since) > reliefIn && j.load*(j.state.Aim-j.grip) > -rounding {
		j.reliefRefused = true
		r.violation(r.now, overloadRule, j, "the policy's goal %d relieves it, and the goal stays at %d", j.policyGoal,
			j.state.Aim)
	}
}
