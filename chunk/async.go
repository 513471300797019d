package chunk

import (
	"math"

	"edgert/rt"
)

// async is the client of SmolVLA's asynchronous inference: on every tick on which
// at most a share Threshold of a chunk is left, an observation leaves, unless the
// arm stands where it stood in the observation that was answered last. An
// observation with nothing left to run must go whatever it looks like, once per
// answer. Chunks are labelled with steps; a new one is blended into the steps
// that the queue already has, and what lies behind its end is dropped.
//
// A chunk begins with the step after the one that ran last. An answer that is
// older than one before it, or late, changes nothing. What must go goes again
// when the latency estimate has passed without an answer, and the same step is
// not asked for twice before.
//
// With Compat a chunk begins with the step that ran last, so that its first row
// is never used; a late chunk empties the queue; any order is taken as it comes;
// observations are compared with the newest that was sent; and a step that was
// asked for is never asked for again, so that one lost answer with nothing left
// stops the arm for good.
//
// Source: lerobot async_inference/{robot_client,policy_server}.py. Its server
// filters; here what an idle server would throw away is not sent.
type async struct {
	lane
	mustGo  bool
	rows    int       // longest chunk so far, -1 before the first
	step    int64     // asked for last, -1 before the first
	states  []float32 // [asyncStates*dof] of the requests
	keys    [asyncStates]int64
	seen    []float32 // [dof] state of the observation to compare with
	hasSeen bool
}

// asyncStates is how many requests' states are remembered, as many as requests.
const asyncStates = requestSlots

func newAsync(c Config, e Estimator) *async {
	return &async{
		lane: newLane(c, e), mustGo: true, rows: -1, step: noStep,
		states: make([]float32, asyncStates*c.DOF), seen: make([]float32, c.DOF),
	}
}

//rt:noalloc
func (d *async) OnChunk(now rt.Instant, c *Chunk) MergeResult {
	executed, r := d.admitNewest(now, c)
	if r.Outcome != Joined {
		return d.count(r)
	}
	d.rows = max(d.rows, c.Rows)
	d.mustGo = true
	if !d.c.Compat {
		d.see(c.Key)
	}
	return d.blend(c, executed, r)
}

// see remembers the state of a request as the one to compare with.
//
//rt:noalloc
func (d *async) see(key int64) {
	i := int(uint64(key) % asyncStates)
	if d.keys[i] == key {
		copy(d.seen, d.states[i*d.c.DOF:])
		d.hasSeen = true
	}
}

//rt:noalloc
func (d *async) OnTick(now rt.Instant, state []float32, a *Ask) bool {
	waiting := d.waiting()
	if !(float64(d.queue.Len())/float64(d.rows) <= d.c.Threshold) {
		return false
	}
	step := d.n + 1
	if d.c.Compat {
		step = max(d.n, 0)
	}
	must := d.queue.Len() == 0 && (d.mustGo || !d.c.Compat && !waiting)
	asked := step == d.step && (d.c.Compat || waiting)
	if !must && (asked || d.similar(state)) {
		return false
	}
	if must {
		d.mustGo = false
	}
	a.plain()
	d.step = step
	d.ask(now, a, step, d.recovery())
	i := int(uint64(d.key) % asyncStates)
	d.keys[i] = d.key
	copy(d.states[i*d.c.DOF:(i+1)*d.c.DOF], state)
	if d.c.Compat {
		d.see(d.key)
	}
	return true
}

// similar says whether the arm stands where it stood in the observation to
// compare with: a Euclidean distance in robot units below Similarity.
//
//rt:noalloc
func (d *async) similar(state []float32) bool {
	return d.hasSeen && distance(d.seen, state) < d.c.Similarity
}

//rt:noalloc
func (d *async) Rearm() {
	d.lane.Rearm()
	d.mustGo = true
}

//rt:noalloc
func (d *async) Resume() {
	if !d.c.Compat {
		d.Rearm()
	}
}

//rt:noalloc
func (d *async) Reset() {
	d.lane.Reset()
	d.mustGo, d.hasSeen, d.step = true, false, noStep
}

// distance is the Euclidean distance of two rows, in float32 as LeRobot has it.
//
//rt:noalloc
func distance(a, b []float32) float64 {
	var sum float32
	for i, v := range b {
		d := v - a[i]
		sum += float32(d * d)
	}
	return math.Sqrt(float64(sum))
}
