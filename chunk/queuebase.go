package chunk

import (
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// queueBase is the common part of all disciplines that use an actionQueue, ours and the originals. It has the queue,
// the requests under way, and the time to wait for an answer to the newest request.
type queueBase struct {
	c         Config
	queue     *actionQueue
	requests  requests
	latency   estimator
	buffer    buffer
	aggregate *aggregate

	key     int64  // newest request
	n       int64  // action step that ran last
	merges  uint64 // number of answers merged
	waited  int    // ticks since the newest request left
	timeout int    // ticks after which the newest request counts as lost; 0: no request is under way
	silent  int    // ticks since the last merge of an answer
	last    Provenance
}

// newQueueBase returns a queueBase whose queue has room for the actions of the longest buffer, or a chunk if that is
// longer, and for one more chunk. So the queue refuses no requested answer.
func newQueueBase(c Config, e estimator) (queueBase, error) {
	f, err := parseAggregate(c.Aggregate)
	longest := c.Buffer
	if longest == AutoBuffer {
		longest = bufferMost
	}
	rows := max(c.ticks(longest), c.Horizon) + c.Horizon
	return queueBase{
		c:         c,
		queue:     newActionQueue(rows, c.DOF),
		latency:   e,
		buffer:    newBuffer(&c),
		aggregate: f,
		n:         noStep,
	}, err
}

//rt:noalloc
func (b *queueBase) Pop(now rt.Instant, maxAge time.Duration) ([]float32, time.Duration, bool) {
	if b.queue.size() == 0 {
		return nil, 0, false
	}
	head := b.queue.head()
	age := now.Sub(head.source)
	if maxAge > 0 && age > maxAge {
		if b.c.Schedule == scheduleAppend { // younger chunks may follow the old head of the queue
			b.queue.dropOlder(now, maxAge)
		} else {
			b.queue.clear()
		}
		return nil, age, true
	}
	b.last = head.prov
	b.n++
	return b.queue.get(), age, false
}

//rt:noalloc
func (b *queueBase) Peek() []float32 { return b.queue.peek() }

// answer returns the request q that c answers. If r.Outcome is Joined, the caller may merge c, and the result executed
// is the number of rows at the beginning of c that have run since the request. Otherwise r.Outcome is the reason to
// refuse c.
//
//rt:noalloc
func (b *queueBase) answer(now rt.Instant, c *Chunk) (q request, executed int, r Result) {
	if q, r = b.requests.answer(now, c); r.Outcome == Joined {
		r.Outcome = checkShape(c, b.c.Horizon, b.c.DOF)
	}
	return q, int(b.n + 1 - q.step), r
}

//rt:noalloc
func (b *queueBase) merged(key int64, rtt time.Duration) {
	b.merges++
	b.silent = 0
	b.latency.observe(rtt.Seconds())
	b.buffer.observe(rtt)
	if key == b.key {
		b.timeout = 0
	}
}

// replace replaces the queue's actions by the rows >= executed of c; the rows before them have run.
//
//rt:noalloc
func (b *queueBase) replace(c *Chunk, executed int, r Result) Result {
	r = b.skip(c, executed, r)
	b.queue.replace(c, r.Delay)
	b.merged(c.Key, r.RTT)
	return r
}

// append appends the whole chunk c to the queue. It also gives up the newest request, whose answer would repeat the
// motion.
//
//rt:noalloc
func (b *queueBase) append(c *Chunk, r Result) Result {
	if !b.queue.append(c) {
		r.Outcome = ahead
		return r
	}
	r.stored = c.Rows
	b.merged(b.key, r.RTT)
	return r
}

// blend does the same as replace, but if the queue has an action for a row, blend blends the two.
//
//rt:noalloc
func (b *queueBase) blend(c *Chunk, executed int, r Result) Result {
	r = b.skip(c, executed, r)
	b.queue.blend(c, r.Delay, b.aggregate)
	b.merged(c.Key, r.RTT)
	return r
}

// blendUnlessLate calls blend. If all rows of c have run, it leaves the queue unchanged, and only counts the answer and
// its round trip.
//
//rt:noalloc
func (b *queueBase) blendUnlessLate(c *Chunk, executed int, r Result) Result {
	if executed < c.Rows {
		return b.blend(c, executed, r)
	}
	b.merged(c.Key, r.RTT)
	r.Outcome, r.Delay = late, c.Rows
	return r
}

// skip sets r.Delay to the number of executed rows of c, and measures how far the rows after them are from the queue's
// actions.
//
//rt:noalloc
func (b *queueBase) skip(c *Chunk, executed int, r Result) Result {
	r.Delay = min(executed, c.Rows)
	if r.stored = c.Rows - r.Delay; r.stored == 0 {
		r.Outcome = late
	}
	robot, _, _ := b.queue.leftOver()
	for row := r.Delay; row < c.Rows && len(robot) > 0; row++ {
		r.measureOverlap(robot[:c.DOF], c.Robot[row*c.DOF:(row+1)*c.DOF])
		robot = robot[c.DOF:]
	}
	r.finishOverlap()
	return r
}

// waiting counts a tick, and reports whether the newest request still waits for its answer.
//
//rt:noalloc
func (b *queueBase) waiting() bool {
	b.OnTickWithoutObservation()
	return b.waited < b.timeout
}

// due reports whether the actions left last no longer than the buffer, or for sync whether all have
// run.
//
//rt:noalloc
func (b *queueBase) due() bool {
	if b.c.Schedule == scheduleSync {
		return b.queue.size() == 0
	}
	return float64(b.queue.size())*(1/b.c.FPS) <= b.buffer.time.Seconds()
}

// ask writes the next request, for the given step, to a. The request counts as lost after timeout ticks.
//
//rt:noalloc
func (b *queueBase) ask(now rt.Instant, a *Ask, step int64, timeout int) {
	b.key++
	b.waited, b.timeout = 0, timeout
	a.Key = b.key
	a.Step = step
	a.Runway = b.queue.size()
	b.requests.put(request{
		key:      a.Key,
		step:     step,
		captured: now,
		source:   now,
		delay:    a.Delay,
		merges:   b.merges,
	})
}

//rt:noalloc
func (b *queueBase) conditionOnRest(a *Ask) {
	a.BothRows = true
	a.PrefixEnd = b.c.Horizon
	if b.c.PrefixEnd > 0 {
		a.PrefixEnd = min(a.PrefixEnd, b.c.PrefixEnd)
	}
	a.Rows, a.ModelRows = b.queue.copyLeft(a.Robot, a.Model, a.PrefixEnd)
	a.Delay = min(b.estimate(), b.c.Horizon)
}

// estimate returns the expected round trip in ticks, 0 without a sample.
//
//rt:noalloc
func (b *queueBase) estimate() int { return lerobotSteps(b.latency.seconds(), b.c.FPS) }

// recovery returns the number of ticks after which a request without an answer is repeated. It is the estimate (before
// the first sample: s_min) plus epsilon. The estimate is limited to the number of actions left or s_min, whichever is
// larger. After a long silence the wait is longer, see spread.
//
//rt:noalloc
func (b *queueBase) recovery() int {
	steps := b.estimate()
	if steps == 0 {
		steps = b.c.SMin
	}
	return max(min(steps, max(b.queue.size(), b.c.SMin))+b.c.Epsilon, spread(b.silent))
}

//rt:noalloc
func (b *queueBase) OnTickWithoutObservation() {
	b.waited = min(b.waited+1, b.timeout)
	b.silent = min(b.silent+1, stepsMax)
}

//rt:noalloc
func (b *queueBase) SetSource(key int64, source rt.Instant) { b.requests.setSource(key, source) }

//rt:noalloc
func (b *queueBase) RequestNow() { b.timeout, b.waited, b.silent = 0, 0, 0 }

//rt:noalloc
func (b *queueBase) Resume() { b.RequestNow() }

//rt:noalloc
func (b *queueBase) Reset() {
	b.queue.clear()
	b.RequestNow()
}

//rt:noalloc
func (b *queueBase) Last() Provenance { return b.last }

//rt:noalloc
func (b *queueBase) View() View {
	return View{
		N:        b.n,
		Size:     b.queue.size(),
		Estimate: b.estimate(),
		Cooldown: max(b.timeout-b.waited, 0),
		Buffer:   b.buffer.time,
	}
}
