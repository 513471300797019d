package referee

import (
	"math"
	"time"

	"edgert/rt"
	"edgert/servo/servosim"
)

// joint is one servo as the rules see it. Guarded by Referee.mu.
type joint struct {
	Joint
	step float64 // counts per tick
	life servosim.Life

	// The goal that counts: where it is to go by the newest write.
	first  bool // the next goal is measured from where the servo stands
	budget float64
	aimAt  rt.Instant

	silent   bool
	silentAt rt.Instant
	missed   int // ticks of a short silence: goals that it may not have got

	fallen   rt.Instant // when it restarted or let go by itself; 0: it did not
	before   servosim.Life
	limp     bool
	wrong    bool // the encoder, as told by the alarm
	wrongAt  rt.Instant
	over     bool // its overload bit is set
	overAt   rt.Instant
	grip     int // its goal then
	load     int // -1 or 1: where that goal pushes; 0: nowhere
	asked    bool
	wanted   int
	wantedAt rt.Instant
	refused  bool // the relief that was wanted; told once
}

// change takes what a servo did by itself.
func (r *Referee) change(j *joint, e *servosim.Event) {
	was, is := e.Before, e.After
	if is.Answers != was.Answers {
		j.hush(!is.Answers, e.At, r)
	}
	if r.armed && !r.over && j.fallen == 0 && (is.Boots != was.Boots && was.Boots != 0 || was.Torque && !is.Torque) {
		j.fallen, j.before, j.first = e.At, was, true
	}
	if was.Torque && !is.Torque {
		r.off(e.At)
	}
	if is.Believed != was.Believed && was.Boots != 0 {
		j.wrong, j.wrongAt = !is.Believed, e.At
	}
	r.loaded(j, e)
}

// hush begins or ends a silence.
func (j *joint) hush(on bool, at rt.Instant, r *Referee) {
	if on {
		j.silent, j.silentAt = true, at
		return
	}
	if !j.silent {
		return
	}
	j.silent = false
	quiet := at.Sub(j.silentAt)
	if quiet >= stale {
		j.first = true
		return
	}
	j.missed = min(1+int(quiet/r.cfg.Period), missedMost)
}

// off notes that some servo's torque is off after the end.
func (r *Referee) off(at rt.Instant) {
	if r.over {
		r.offAt = max(r.offAt, at)
	}
}

// write judges one write.
func (r *Referee) write(j *joint, e *servosim.Event) {
	if e.Before.Answers != j.life.Answers {
		j.hush(false, e.At, r) // it hears: a silence that ended by time
	}
	end := e.Addr + len(e.Data)
	torque := e.Addr <= r.cfg.TorqueAddr && r.cfg.TorqueAddr < end
	goal := e.Addr < r.cfg.GoalAddr+r.cfg.GoalSize && r.cfg.GoalAddr < end
	on := torque && e.Data[r.cfg.TorqueAddr-e.Addr] == 1
	if torque && !on {
		r.release(j, e)
	}
	known := j.fallen == 0 || e.At.Sub(j.fallen) > r.ticks(j.fallTicks())
	held := e.Before.Torque || !known && j.before.Torque // as far as the driver can know
	if (on || goal) && !held {
		r.taken(j, e)
	}
	if on || goal {
		r.forbidden(j, e, known)
	}
	if goal {
		r.aim(j, e, held, known)
	} else if on && !held {
		r.from(j, e)
	}
	r.loaded(j, e)
}

// fallTicks is how long a driver needs to know of a fall: a restart is silence at
// first, but a servo that lets go says no more than an alarm.
func (j *joint) fallTicks() int {
	if j.life.Boots == j.before.Boots {
		return alarmTicks
	}
	return knowTicks
}

// release is torque off by the driver.
func (r *Referee) release(j *joint, e *servosim.Event) {
	if !e.Before.Torque {
		return
	}
	r.off(e.At)
	j.first = true
	if r.armed && !r.over {
		j.limp = true
	}
}

// taken judges a write that switches torque on, or does on some servos.
func (r *Referee) taken(j *joint, e *servosim.Event) {
	switch {
	case r.over:
	case !r.hasChunk:
		r.early = append(r.early, Violation{At: e.At, Rule: Torque, Joint: j.Name, What: "torque before the first chunk"})
	case r.paused:
		r.flag(e.At, Torque, j, "torque while paused")
	}
	if !r.over {
		r.armed = true
	}
}

// forbidden judges a write that drives a servo which may not be driven.
func (r *Referee) forbidden(j *joint, e *servosim.Event, known bool) {
	if r.over {
		r.flag(e.At, End, j, "written to after the end")
		return
	}
	switch {
	case j.limp && !e.Before.Torque:
		r.flag(e.At, Limp, j, "torque after it was let go")
	case j.fallen != 0 && known:
		r.flag(e.At, Restart, j, "driven after it restarted or let go by itself, and nobody has agreed")
	}
	if j.wrong && e.At.Sub(j.wrongAt) > r.ticks(alarmTicks) && (e.After.Aim != e.Before.Aim || !e.Before.Torque) {
		r.flag(e.At, Encoder, j, "driven from %d to %d, and its encoder is wrong", e.Before.Aim, e.After.Aim)
	}
}

// ticks is so many periods.
func (r *Referee) ticks(n int) time.Duration { return time.Duration(n) * r.cfg.Period }

