package chunk

import "github.com/edge-rt/edge-rt/rt"

// sequential is rtc, append and sync, with one request under way at a time. rtc asks while actions
// for at most Buffer are left, and its answer replaces them; append's answer is appended to them;
// sync asks when all have run. An answer drops the rows that ran meanwhile. A request is repeated
// after the latency estimate; then rtc accepts either answer, the others the first, since the
// second would repeat the motion.
type sequential struct {
	queueBase
	newest watermark
}

func newSequential(b queueBase) *sequential { return &sequential{queueBase: b, newest: noKey} }

//rt:noalloc
func (d *sequential) OnChunk(now rt.Instant, c *Chunk) Result {
	q, executed, r := d.answer(now, c)
	if r.Outcome != Joined {
		return r
	}
	current := q.merges == d.merges // no answer was merged since it left
	if d.c.Schedule == scheduleRTC {
		current = d.newest.accept(q.key)
	}
	switch {
	case !current:
		r.Outcome = older
	case d.c.Schedule == scheduleAppend:
		return d.append(c, r)
	case executed >= c.Rows:
		r.Outcome, r.Delay = late, c.Rows
	default:
		return d.replace(c, executed, r)
	}
	return r
}

//rt:noalloc
func (d *sequential) OnTick(now rt.Instant, _ []float32, a *Ask) bool {
	if d.waiting() || !d.due() {
		return false
	}
	a.unconditioned()
	if d.c.Schedule == scheduleRTC {
		d.conditionOnRest(a)
		a.Delay = min(a.Delay, a.Rows)
	}
	d.ask(now, a, d.n+1, d.recovery())
	return true
}
