package servo

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"edgert/rt"
	"edgert/servo/robot"
)

// Stats counts what happened on an arm's bus since it was opened.
type Stats struct {
	Cycles       uint64   // calls of Read
	Lost         uint64   // positions that were asked for and did not come
	Corrupt      uint64   // runs of bytes that were no frame, and frames of servos that were not asked
	Late         uint64   // replies that came so late that the next cycle had to discard them
	Retries      uint64   // repeated transactions; on the tick at most one per cycle, inside its budget
	Refused      uint64   // requests that a motor answered but would not do
	Alerts       uint64   // positions that came with a fault
	Doubted      uint64   // positions that no joint can have reached since the reading before: they do not count
	ClippedGoals uint64   // positions limited to the joint's range
	RefusedGoals uint64   // whole goals not sent because of a NaN or an infinity
	FastReads    uint64   // cycles whose positions one merged reply brought, whole
	Fallbacks    uint64   // times that fast sync reads gave way to plain ones
	FastTries    uint64   // times that a fast sync read was tried again after that
	Cycle        *rt.Hist // how long Read took
}

// Add adds the counts of another arm; the cycle times are the newer's.
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

// counts are those of Stats; any thread may read them.
type counts struct {
	cycles, losses, alerts, doubted, clipped, refused atomic.Uint64
	cycle                                             *rt.Hist
}

// Stats may be called by any thread.
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

// Read writes all motors' present positions into dst, in the robot's order and units. A
// motor that does not answer in time, or whose position does not count (see sight), keeps
// its last position and has its bit set in stale.
//
// A lost reply adds at most lossMax, 2.4 ms; at the deadline it returns, but for a window
// of a motor where no tick has the time for one, see windowDeadline.
//
//rt:noalloc
func (a *Arm) Read(dst []float32, deadline rt.Instant) (stale uint32) {
	if len(dst) != len(a.joints) {
		panic("servo: Read wants room for one position per motor")
	}
	start := a.clock.Now()
	a.bus.waited, a.bus.retried = rt.Wait{}, false
	a.health.checkBusWatchdog(start)
	if gap := start.Sub(a.lastRead); a.lastRead != 0 && gap >= bootMin { // a motor may have restarted since, and missed nothing
		since := start
		if gap >= longGap {
			since = a.lastRead
		}
		a.health.recheckSince(since)
	}
	a.lastRead = start
	stale = a.readAll(start, deadline)
	unchecked := a.health.unchecked
	doubted := a.takePositions(stale, a.clock.Now())
	for i := range a.joints {
		if stale&(1<<i) == 0 {
			a.faults[i] = a.bus.faultOf(a.positions.errs[i])
			if a.faults[i] != 0 {
				a.counts.alerts.Add(1)
			}
		}
		dst[i] = a.present[i]
	}
	a.counts.cycles.Add(1)
	a.counts.losses.Add(uint64(bits.OnesCount32(stale)))
	a.counts.cycle.Record(a.clock.Now().Sub(start))
	a.counts.doubted.Add(uint64(bits.OnesCount32(doubted)))
	a.health.monitor(stale, deadline)
	a.takeTurns(unchecked&^a.health.unchecked&^stale, dst)
	return stale | doubted
}

// A position counts when it agrees with the reading before it, or with the newest place
// that counted, within the travel that the joint can have made since: one damaged reply in
// 256 passes its checksum, and a contact that comes back damages many.
//
// The travel is travelShare of the joint's velocity limit, at least travelLeast, times the
// time between the two readings, plus travelNoise. The time counts as travelPeriods at most:
// after a silence a joint may have gone anywhere, so that another place needs two readings.
const (
	travelShare   = 2.0                    // a servo that catches up runs at its own full speed, and hands push
	travelLeast   = 360.0                  // degrees per second: what the fastest of these servos turn with a load
	travelNoise   = 16                     // counts: noise and play
	travelPeriods = 2                      // one reply may be lost
	travelUnknown = 100 * time.Millisecond // the time that counts at most where no period is known
	sightReads    = 5                      // reads that OpenArm takes until two agree
)

// sight is what the newest readings of one joint say.
type sight struct {
	speed   float64    // counts per second that it may travel
	reading int        // the newest, raw
	readAt  rt.Instant // 0: there is none
	placeAt rt.Instant // when the place that counts was read; 0: there is none
	settled bool       // the newest reading counted
}

// newSights returns those of joints that have not been read.
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

// agree takes a reading of joint i and reports whether it counts.
//
//rt:noalloc
func (a *Arm) agree(i, raw int, now rt.Instant) bool {
	s := &a.sights[i]
	before, at := s.reading, s.readAt
	s.reading, s.readAt = raw, now
	s.settled = a.near(i, raw-before, at, now) || a.near(i, raw-a.raws[i], s.placeAt, now)
	if s.settled {
		s.placeAt = now
	}
	return s.settled
}

// near reports whether joint i can have travelled so many counts since an instant.
//
//rt:noalloc
func (a *Arm) near(i, way int, since, now rt.Instant) bool {
	most := travelUnknown
	if a.period > 0 {
		most = travelPeriods * a.period
	}
	travel := a.sights[i].speed*min(most, now.Sub(since)).Seconds() + travelNoise
	return since != 0 && math.Abs(float64(way)) <= travel
}

