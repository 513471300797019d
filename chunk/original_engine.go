package chunk

import "github.com/edge-rt/edge-rt/rt"

// originalEngine is LeRobot's inference engine with one request under way: rtc, append and sync. It differs from
// sequential in these points. rtc drops the first ceil(round trip * fps) rows of an answer, whether they ran or not,
// which may empty the queue. All three accept only the answer to the newest request. This request counts as lost after
// RequestTimeout, or at once when its answer has no actions. For rtc the announced delay may exceed the number of rows
// that are sent; zeros then fill the prefix.
//
// Source: lerobot rollout/inference/rtc.py, sync.py; remote.py at b968020.
type originalEngine struct{ queueBase }

//rt:noalloc
func (d *originalEngine) OnChunk(now rt.Instant, c *Chunk) Result {
	_, executed, r := d.answer(now, c)
	switch {
	case r.Outcome == BadShape && c.Rows == 0 && c.Key == d.key:
		d.timeout = 0 // the next tick asks again
		return r
	case r.Outcome != Joined:
		return r
	case c.Key != d.key || d.waited >= d.timeout:
		r.Outcome = older
		return r
	}
	switch d.c.Schedule {
	case scheduleAppend:
		return d.append(c, r)
	case scheduleRTC:
		executed = lerobotSteps(r.RTT.Seconds(), d.c.FPS)
	}
	return d.replace(c, executed, r)
}

//rt:noalloc
func (d *originalEngine) OnTick(now rt.Instant, _ []float32, a *Ask) bool {
	if d.waiting() || !d.due() {
		return false
	}
	a.unconditioned()
	if d.c.Schedule == scheduleRTC {
		d.conditionOnRest(a)
		d.padPrefix(a)
	}
	d.ask(now, a, d.n+1, d.c.ticks(d.c.RequestTimeout))
	return true
}

//rt:noalloc
func (d *originalEngine) padPrefix(a *Ask) {
	if a.Rows == 0 {
		return
	}
	clear(a.Robot[a.Rows*d.c.DOF : a.PrefixEnd*d.c.DOF])
	clear(a.Model[a.Rows*d.c.DOF : a.PrefixEnd*d.c.DOF])
	if a.ModelRows == a.Rows {
		a.ModelRows = a.PrefixEnd
	}
	a.Rows = a.PrefixEnd
}

//rt:noalloc
func (d *originalEngine) Resume() {}
