package servo

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// Stats counts the events on an arm's bus since it was opened.
type Stats struct {
	Cycles       uint64   // calls of Read
	Lost         uint64   // positions that were requested and did not come
	Corrupt      uint64   // sequences of bytes that were no frame, and frames of servos to which no request was sent
	Late         uint64   // replies that came during a later request and were discarded
	Retries      uint64   // repeated transactions; a tick repeats at most one, and only if the reply can come in time
	Refused      uint64   // requests that a motor refused in its answer
	Alerts       uint64   // positions that came with a fault
	Doubted      uint64   // unused positions: the joint cannot have reached them since the reading before
	ClippedGoals uint64   // goals that Write limited to the joint's range or the wheels' speed
	RefusedGoals uint64   // calls of Write that sent nothing because of a NaN or an infinity
	FastReads    uint64   // cycles in which one merged reply brought all positions
	Fallbacks    uint64   // changes from fast sync reads to plain ones
	FastTries    uint64   // tries of a fast sync read after a fallback
	Cycle        *rt.Hist // durations of Read
}

// Add adds the counts of another arm to s, and replaces s.Cycle by t.Cycle.
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

// Read writes all motors' present positions into dst, in the robot's order and units; the places of
// a base's wheels hold the base's velocities. A motor that does not answer in time, or whose
// reading is implausible (see sight), keeps its last position in dst and has its bit set in stale.
//
// A lost reply adds at most lossMax, 2.4 ms. Read returns by the deadline, except when no tick has
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
	// a motor may have restarted in the gap although no reply is missing
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
// The travel is travelShare of the joint's velocity limit, at least travelLeast, times the time between the two
// readings, plus travelNoise. A longer time counts as travelPeriods ticks: after a silence a joint may be anywhere, so
// a distant position needs two readings. A settled position is a jump when its distance from the previous settled
// position is more than the travel in jumpShare times the time between the two.
const (
	travelShare   = 2.0                    // a servo that catches up exceeds the limit, and so may a hand
	travelLeast   = 360.0                  // degrees per second: the fastest of these servos turn that fast under load
	travelNoise   = 16                     // counts: noise and play
	travelPeriods = 2                      // ticks: one reply may be lost
	travelUnknown = 100 * time.Millisecond // longest time between two readings that counts when no period is set
	jumpShare     = 2                      // factor by which some servos turn faster without a load
	sightReads    = 5                      // largest number of reads in which OpenArm waits for two that agree
	turnSlack     = 512                    // counts outside its range that a joint under torque may be pushed
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
		c := &joints[i].scale
		s[i].speed = max(travelShare*r.Motors[i].MaxVelocity*c.unit(), travelLeast*c.steps/c.span)
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
	s.settled = !a.turnOff(i, raw) && (a.near(i, raw-before, at, now) || a.near(i, raw-a.raws[i], s.placeAt, now))
	if s.settled {
		if s.placeAt != 0 && !s.reaches(raw-a.raws[i], jumpShare*now.Sub(s.placeAt)) && !a.robot.Leader {
			a.jumped |= 1 << i
		}
		s.placeAt = now
	}
	return s.settled
}

// turnOff reports whether a position of joint i must be wrong: the joint has torque, the position is far outside the
// joint's range, and in another turn it would be about as near to the range, or nearer. The motor has lost a turn, or
// its replies are damaged. With goals near such a position the joint would drive to its end stop.
//
//rt:noalloc
func (a *Arm) turnOff(i, raw int) bool {
	j := &a.joints[i]
	return outside(raw, j.min, j.max) > turnSlack && a.health.torque.Has(i) &&
		OtherSide(a.units[i].model, raw, j.min, j.max)
}

// Jumped returns the joints whose position jumped in the newest Read: two readings agree on the position,
// although the joint cannot have moved so far since the position before. A leader's joints never jump.
//
//rt:noalloc
func (a *Arm) Jumped() robot.Joints { return a.jumped }

// reaches reports whether the joint can travel the distance way, in counts, in that time.
//
//rt:noalloc
func (s *sight) reaches(way int, in time.Duration) bool {
	return math.Abs(float64(way)) <= s.speed*in.Seconds()+travelNoise
}

// near reports whether joint i can have travelled the distance way, in counts, from since to now.
//
//rt:noalloc
func (a *Arm) near(i, way int, since, now rt.Instant) bool {
	most := cmp.Or(travelPeriods*a.period, travelUnknown)
	return since != 0 && a.sights[i].reaches(way, min(most, now.Sub(since)))
}

// takePositions stores the settled readings of the motors that have answered. doubted has the
// joints whose reading is not settled and was not stored. When no period is set, nothing is driven,
// and every reading is stored; so is every reading of a leader, whose joints a hand moves faster
// than any servo. Arming waits for a settled reading in these cases too.
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

// takeTurns corrects the turn of joints that have just been checked and have not restarted. If the reading is in
// another turn than assumed, the joint has moved: the next reading must then agree with this reading in its true turn.
// A position that needs no settled reading (see takePositions) is stored at once.
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

// unsettled returns the joints whose newest reading is not settled, or whose motor did not answer.
func (a *Arm) unsettled() (joints robot.Joints) {
	for i := range a.sights {
		if !a.sights[i].settled {
			joints |= 1 << i
		}
	}
	return joints
}

// findPlaces reads until two readings of every joint agree. When they do not, because the arm keeps
// moving, it stores the newest readings.
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

// Range returns the calibrated range of joint i in its unit, with low <= high. For a wheel it
// returns the limits of the base's velocity in the wheel's place.
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
		// The joint's motor may have restarted and forgotten its turns.
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

// Goals writes the joints' newest goals, from ArmStep or Write, into dst, in the joints' units.
//
//rt:noalloc
func (a *Arm) Goals(dst []float32) {
	for i := range a.joints {
		dst[i] = float32(a.joints[i].scale.unclamped(a.goals.raw[i]))
	}
	a.fillBase(dst, a.goals.raw)
}

// Write sends goals, in the robot's units, to the joints whose bit is set. No servo acknowledges them. A goal outside a
// joint's range is limited to the edge of the range, or to the joint's position when the joint itself is outside. The
// goals in the places of a base's wheels are the base's velocities. When a goal is NaN or infinite, Write sends
// nothing. The caller sets no bit for a limp joint: a goal switches the torque of some servos on.
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

// sendGoals writes a.goals.words, the goals of the joints, into a register of the servos a.goals.ids.
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

// inside returns the goal nearest to raw that is permitted for joint i: inside the joint's range,
// or no farther outside than the joint is now, and never beyond the servo's own limits.
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

// The wheels of a base are the last joints of an arm. Their motors are in velocity mode, and have no watchdog of their
// own: a wheel turns at its last goal velocity until it gets another one, or loses its torque. So a wheel gets the goal
// velocity 0 before its torque is switched on, when the arm is closed or made limp, and when its joint must hold.

// wheelMost is the highest velocity that a wheel can have, in counts per second; a reading beyond it
// is not used. The fastest STS has 110 rpm.
const wheelMost = 8000

// velocityAt returns the number of bytes from the present position to the present velocity in the
// motors' tables; one read covers both.
//
//rt:noalloc
func (a *armConst) velocityAt() int { return a.rows.velocity.Addr - a.rows.position.Addr }

// fillBase computes the base's velocities from the wheels' velocities in raws, and writes them into
// the wheels' places in dst.
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

// spin writes the goal velocities of wheels. A base moves only with all of its wheels: when the set joints has only
// some of the wheels, these wheels get the goal 0.
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

// Wheel returns the goal velocity and the present velocity of a joint that is a wheel, in counts per second.
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
