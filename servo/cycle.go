package servo

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// Stats counts what happened on an arm's bus since it was opened.
type Stats struct {
	Cycles       uint64   // calls of Read
	Lost         uint64   // positions that were requested and did not come
	Corrupt      uint64   // runs of bytes that were no frame, and frames of servos to which no request was sent
	Late         uint64   // replies that came so late that the next cycle discarded them
	Retries      uint64   // repeated transactions; on the tick at most one per cycle, inside its budget
	Refused      uint64   // requests that a motor refused in its answer
	Alerts       uint64   // positions that came with a fault
	Doubted      uint64   // positions that the joint cannot have reached since the reading before; they are not used
	ClippedGoals uint64   // positions limited to the joint's range
	RefusedGoals uint64   // calls of Write that sent nothing because of a NaN or an infinity
	FastReads    uint64   // cycles whose positions came complete in one merged reply
	Fallbacks    uint64   // changes from fast sync reads to plain ones
	FastTries    uint64   // later tries of a fast sync read
	Cycle        *rt.Hist // durations of Read
}

// Add adds the counts of another arm and takes its Cycle.
//
//rt:noalloc
func (s *Stats) Add(t Stats) {
	s.Cycles += t.Cycles
	s.Lost += t.Lost
	s.Corrupt += t.Corrupt
	s.Late += t.Late
	s.Retries += t.Retries
	s.Refused += t.Refused
	s.Alerts += t.Alerts
	s.Doubted += t.Doubted
	s.ClippedGoals += t.ClippedGoals
	s.RefusedGoals += t.RefusedGoals
	s.FastReads += t.FastReads
	s.Fallbacks += t.Fallbacks
	s.FastTries += t.FastTries
	s.Cycle = t.Cycle
}

// counts are the counters of Stats; any thread may read them.
type counts struct {
	cycles, losses, alerts, doubted, clipped, refused atomic.Uint64
	cycle                                             *rt.Hist
}

// Stats returns the counters. Any thread may call it.
//
//rt:noalloc
func (a *Arm) Stats() Stats {
	return Stats{
		Cycles:       a.counts.cycles.Load(),
		Lost:         a.counts.losses.Load(),
		Corrupt:      a.bus.corrupt.Load(),
		Late:         a.bus.late.Load(),
		Retries:      a.bus.retries.Load(),
		Refused:      a.bus.refused.Load(),
		Alerts:       a.counts.alerts.Load(),
		Doubted:      a.counts.doubted.Load(),
		ClippedGoals: a.counts.clipped.Load(),
		RefusedGoals: a.counts.refused.Load(),
		FastReads:    a.fast.reads.Load(),
		Fallbacks:    a.fast.fallbacks.Load(),
		FastTries:    a.fast.tries.Load(),
		Cycle:        a.counts.cycle,
	}
}

// Read writes all motors' present positions into dst, in the robot's order and units; a base's
// velocities are in the places of its wheels. A motor that
// does not answer in time, or whose reading is implausible (see sight), keeps its last position and
// has its bit set in stale.
//
// A lost reply adds at most lossMax, 2.4 ms. Read returns at the deadline, except when no tick has
// the time to read a health window, see windowDeadline.
//
//rt:noalloc
func (a *Arm) Read(dst []float32, deadline rt.Instant) (stale robot.Joints) {
	if len(dst) != len(a.joints) {
		panic("servo: Read wants room for one position per motor")
	}
	start := a.clock.Now()
	a.bus.waited, a.bus.retried = rt.Wait{}, false
	a.health.checkBusWatchdog(start)
	// a motor may have restarted in the gap, without a reply missing
	if gap := start.Sub(a.lastRead); a.lastRead != 0 && gap >= bootMin {
		since := start
		if gap >= longGap {
			since = a.lastRead
		}
		a.health.recheckSince(since)
	}
	a.lastRead = start
	stale = robot.Joints(a.readAll(start, deadline))
	unchecked := a.health.unchecked
	doubted := a.takePositions(stale, a.clock.Now())
	for i := range a.joints {
		if !stale.Has(i) {
			a.faults[i] = a.bus.faultOf(a.positions.errs[i])
			if a.faults[i] != 0 {
				a.counts.alerts.Add(1)
			}
		}
		dst[i] = a.present(i)
	}
	a.counts.cycles.Add(1)
	a.counts.losses.Add(uint64(stale.Len()))
	a.counts.cycle.Record(a.clock.Now().Sub(start))
	a.counts.doubted.Add(uint64(doubted.Len()))
	a.health.monitor(stale, deadline)
	a.takeTurns(unchecked&^a.health.unchecked&^stale, dst)
	a.fillBase(dst, a.raws)
	return stale | doubted
}

