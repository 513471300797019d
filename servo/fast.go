package servo

import (
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/table"
)

const (
	fastTries   = 3                      // attempts of OpenArm to get a complete answer to a fast sync read
	fastTornMax = 3                      // cut replies in a row that end fast reads: a silent motor cuts every reply
	fastWait    = time.Second            // a fast read is tried after all plain reads were complete for this time
	fastWaitMax = time.Minute            // largest fastWait after doublings
	fastSlack   = 100 * time.Microsecond // least wait for a reply that comes a little later than tuning expects
)

// fastMode decides between the fast sync read, whose single reply ends at the first silent motor, and the plain sync
// read. A late reply looks as torn as a reply that a silent motor cuts off. So Read tries the fast read again when all
// plain reads were complete for the time wait.
type fastMode struct {
	known bool       // the motors' firmware has the fast sync read
	torn  int        // merged replies in a row that were not complete
	since rt.Instant // start of the fast reads; while reads are plain, start of the time in which all were complete
	// time of complete plain reads before a fast read is tried; doubles when fast reads fail within this time
	wait time.Duration

	reads, fallbacks, tries atomic.Uint64 // any thread may read them
}

// probeFast finds out whether the motors' firmware has the fast sync read.
func (a *Arm) probeFast() {
	if a.bus.protocol != table.Dynamixel2 {
		return
	}
	a.bus.setFast(a.positions, true)
	for range fastTries {
		if a.bus.gather(a.positions, ackTimeout, a.clock.Now().Add(2*ackTimeout)) == 0 {
			a.fast.known = true
			a.fast.since = a.clock.Now()
			a.fast.wait = fastWait
			return
		}
		a.bus.waitQuiet()
		if a.bus.isCanceled() {
			break
		}
	}
	a.bus.setFast(a.positions, false)
	if a.readPositions() != nil {
		a.bus.drainNext = drainCount // the tick reports the missing motors
	}
}

// readAll requests all positions, and repeats the request once to the motors without an answer.
//
//rt:noalloc
func (a *Arm) readAll(now, deadline rt.Instant) (stale uint32) {
	g, m := a.positions, &a.fast
	if m.known && !g.fast && now.Sub(m.since) >= m.wait {
		return a.retryFast(now, deadline)
	}
	first := a.bus.gather(g, lossWait, deadline)
	if stale = first; stale != 0 {
		stale = a.bus.retryMissing(g, stale, deadline)
	}
	switch {
	case !g.fast && stale != 0:
		m.since = now
	case !g.fast:
	case first == 0:
		m.torn = 0
		a.fast.reads.Add(1)
	default:
		if m.torn++; m.torn >= fastTornMax {
			a.fast.fallbacks.Add(1)
			a.leaveFast(now)
		}
	}
	return stale
}

// retryFast tries the fast read once, and keeps enough time for a plain read before the deadline.
// In a tick that is too short for both reads it may get no positions.
//
//rt:noalloc
func (a *Arm) retryFast(now, deadline rt.Instant) (stale uint32) {
	b := a.bus
	g := a.positions
	m := &a.fast
	plain := g.wire + b.replyDelay // the time that readMissing needs
	b.setFast(g, true)
	a.fast.tries.Add(1)
	m.since, m.torn = now, 0
	due := b.due(g)
	patience := min(lossWait, lossMax-due, (deadline.Sub(now)-due-plain)/2)
	if stale = b.gather(g, max(fastSlack, patience), deadline); stale == 0 {
		a.fast.reads.Add(1)
		return 0
	}
	a.leaveFast(now)
	return b.readMissing(g, stale, deadline)
}

//rt:noalloc
func (a *Arm) leaveFast(now rt.Instant) {
	m := &a.fast
	if now.Sub(m.since) >= m.wait {
		m.wait = fastWait
	} else {
		m.wait = min(2*m.wait, fastWaitMax)
	}
	m.since = now
	a.bus.setFast(a.positions, false)
}
