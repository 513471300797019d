package rt

import "time"

// Wait is how long a step waited for the bus: as long as it meant to, or as it
// took until the thread ran again.
type Wait struct{ Meant, Took time.Duration }

// Add counts another wait.
//
//rt:noalloc
func (w *Wait) Add(o Wait) { w.Meant, w.Took = w.Meant+o.Meant, w.Took+o.Took }

// Overrun is a tick that ended after the next deadline. It is Own when what it
// did, computing and meaning to wait for the bus, is longer than a period without
// what the host took from the machine around it. A guest's kernel books a pause by
// its host as CPU time of whichever thread was on the CPU, or was about to sleep
// or to wake there; so computing is CPU time, but not in a wait.
type Overrun struct {
	CPU, BusWait time.Duration
	Stolen       time.Duration // by the host around it, of what earlier ones left
	Own          bool
}

const (
	// stealEvery is how often the loop notes the host's steal, so that an overrun
	// can be held against what was taken around it. Reading it costs tens of
	// microseconds, at the end of a tick.
	stealEvery = 100 * time.Millisecond

	// stealSeldom is how often while the host has taken nothing since the machine
	// began, as on one that is not virtual: there a read for every second is enough
	// to see it begin. The first steal of all may so excuse an overrun that came up
	// to a second after it.
	stealSeldom = time.Second

	// stealLag is how long an overrun waits to be judged: a guest's kernel counts
	// the steal of a CPU at its next timer interrupt, and an idle one has none.
	stealLag = 100 * time.Millisecond

	// stealGrain is the unit in which the kernel tells the steal, rounded down: of a
	// difference as much may be missing.
	stealGrain = 10 * time.Millisecond

	// overrunsMax is how many wait at most; one more, and they are judged at once.
	overrunsMax = 32
)

// referee tells the loop's own overruns from its host's. It holds those that wait
// for judgement against what the host took from just before the first to stealLag
// after the last: one pause excuses as much as it took, and no more.
//
// Owner: the loop's thread.
type referee struct {
	period time.Duration
	steal  func() time.Duration

	seen    time.Duration // at noted
	noted   Instant
	waiting [overrunsMax]Overrun
	n       int
	last    Instant // of the newest that waits
}

//rt:noalloc
func (r *referee) begin(now Instant) { r.seen, r.noted = r.steal(), now }

// late takes an overrun in.
//
//rt:noalloc
func (r *referee) late(o Overrun, now Instant) {
	r.waiting[r.n] = o
	r.n++
	r.last = now
}

// due says whether judge has something to do.
//
//rt:noalloc
func (r *referee) due(now Instant) bool {
	switch {
	case r.n == 0 && r.seen == 0:
		return now.Sub(r.noted) >= stealSeldom
	case r.n == 0:
		return now.Sub(r.noted) >= stealEvery
	}
	return r.n == overrunsMax || now.Sub(r.last) >= stealLag
}

// verdict is what judge has found of the overruns that waited.
type verdict struct {
	own, host uint64
	excused   time.Duration // beyond their periods, of the host's
	worst     Overrun       // of the loop's own
}

// judge notes the steal and tells the waiting overruns apart.
//
//rt:noalloc
func (r *referee) judge(now Instant) (v verdict) {
	steal := r.steal()
	excuse := steal - r.seen
	if excuse > 0 {
		excuse += stealGrain
	}
	for _, o := range r.waiting[:r.n] {
		over := o.CPU + o.BusWait - r.period
		if over <= excuse {
			excuse -= max(0, over)
			v.excused += max(0, over)
			v.host++
			continue
		}
		v.own++
		if o.CPU+o.BusWait > v.worst.CPU+v.worst.BusWait {
			v.worst = o
			v.worst.Stolen, v.worst.Own = excuse, true
		}
	}
	r.seen, r.noted, r.n = steal, now, 0
	return v
}