// A reading is settled, and its position is used, when it agrees with the reading before it, or
// with the newest settled position, within the travel that the joint can have made since: one
// damaged reply in 256 passes its checksum, and a loose contact damages many.
//
// The travel is travelShare of the joint's velocity limit, at least travelLeast, times the time
// between the two readings, plus travelNoise. The time is at most travelPeriods ticks: after a
// silence a joint may be anywhere, so another position needs two readings. A settled position that is
// more than jumpShare times the travel of the whole time away is a jump.
const (
	travelShare   = 2.0                    // a servo that catches up runs at its own full speed, and a hand may push it
	travelLeast   = 360.0                  // degrees per second: the fastest of these servos turn that fast under load
	travelNoise   = 16                     // counts: noise and play
	travelPeriods = 2                      // ticks: one reply may be lost
	travelUnknown = 100 * time.Millisecond // limit of the time where no period is known
	jumpShare     = 2                      // times that travel: some servos turn so fast without a load
	sightReads    = 5                      // reads of OpenArm until two agree
)

// sight decides whether the newest reading of one joint is plausible, from its earlier readings.
type sight struct {
	speed   float64    // counts per second that the joint may travel
	reading int        // the newest reading, raw
	readAt  rt.Instant // time of the newest reading; 0: no reading yet
	placeAt rt.Instant // time of the newest settled position; 0: no position yet
	settled bool       // the newest reading is settled
}

// newSights returns the sights of joints without a reading.
func newSights(r robot.Robot, joints []joint) []sight {
	s := make([]sight, len(joints))
	for i := range joints {
		m, c := r.Motors[i], &joints[i].scale
		unit := c.steps / c.span // counts of one unit
		switch c.mode {
		case robot.Range0100:
			unit = (c.max - c.min) / 100
		case robot.RangeM100:
			unit = (c.max - c.min) / 200
		}
		s[i].speed = max(travelShare*m.MaxVelocity*math.Abs(unit), travelLeast*c.steps/c.span)
	}
	return s
}

// agree stores a reading of joint i and reports whether it is settled.
//
//rt:noalloc
func (a *Arm) agree(i, raw int, now rt.Instant) bool {
	s := &a.sights[i]
	before, at := s.reading, s.readAt
	s.reading, s.readAt = raw, now
	if a.wheels.Has(i) {
		s.settled = raw <= wheelMost && raw >= -wheelMost
		return s.settled
	}
	s.settled = a.near(i, raw-before, at, now) || a.near(i, raw-a.raws[i], s.placeAt, now)
	if s.settled {
		if s.placeAt != 0 && !s.reaches(raw-a.raws[i], jumpShare*now.Sub(s.placeAt)) && !a.robot.Leader {
			a.jumped |= 1 << i
		}
		s.placeAt = now
	}
	return s.settled
}

// Jumped returns the joints whose position is used since the newest Read, because two readings
// agree, although no joint can have moved so far since the position before. A leader has none.
//
//rt:noalloc
func (a *Arm) Jumped() robot.Joints { return a.jumped }

// reaches reports whether the joint can have travelled that many counts in a time.
//
//rt:noalloc
func (s *sight) reaches(way int, in time.Duration) bool {
	return math.Abs(float64(way)) <= s.speed*in.Seconds()+travelNoise
}

// near reports whether joint i can have travelled that many counts since an instant.
//
//rt:noalloc
func (a *Arm) near(i, way int, since, now rt.Instant) bool {
	most := travelUnknown
	if a.period > 0 {
		most = travelPeriods * a.period
	}
	return since != 0 && a.sights[i].reaches(way, min(most, now.Sub(since)))
}

// takePositions stores the positions of the motors that have answered, and returns the joints whose
// reading is not settled and was not stored. Every reading is stored where no period is known,
// because nothing is driven then, and on a leader, whose joints a hand moves faster than any servo.
// Arming waits for a settled reading there too.
//
//rt:noalloc
func (a *Arm) takePositions(stale robot.Joints, now rt.Instant) (doubted robot.Joints) {
	a.jumped = 0
	for i := range a.joints {
		if stale.Has(i) {
			a.sights[i].settled = false
			continue
		}
		if a.agree(i, a.place(i), now) || a.robot.Leader || a.period == 0 {
			a.storePosition(i)
			continue
		}
		doubted |= 1 << i
	}
	return doubted
}

