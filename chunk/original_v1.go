package chunk

import "github.com/edge-rt/edge-rt/rt"

// originalV1 is the first remote proposal as published. It differs from v1 in these points. It drops the first
// int(round trip * fps) rows of every answer but the first, whether they ran or not. It accepts answers in any order,
// and a late answer empties the queue. It asks on every tick while the actions left last at most the buffer.
//
// Source: LeRobot's async proposal, version 1, sections 8 and 11.5.
type originalV1 struct{ queueBase }

//rt:noalloc
func (d *originalV1) OnChunk(now rt.Instant, c *Chunk) Result {
	_, _, r := d.answer(now, c)
	if r.Outcome != Joined {
		return r
	}
	expired := 0
	if d.merges > 0 {
		expired = int(min(r.RTT.Seconds()/(1/d.c.FPS), stepsMax))
	}
	return d.blend(c, expired, r)
}

//rt:noalloc
func (d *originalV1) OnTick(now rt.Instant, _ []float32, a *Ask) bool {
	d.waiting()
	if !d.due() {
		return false
	}
	a.unconditioned()
	d.ask(now, a, d.n+1, d.recovery())
	return true
}

//rt:noalloc
func (d *originalV1) Resume() {}
