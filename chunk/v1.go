package chunk

import "edgert/rt"

// v1 is the first remote proposal: while actions for at most Buffer are left an
// observation leaves; its answer drops the rows that expired on the way and is
// blended into the actions that are left. The latency estimate is the last round
// trip.
//
// The expired rows are those that ran since the observation, an answer that is
// older than one before it changes nothing, and the next request waits for the
// last round trip + epsilon.
//
// With Compat the expired rows are int(round trip * fps), but for the first
// answer, whether they ran or not; any order is taken as it comes; and every tick
// below the buffer asks.
//
// Source: LeRobot's async proposal, version 1, sections 8 and 11.5.
type v1 struct{ lane }

func newV1(c Config, e Estimator) *v1 { return &v1{newLane(c, e)} }

//rt:noalloc
func (d *v1) OnChunk(now rt.Instant, c *Chunk) MergeResult {
	executed, r := d.admitNewest(now, c)
	if r.Outcome != Joined {
		return d.count(r)
	}
	if d.c.Compat {
		executed = 0
		if d.merges > 0 {
			executed = int(min(r.RTT.Seconds()/(1/d.c.FPS), stepsMax))
		}
	}
	return d.blend(c, executed, r)
}

//rt:noalloc
func (d *v1) OnTick(now rt.Instant, _ []float32, a *Ask) bool {
	if d.waiting() && !d.c.Compat || float64(d.queue.Len())*(1/d.c.FPS) > d.c.Buffer.Seconds() {
		return false
	}
	a.plain()
	d.ask(now, a, d.n+1, d.recovery())
	return true
}