// takeTurns stores the positions of joints that have just been checked and have not restarted, in
// their true turn. When that differs from the assumed turn, the joint has moved, and its next
// reading can be settled.
//
//rt:noalloc
func (a *Arm) takeTurns(joints robot.Joints, dst []float32) {
	for i := range a.joints {
		raw := a.place(i)
		if !joints.Has(i) || raw == a.raws[i] {
			continue
		}
		a.sights[i].reading = raw
		if a.robot.Leader || a.period == 0 {
			a.storePosition(i)
			dst[i] = a.present(i)
		}
	}
}

// unsettled returns the joints whose newest reading is not settled, or that did not answer.
func (a *Arm) unsettled() (joints robot.Joints) {
	for i := range a.sights {
		if !a.sights[i].settled {
			joints |= 1 << i
		}
	}
	return joints
}

// findPlaces reads until two readings of every joint agree. For an arm that keeps moving it stores
// the newest readings.
func (a *Arm) findPlaces() error {
	for range sightReads {
		if err := a.readPositions(); err != nil {
			return err
		}
		if a.takePositions(0, a.clock.Now()); a.unsettled() == 0 {
			return nil
		}
	}
	for i := range a.joints {
		a.storePosition(i)
	}
	return nil
}

// Range returns the calibrated range of motor i in its unit, low <= high; in place of a wheel, the
// limits of a velocity of its base.
func (a *Arm) Range(i int) (low, high float64) {
	if a.wheels.Has(i) {
		most := a.robot.Base.Speed[i-a.wheels.First()]
		return -most, most
	}
	j := &a.joints[i]
	low, high = j.scale.value(j.min), j.scale.value(j.max)
	return min(low, high), max(low, high)
}

//rt:noalloc
func (a *Arm) storePosition(i int) { a.raws[i] = a.place(i) }

// present returns the newest known position of joint i, in its unit.
//
//rt:noalloc
func (a *Arm) present(i int) float32 { return float32(a.joints[i].scale.value(a.raws[i])) }

// place returns the newest reading of joint i, in its turn.
//
//rt:noalloc
func (a *Arm) place(i int) int {
	j := &a.joints[i]
	raw := a.rawPosition(i) + j.shift
	if a.health.unchecked.Has(i) && outside(raw, j.min, j.max) > RangeSlack {
		// Its motor may have restarted and forgotten its turns.
		raw = InTurn(raw, a.raws[i]-j.turn/2, a.raws[i]+j.turn/2, j.turn)
	}
	return raw
}

// Raws writes the joints' positions after a Read into dst, in encoder counts and in the turn that
// fits their ranges.
//
//rt:noalloc
func (a *Arm) Raws(dst []int) { copy(dst, a.raws) }

// Positions writes the joints' positions after a Read into dst, in their units. Unlike Read, which
// clamps as LeRobot does, it includes positions outside the calibrated range.
//
//rt:noalloc
func (a *Arm) Positions(dst []float32) {
	for i := range a.joints {
		dst[i] = float32(a.joints[i].scale.unclamped(a.raws[i]))
	}
	a.fillBase(dst, a.raws)
}

// Goals writes the last goals of arming or Write into dst, in the joints' units.
//
//rt:noalloc
func (a *Arm) Goals(dst []float32) {
	for i := range a.joints {
		dst[i] = float32(a.joints[i].scale.unclamped(a.goals.raw[i]))
	}
	a.fillBase(dst, a.goals.raw)
}

// Write sends goals, in the robot's units, to the joints whose bit is set. No servo acknowledges
// it. A goal outside a joint's range is limited to the edge of the range, or to the joint's
// position when that is outside too. The goals in the places of a base's wheels are its velocities.
// With a NaN or an infinity it sends nothing. Limp joints must
// have no bit: a goal switches the torque of some servos on.
//
//rt:noalloc
func (a *Arm) Write(goal []float32, joints robot.Joints) {
	if len(goal) != len(a.joints) {
		panic("servo: Write wants one goal per motor")
	}
	a.goals.ids, a.goals.words = a.goals.ids[:0], a.goals.words[:0]
	for i, v := range goal {
		if joints.Has(i) && v-v != 0 { // true only for NaN and infinities
			a.counts.refused.Add(1)
			return
		}
	}
	for i, v := range goal {
		if !joints.Has(i) || a.wheels.Has(i) {
			continue
		}
		raw := a.joints[i].scale.raw(float64(v))
		inside := a.inside(i, raw)
		if inside != raw {
			a.counts.clipped.Add(1)
		}
		a.goals.ids, a.goals.words = append(a.goals.ids, a.all[i]), append(a.goals.words, inside-a.joints[i].shift)
	}
	a.sendGoals(a.rows.goal, joints&^a.wheels)
	if joints &= a.wheels; joints != 0 {
		a.spin(goal, joints)
	}
}