// aim judges a goal.
func (r *Referee) aim(j *joint, e *servosim.Event, held, known bool) {
	goal, aim, present := e.After.Goal, e.After.Aim, e.Before.Present
	if out, stands := j.outside(goal), j.outside(present); out > 0 && (stands == 0 || out > stands+noise) {
		r.flag(e.At, Range, j, "goal %d, the range is %d to %d and it stands at %d", goal, j.Min, j.Max, present)
	}
	from := e.Before.Aim
	if !known && j.fallen != 0 {
		from = j.before.Aim
	}
	if held && aim == from {
		return // as it was
	}
	r.goals++
	again := held && math.Abs(float64(aim-from)) <= j.step+rounding // it held on to that goal all along
	if (j.first && known || !held) && !again {
		j.first, j.missed = false, 0
		r.from(j, e)
		j.spend(r, e.At, 0)
		return
	}
	j.first = false
	travel := aim - from
	limit := j.step*float64(1+j.missed) + rounding
	j.missed = 0
	far := math.Abs(float64(aim - present))
	if was := math.Abs(float64(from - present)); far <= j.step+rounding && far < was {
		// Back to where it stands: however far that is from the goal before, it takes
		// force away and moves nothing.
		r.measure(j, aim-present)
		return
	}
	r.measure(j, travel)
	switch size := math.Abs(float64(travel)); {
	case size > limit:
		r.flag(e.At, Step, j, "%d counts (%.1f degrees) from goal %d to %d in a tick, at most %.0f", travel, float64(travel)/j.Degree, from, aim, limit)
		j.budget = burst * j.step
	case j.spend(r, e.At, size) < 0:
		r.flag(e.At, Step, j, "goals come faster than %.0f counts a second", j.Velocity)
		j.budget = burst * j.step
	}
	if most := max(j.step, j.Velocity*leadFor.Seconds()) + rounding + noise; far > most && math.Abs(float64(from-present)) < far {
		r.flag(e.At, Step, j, "goal %d is %.0f counts ahead of %d, at most %.0f", aim, far, present, most)
	}
}

// from judges the first goal after arming, a silence or a restart: it lies where
// the servo stands. Not judged is one that goes on from the goal which the servo
// still has, under a torque that it never lost.
func (r *Referee) from(j *joint, e *servosim.Event) {
	travel := e.After.Aim - e.Before.Present
	r.measure(j, travel)
	if limit := j.step + rounding + noise; math.Abs(float64(travel)) > limit {
		r.flag(e.At, Step, j, "the first goal after torque or silence is %d, %d counts (%.1f degrees) from where it stands, at most %.0f",
			e.After.Aim, travel, float64(travel)/j.Degree, limit)
	}
}

// spend takes a step from what the time since the last one allows, and returns
// what is left.
func (j *joint) spend(r *Referee, at rt.Instant, size float64) float64 {
	j.budget = min(j.budget+j.Velocity*at.Sub(j.aimAt).Seconds(), burst*j.step)
	j.aimAt = at
	j.budget -= max(size-rounding, 0)
	return j.budget
}

// measure keeps the longest step.
func (r *Referee) measure(j *joint, travel int) {
	degrees := math.Abs(float64(travel)) / j.Degree
	if degrees > r.longest.Degrees {
		r.longest = Figure{Joint: j.Name, Counts: int(math.Abs(float64(travel))), Degrees: degrees}
	}
}

// outside is how far a place is out of the joint's range.
func (j *joint) outside(raw int) int { return max(0, j.Min-raw, raw-j.Max) }

// loaded follows the overload bit and judges goals under it.
func (r *Referee) loaded(j *joint, e *servosim.Event) {
	over := e.After.Alarm&alarmOverload != 0 && e.After.Torque
	switch {
	case !over:
		j.over = false
	case !j.over:
		j.over, j.overAt, j.grip, j.load, j.refused = true, e.At, e.After.Aim, sign(e.After.Aim-e.After.Present), false
	case e.Data == nil || e.At.Sub(j.overAt) <= r.ticks(alarmTicks):
		j.grip = e.After.Aim // what the driver did before it could know
	case e.After.Aim == e.Before.Aim || j.load == 0:
	case j.load*(e.After.Aim-j.grip) > rounding:
		r.flag(e.At, Overload, j, "goal %d pushes further than the %d under which it was overloaded", e.After.Aim, j.grip)
		j.grip = e.After.Aim
	case j.asked && j.load*(j.wanted-j.grip) >= 0 && j.load*(e.After.Aim-j.grip) < -rounding:
		r.flag(e.At, Overload, j, "goal %d lets go what it holds at %d, and the policy wants %d", e.After.Aim, j.grip, j.wanted)
		j.load = 0
	}
}

// relief judges whether a goal that the policy wants, and that relieves, is taken
// up.
func (r *Referee) relief(j *joint) {
	if !j.over || j.refused || !j.asked || j.load == 0 || r.over || r.paused || j.load*(j.wanted-j.grip) >= -int(j.step) {
		return
	}
	since := max(j.wantedAt, j.overAt)
	if r.now.Sub(since) > reliefIn && j.load*(j.life.Aim-j.grip) > -rounding {
		j.refused = true
		r.flag(r.now, Overload, j, "the policy wants %d, which relieves it, and the goal stays at %d", j.wanted, j.life.Aim)
	}
}

func sign(v int) int {
	switch {
	case v > 0:
		return 1
	case v < 0:
		return -1
	}
	return 0
}
