package chunk

import "github.com/edge-rt/edge-rt/rt"

// async is SmolVLA's client. While at most the share Threshold of a chunk is left, an observation leaves on every tick,
// unless the arm is where it was in the observation answered last. When no action is left, one observation leaves after
// each answer even if the arm has not moved, and another one when the latency estimate has passed. Otherwise async
// requests the same step again only when the latency estimate has passed. async blends a new chunk into the queue and
// drops the queue's actions after the chunk's end. An answer that is late, or older than a merged answer, changes
// nothing in the queue.
//
// Source: lerobot async_inference/{robot_client,policy_server}.py. LeRobot's server discards some observations; our
// client does not send those that an idle server would discard.
type async struct {
	queueBase
	newest watermark
	mustGo bool
	rows   int       // rows of the longest chunk so far; -1 before the first
	step   int64     // step requested last; noStep before the first request
	states []float32 // [requestSlots*dof] arm states in the requests
	filter stateFilter
}

func newAsync(b queueBase) *async {
	return &async{
		queueBase: b,
		newest:    noKey,
		mustGo:    true,
		rows:      -1,
		step:      noStep,
		states:    make([]float32, requestSlots*b.c.DOF),
		filter:    newStateFilter(b.c),
	}
}

//rt:noalloc
func (d *async) OnChunk(now rt.Instant, c *Chunk) Result {
	q, executed, r := d.answer(now, c)
	if r.Outcome == Joined && !d.newest.accept(c.Key) {
		r.Outcome = older
	}
	if r.Outcome != Joined {
		return r
	}
	d.rows = max(d.rows, c.Rows)
	d.mustGo = true
	d.filter.compareWith(d.stateOf(q.key))
	return d.blendUnlessLate(c, executed, r)
}

//rt:noalloc
func (d *async) stateOf(key int64) []float32 {
	i := int(uint64(key)%requestSlots) * d.c.DOF
	return d.states[i : i+d.c.DOF]
}

//rt:noalloc
func (d *async) OnTick(now rt.Instant, state []float32, a *Ask) bool {
	waiting := d.waiting()
	if !(float64(d.queue.size())/float64(d.rows) <= d.c.Threshold) {
		return false
	}
	step := d.n + 1
	must := d.queue.size() == 0 && (d.mustGo || !waiting)
	if !must && (step == d.step && waiting || d.filter.similar(state)) {
		return false
	}
	if must {
		d.mustGo = false
	}
	a.unconditioned()
	d.step = step
	d.ask(now, a, step, d.recovery())
	copy(d.stateOf(d.key), state)
	return true
}

//rt:noalloc
func (d *async) RequestNow() {
	d.queueBase.RequestNow()
	d.mustGo = true
}

//rt:noalloc
func (d *async) Resume() { d.RequestNow() }

//rt:noalloc
func (d *async) Reset() {
	d.queueBase.Reset()
	d.mustGo = true
	d.filter.active = false
	d.step = noStep
}

// stateFilter finds observations of an arm that has not moved since an earlier one.
//
// Source: lerobot async_inference/helpers.py, observations_similar.
type stateFilter struct {
	distance float64 // Config.Similarity
	earlier  []float32
	active   bool
}

func newStateFilter(c Config) stateFilter {
	return stateFilter{distance: c.Similarity, earlier: make([]float32, c.DOF)}
}

//rt:noalloc
func (f *stateFilter) compareWith(state []float32) {
	copy(f.earlier, state)
	f.active = true
}

//rt:noalloc
func (f *stateFilter) similar(state []float32) bool {
	return f.active && distance(f.earlier, state) < f.distance
}