// sendGoals writes the goals of joints, which are in a.goals, into a register.
//
//rt:noalloc
func (a *Arm) sendGoals(row table.Row, joints robot.Joints) {
	if len(a.goals.ids) == 0 {
		return
	}
	for i, k := 0, 0; i < len(a.goals.raw); i++ {
		if joints.Has(i) {
			a.goals.raw[i], k = a.goals.words[k]+a.joints[i].shift, k+1
		}
	}
	a.bus.appendSyncWrite(row, a.goals.ids, a.goals.words)
	a.bus.send(a.bus.tx)
}

// inside returns the goal nearest to raw that joint i may get: inside its range, or no farther
// outside than the joint is, and never beyond the servo's own limits.
//
//rt:noalloc
func (a *Arm) inside(i, raw int) int {
	j, at := &a.joints[i], a.raws[i]
	raw = min(max(j.max, at), max(min(j.min, at), raw))
	return min(j.top, max(j.low, raw))
}

// BusWait returns how long the last Read waited for the bus.
//
//rt:noalloc
func (a *Arm) BusWait() rt.Wait { return a.bus.waited }

// Lost reports whether the port has failed for good, as after a pulled plug. Read then returns at
// once with every motor stale.
//
//rt:noalloc
func (a *Arm) Lost() bool { return a.bus.lost }

// The wheels of a base are the last joints of an arm. Their motors are in velocity mode, and have no
// watchdog of their own: a wheel turns at its last goal velocity until it gets another one, or loses
// its torque. So every wheel gets 0 before its torque, at the end, and where its joint holds.

// wheelMost is the highest velocity that a wheel can have, in counts per second; a reading beyond it
// is not used. The fastest STS has 110 rpm.
const wheelMost = 8000

// velocityAt returns the distance of the present velocity from the present position in the motors'
// tables, which one read covers.
//
//rt:noalloc
func (a *armConst) velocityAt() int { return a.rows.velocity.Addr - a.rows.position.Addr }

// fillBase writes the base's velocities at wheel velocities into the wheels' places of dst.
//
//rt:noalloc
func (a *Arm) fillBase(dst []float32, raws []int) {
	if a.wheels == 0 {
		return
	}
	first := a.wheels.First()
	for axis, v := range a.base.Body([robot.Axes]int(raws[first : first+robot.Axes])) {
		dst[first+axis] = float32(v)
	}
}

// spin writes the goal velocities of wheels. A base moves only with all of its wheels; with a part
// of them, these get 0.
//
//rt:noalloc
func (a *Arm) spin(goal []float32, joints robot.Joints) {
	first := a.wheels.First()
	var body [robot.Axes]float64
	if joints == a.wheels {
		for axis := range body {
			body[axis] = float64(goal[first+axis])
		}
	}
	raw, limited := a.base.Wheels(body)
	if limited {
		a.counts.clipped.Add(1)
	}
	a.goals.ids, a.goals.words = a.goals.ids[:0], a.goals.words[:0]
	for axis, v := range raw {
		if joints.Has(first + axis) {
			a.goals.ids, a.goals.words = append(a.goals.ids, a.all[first+axis]), append(a.goals.words, v)
		}
	}
	a.sendGoals(a.rows.spin, joints)
}

// Wheel returns the goal and the present velocity of a joint that is a wheel, in counts per second.
//
//rt:noalloc
func (a *Arm) Wheel(joint int) (goal, present int) { return a.goals.raw[joint], a.raws[joint] }

// Wheels returns the joints that are wheels of a base.
func (a *Arm) Wheels() robot.Joints { return a.wheels }

// Base returns the conversions of the base's velocities; nil without a base.
func (a *Arm) Base() *robot.Kinematics {
	if a.wheels == 0 {
		return nil
	}
	return &a.base
}
