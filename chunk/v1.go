package chunk

import "github.com/edge-rt/edge-rt/rt"

// v1 is the first remote proposal. While the actions left last at most Buffer, it sends an observation. It drops the
// rows of the answer that ran while the answer was under way, and blends the other rows with the actions left, unless
// the answer is older than a merged answer. A request without an answer is repeated after the last round trip + epsilon
// (see recovery).
//
// Source: LeRobot's async proposal, version 1, sections 8 and 11.5.
type v1 struct {
	queueBase
	newest watermark
}

//rt:noalloc
func (d *v1) OnChunk(now rt.Instant, c *Chunk) Result {
	_, executed, r := d.answer(now, c)
	if r.Outcome == Joined && !d.newest.accept(c.Key) {
		r.Outcome = older
	}
	if r.Outcome != Joined {
		return r
	}
	return d.blendUnlessLate(c, executed, r)
}

//rt:noalloc
func (d *v1) OnTick(now rt.Instant, _ []float32, a *Ask) bool {
	if d.waiting() || !d.due() {
		return false
	}
	a.unconditioned()
	d.ask(now, a, d.n+1, d.recovery())
	return true
}
