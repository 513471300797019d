package chunk

import (
	"time"

	"edgert/rt"
)

// lane is what the disciplines on an ActionQueue have in common: the queue, the
// requests under way, and how long to wait for the newest.
type lane struct {
	c         Config
	queue     *ActionQueue
	requests  Requests
	estimator Estimator
	dropOld   bool // of an old queue drop the old head only; else all of it

	key      int64 // newest request
	n        int64 // action step that ran last
	newest   Watermark
	merges   uint64
	waited   int // ticks since the newest request left
	patience int // ticks after which it counts as lost; 0: none is under way
	last     Provenance
	counts   [numOutcomes]uint64
}

// newLane makes room for all that may be left when a request leaves, which is Buffer
// at most, or a chunk, and for the longest answer behind that: however short the
// chunks are, none that was asked for is refused. MaxBufferTime bounds it.
func newLane(c Config, e Estimator) lane {
	rows := max(c.ticks(c.Buffer), c.Horizon) + c.Horizon
	return lane{c: c, queue: NewActionQueue(rows, c.DOF), estimator: e, n: noStep, newest: NewWatermark(noKey)}
}

//rt:noalloc
func (l *lane) Pop(now rt.Instant, maxAge time.Duration) ([]float32, time.Duration, Verdict) {
	if l.queue.Len() == 0 {
		return nil, 0, Empty
	}
	age := now.Sub(l.queue.head().source)
	if maxAge > 0 && age > maxAge {
		if l.dropOld {
			l.queue.dropOlder(now, maxAge)
		} else {
			l.queue.Clear()
		}
		return nil, age, TooOld
	}
	l.last = l.queue.head().prov
	l.n++
	return l.queue.Get(), age, Ready
}

//rt:noalloc
func (l *lane) Peek() []float32 { return l.queue.Peek() }

// admit finds the request that c answers and refuses what could not have been
// asked for. Joined: it may be merged, and executed rows of it have run since.
//
//rt:noalloc
func (l *lane) admit(now rt.Instant, c *Chunk) (q Request, executed int, r MergeResult) {
	q, r.Outcome = l.requests.Take(c.Key)
	if r.Outcome == Joined {
		r.Outcome = checkShape(c, l.c.Horizon, l.c.DOF)
	}
	if r.Outcome != Joined {
		return q, 0, r
	}
	c.Step, c.Source, c.Prov.Asked = q.Step, q.Source, int32(q.Delay)
	r.RTT = now.Sub(q.Captured)
	return q, int(l.n + 1 - q.Step), r
}

// merged notes that an answer was taken: it is no news to the requests before.
//
//rt:noalloc
func (l *lane) merged(key int64, rtt time.Duration) {
	l.merges++
	l.estimator.Observe(rtt.Seconds())
	if key == l.key {
		l.patience = 0
	}
}

// count closes an OnChunk.
//
//rt:noalloc
func (l *lane) count(r MergeResult) MergeResult {
	l.counts[r.Outcome]++
	return r
}

// waiting counts a tick and says whether the newest request may still be
// answered.
//
//rt:noalloc
func (l *lane) waiting() bool {
	l.OnIdleTick()
	return l.waited < l.patience
}

// ask sends the next request, to be answered within patience ticks.
//
//rt:noalloc
func (l *lane) ask(now rt.Instant, a *Ask, step int64, patience int) {
	l.key++
	l.waited, l.patience = 0, patience
	a.Key, a.Step, a.Runway = l.key, step, l.queue.Len()
	l.requests.Put(Request{Key: a.Key, Step: step, Captured: now, Source: now, Delay: a.Delay, PrefixRows: a.Rows, Merges: l.merges})
}

// plain empties the conditioning of an ask.
//
//rt:noalloc
func (a *Ask) plain() {
	a.Delay, a.PrefixEnd, a.Rows, a.ModelRows, a.BothRows, a.Spans = 0, 0, 0, 0, false, a.Spans[:0]
}

// estimate is the expected round trip in ticks, 0 while none is known.
//
//rt:noalloc
func (l *lane) estimate() int { return lerobotSteps(l.estimator.Seconds(), l.c.FPS) }

// recovery is how many ticks to wait for an answer before asking again: what it
// should take, but not longer than the actions last, and s_min while nothing is
// known.
//
//rt:noalloc
func (l *lane) recovery() int {
	steps := l.estimate()
	if steps == 0 {
		steps = l.c.SMin
	}
	return min(steps, max(l.queue.Len(), l.c.SMin)) + l.c.Epsilon
}

//rt:noalloc
func (l *lane) OnIdleTick() { l.waited = min(l.waited+1, l.patience) }

//rt:noalloc
func (l *lane) Pictured(key int64, source rt.Instant) { l.requests.pictured(key, source) }

//rt:noalloc
func (l *lane) Rearm() { l.patience, l.waited = 0, 0 }

//rt:noalloc
func (l *lane) Resume() {
	if !l.c.Compat {
		l.Rearm()
	}
}

//rt:noalloc
func (l *lane) Reset() {
	l.queue.Clear()
	l.Rearm()
}

//rt:noalloc
func (l *lane) Last() Provenance { return l.last }

//rt:noalloc
func (l *lane) View() View {
	return View{N: l.n, Size: l.queue.Len(), Estimate: l.estimate(), Cooldown: max(l.patience-l.waited, 0)}
}

//rt:noalloc
func (l *lane) Count(o Outcome) uint64 {
	if o >= numOutcomes {
		return 0
	}
	return l.counts[o]
}

// overlap measures how far the rows of c lie from the actions they meet, the
// first of them being row skip.
//
//rt:noalloc
func (l *lane) overlap(c *Chunk, skip int, r *MergeResult) {
	var sum float64
	robot, _, _ := l.queue.LeftOver()
	for row := skip; row < c.Rows && len(robot) > 0; row++ {
		d := distance(robot[:c.DOF], c.Robot[row*c.DOF:(row+1)*c.DOF])
		robot = robot[c.DOF:]
		sum += d
		r.MaxL2 = max(r.MaxL2, d)
		r.Overlap++
	}
	if r.Overlap > 0 {
		r.MeanL2 = sum / float64(r.Overlap)
	}
}

// admitNewest is admit for disciplines that take only what is newer than the
// newest answer; with Compat they take any order as it comes.
//
//rt:noalloc
func (l *lane) admitNewest(now rt.Instant, c *Chunk) (executed int, r MergeResult) {
	_, executed, r = l.admit(now, c)
	if r.Outcome == Joined && !l.c.Compat && !l.newest.Accept(c.Key) {
		r.Outcome = Older
	}
	return executed, r
}

// blend joins an admitted chunk without its first executed rows, aggregating
// where it overlaps the queue. One with nothing left is late; with Compat it is
// blended all the same.
//
//rt:noalloc
func (l *lane) blend(c *Chunk, executed int, r MergeResult) MergeResult {
	l.merged(c.Key, r.RTT)
	r.Delay = min(executed, c.Rows)
	r.Stored = c.Rows - r.Delay
	if r.Stored == 0 {
		r.Outcome = Late
		if !l.c.Compat {
			return l.count(r)
		}
	}
	l.overlap(c, r.Delay, &r)
	l.queue.Blend(c, r.Delay, l.c.Aggregate)
	return l.count(r)
}