// takePositions takes over the positions of the motors that have answered, and returns the
// joints whose position does not count. Where no period is known nothing is driven, and a
// leader's joint is moved by a hand, faster than any servo: these are taken over all the
// same, but arming waits for two that agree there, too.
//
//rt:noalloc
func (a *Arm) takePositions(stale uint32, now rt.Instant) (doubted uint32) {
	for i := range a.joints {
		if stale&(1<<i) != 0 {
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

// takeTurns takes over the turns of joints whose motors were found not to have restarted. One
// that is in another turn than it seemed has moved, and counts with the next reading.
//
//rt:noalloc
func (a *Arm) takeTurns(joints uint32, dst []float32) {
	for i := range a.joints {
		raw := a.place(i)
		if joints&(1<<i) == 0 || raw == a.raws[i] {
			continue
		}
		a.sights[i].reading = raw
		if a.robot.Leader || a.period == 0 {
			a.storePosition(i)
			dst[i] = a.present[i]
		}
	}
}

// unsettled returns the joints whose newest reading does not count, or that did not answer.
func (a *Arm) unsettled() (joints uint32) {
	for i := range a.sights {
		if !a.sights[i].settled {
			joints |= 1 << i
		}
	}
	return joints
}

// findPlaces reads until two readings of every joint agree. An arm that is moved all the
// while has the newest ones.
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

// Range returns the calibrated range of motor i in its unit, low before high.
func (a *Arm) Range(i int) (low, high float64) {
	j := &a.joints[i]
	low, high = j.scale.value(j.min), j.scale.value(j.max)
	return min(low, high), max(low, high)
}

//rt:noalloc
func (a *Arm) storePosition(i int) {
	a.raws[i] = a.place(i)
	a.present[i] = float32(a.joints[i].scale.value(a.raws[i]))
}

// place is the newest reading of joint i, in its turn.
//
//rt:noalloc
func (a *Arm) place(i int) int {
	j := &a.joints[i]
	raw := a.rawPosition(i) + j.shift
	if a.health.unchecked&(1<<i) != 0 && outside(raw, j.min, j.max) > RangeSlack {
		// Its motor may have restarted, and forgotten its turns.
		raw = InTurn(raw, a.raws[i]-j.turn/2, a.raws[i]+j.turn/2, j.turn)
	}
	return raw
}

// Raws writes into dst where the joints are, in encoder counts and in the turn that fits
// their ranges, after a Read.
//
//rt:noalloc
func (a *Arm) Raws(dst []int) { copy(dst, a.raws) }

// Positions writes into dst where the joints are, in their units, after a Read, also
// where they lie outside their calibrated range; Read clamps as LeRobot does.
//
//rt:noalloc
func (a *Arm) Positions(dst []float32) {
	for i := range a.joints {
		dst[i] = float32(a.joints[i].scale.unclamped(a.raws[i]))
	}
}

// Goals writes into dst what arming or Write gave the joints last, in their units.
//
//rt:noalloc
func (a *Arm) Goals(dst []float32) {
	for i := range a.joints {
		dst[i] = float32(a.joints[i].scale.unclamped(a.goals.raw[i]))
	}
}

// Write sends goals, in the robot's units, to the joints whose bit is set; none answers.
// A goal outside a joint's range stops at its edge, or where the joint is when that lies
// outside too. With a NaN or an infinity nothing is sent. Limp joints must have no bit: a
// goal switches the torque of some servos on.
//
//rt:noalloc
func (a *Arm) Write(goal []float32, joints uint32) {
	if len(goal) != len(a.joints) {
		panic("servo: Write wants one goal per motor")
	}
	a.goals.ids, a.goals.words = a.goals.ids[:0], a.goals.words[:0]
	for i, v := range goal {
		if joints&(1<<i) == 0 {
			continue
		}
		if v-v != 0 { // true for NaN and infinities only
			a.counts.refused.Add(1)
			return
		}
		raw := a.joints[i].scale.raw(float64(v))
		inside := a.inside(i, raw)
		if inside != raw {
			a.counts.clipped.Add(1)
		}
		a.goals.ids, a.goals.words = append(a.goals.ids, a.ids[i]), append(a.goals.words, inside-a.joints[i].shift)
	}
	if len(a.goals.ids) == 0 {
		return
	}
	for i, k := 0, 0; i < len(a.goals.raw); i++ {
		if joints&(1<<i) != 0 {
			a.goals.raw[i], k = a.goals.words[k]+a.joints[i].shift, k+1
		}
	}
	a.bus.appendSyncWrite(a.rows.goal, a.goals.ids, a.goals.words)
	a.bus.send(a.bus.tx)
}

// inside is the goal nearest to raw that joint i may be given: in its range, or not
// beyond where it is outside, and never beyond the servo's own limits.
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

// Lost reports whether the port has failed for good, as after a pulled plug.
// Read then returns at once with every motor stale.
//
//rt:noalloc
func (a *Arm) Lost() bool { return a.bus.lost }
