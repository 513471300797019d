package servo

import (
	"math/bits"
	"sync/atomic"

	"edgert/rt"
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
	s.ClippedGoals += t.ClippedGoals
	s.RefusedGoals += t.RefusedGoals
	s.FastReads += t.FastReads
	s.Fallbacks += t.Fallbacks
	s.FastTries += t.FastTries
	s.Cycle = t.Cycle
}

// counts are those of Stats; any thread may read them.
type counts struct {
	cycles, losses, alerts, clipped, refused atomic.Uint64
	cycle                                    *rt.Hist
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
		ClippedGoals: a.counts.clipped.Load(),
		RefusedGoals: a.counts.refused.Load(),
		FastReads:    a.fast.reads.Load(),
		Fallbacks:    a.fast.fallbacks.Load(),
		FastTries:    a.fast.tries.Load(),
		Cycle:        a.counts.cycle,
	}
}

// Read writes all motors' present positions into dst, in the robot's order and units. A
// motor that does not answer in time keeps its last position and has its bit set in
// stale.
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
	for i := range a.joints {
		if stale&(1<<i) == 0 {
			a.storePosition(i)
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
	a.health.monitor(stale, deadline)
	for i := range a.joints {
		if (unchecked&^a.health.unchecked&^stale)&(1<<i) != 0 { // its motor has not restarted
			a.storePosition(i)
			dst[i] = a.present[i]
		}
	}
	return stale
}

// Range returns the calibrated range of motor i in its unit, low before high.
func (a *Arm) Range(i int) (low, high float64) {
	j := &a.joints[i]
	low, high = j.scale.value(j.min), j.scale.value(j.max)
	return min(low, high), max(low, high)
}

//rt:noalloc
func (a *Arm) storePosition(i int) {
	j := &a.joints[i]
	raw := a.rawPosition(i) + j.shift
	if a.health.unchecked&(1<<i) != 0 { // its motor may have restarted, and forgotten its turns
		raw = InTurn(raw, a.raws[i]-j.turn/2, a.raws[i]+j.turn/2, j.turn)
	}
	a.raws[i] = raw
	a.present[i] = float32(j.scale.value(raw))
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
