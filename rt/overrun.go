package rt

import "time"

// Wait is how long a step waited for I/O. Meant is the time until the reply came or the wait's deadline passed. Took is
// the time until the thread ran again.
type Wait struct{ Meant, Took time.Duration }

// Add counts another wait.
//
//rt:noalloc
func (w *Wait) Add(o Wait) { w.Meant, w.Took = w.Meant+o.Meant, w.Took+o.Took }

// Overrun is a tick that ended after the next deadline. It is the loop's Own if CPU and IOWait together, less the time
// that the host stole, exceed a period. CPU excludes the CPU time during waits. A guest's kernel accounts a pause by
// its host as CPU time of the thread that sleeps or wakes.
type Overrun struct {
	CPU, IOWait time.Duration
	Stolen      time.Duration // time stolen around the overrun, less the time that has excused earlier overruns
	Own         bool
}

const (
	// stealInterval is the time between two readings of the host's steal time. A reading takes tens of us.
	stealInterval = 100 * time.Millisecond

	// stealIdleInterval is the time between two readings while no time was stolen since boot. So the first stolen time
	// may excuse an overrun up to a second before the reading.
	stealIdleInterval = time.Second

	// stealLag is how long an overrun waits to be classified: a guest's kernel accounts the
	// steal of a CPU at its next timer interrupt.
	stealLag = 100 * time.Millisecond

	// stealUnit is the unit in which the kernel counts steal, rounded down: a difference of two readings may be too
	// small by up to a unit.
	stealUnit = 10 * time.Millisecond

	// overrunsMax is the largest number of waiting overruns. When it is reached, the loop classifies them at once.
	overrunsMax = 32
)

// overrunClassifier separates the loop's own overruns from its host's. The time that the host stole between two
// readings excuses overruns of the same total length. The first reading is before the first overrun, and the second is
// stealLag after the last one, or at once when overrunsMax overruns wait.
//
// Owner: the loop's thread.
type overrunClassifier struct {
	period time.Duration
	steal  func() time.Duration

	stolen  time.Duration // steal at readAt
	readAt  Instant
	waiting [overrunsMax]Overrun
	n       int
	newest  Instant // instant at which the newest waiting overrun ended
}

//rt:noalloc
func (c *overrunClassifier) start(now Instant) { c.stolen, c.readAt = c.steal(), now }

//rt:noalloc
func (c *overrunClassifier) add(o Overrun, now Instant) {
	c.waiting[c.n] = o
	c.n++
	c.newest = now
}

//rt:noalloc
func (c *overrunClassifier) due(now Instant) bool {
	switch {
	case c.n == 0 && c.stolen == 0:
		return now.Sub(c.readAt) >= stealIdleInterval
	case c.n == 0:
		return now.Sub(c.readAt) >= stealInterval
	}
	return c.n == overrunsMax || now.Sub(c.newest) >= stealLag
}

// overrunCounts is the result of classify.
type overrunCounts struct {
	own, host uint64
	excused   time.Duration // time of the host's overruns beyond their periods
	worst     Overrun       // the worst of the loop's own
	stolen    time.Duration // time stolen since the last classification
}

//rt:noalloc
func (c *overrunClassifier) classify(now Instant) (counts overrunCounts) {
	stolen := c.steal()
	excuse := stolen - c.stolen
	counts.stolen = max(0, excuse)
	if excuse > 0 {
		excuse += stealUnit
	}
	for _, o := range c.waiting[:c.n] {
		over := o.CPU + o.IOWait - c.period
		if over <= excuse {
			excuse -= max(0, over)
			counts.excused += max(0, over)
			counts.host++
			continue
		}
		counts.own++
		if o.CPU+o.IOWait > counts.worst.CPU+counts.worst.IOWait {
			counts.worst = o
			counts.worst.Stolen, counts.worst.Own = excuse, true
		}
	}
	c.stolen = stolen
	c.readAt = now
	c.n = 0
	return counts
}
