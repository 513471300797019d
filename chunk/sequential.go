package chunk

import "github.com/edge-rt/edge-rt/rt"

// sequential is rtc, append and sync, with one request under way at a time. rtc and append request while the actions
// left last at most Buffer. The answer replaces these actions in rtc, and is appended to them in append. sync requests
// when all actions have run. rtc and sync drop the rows of an answer that ran while it was under way. All three repeat
// a request after the latency estimate. Then rtc accepts either answer; append and sync accept only the first, because
// the second would repeat the motion.
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
	current := q.merges == d.merges // no answer was merged since the request left
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
