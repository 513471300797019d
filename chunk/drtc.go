package chunk

import (
	"time"

	"edgert/rt"
)

// drtc is the default discipline: the canonical Schedule, asked for by Trigger.
// A chunk is conditioned on the rows that will run meanwhile.
//
// With Compat a chunk starts at the step that ran last, so that its first row is
// always late, spans pass over gaps and start one step behind the chunk they
// condition, and the first request waits s_min + epsilon ticks.
//
// Source: Distributed Real-Time Chunking, algorithm 1; the program at d20888c.
type drtc struct {
	schedule *Schedule
	trigger  *Trigger
	requests Requests
	prefix   string
	key      int64
}

func newDRTC(c Config, e Estimator) *drtc {
	d := &drtc{
		schedule: NewSchedule(c.Horizon, c.DOF),
		prefix:   c.Prefix,
		trigger: NewTrigger(TriggerConfig{
			Horizon: c.Horizon, SMin: c.SMin, Epsilon: c.Epsilon, FPS: c.FPS,
			Estimator: e, PrefixEnd: c.PrefixEnd, Cooldown: c.Cooldown, Compat: c.Compat,
		}),
	}
	if c.Compat {
		d.schedule = NewCompatSchedule(c.Horizon, c.DOF)
	}
	return d
}

//rt:noalloc
func (d *drtc) Pop(now rt.Instant, maxAge time.Duration) ([]float32, time.Duration, Verdict) {
	return d.schedule.Pop(now, maxAge)
}

//rt:noalloc
func (d *drtc) Peek() []float32 { return d.schedule.Peek() }

//rt:noalloc
func (d *drtc) OnChunk(now rt.Instant, c *Chunk) MergeResult {
	q, o := d.requests.Take(c.Key)
	if o != Joined {
		return d.schedule.refuse(o)
	}
	c.Step, c.Source, c.Prov.Asked = q.Step, q.Source, int32(q.Delay)
	r := d.schedule.Merge(c)
	r.RTT = now.Sub(q.Captured)
	if r.Outcome == Joined {
		d.trigger.OnChunk(r.RTT)
	}
	return r
}

//rt:noalloc
func (d *drtc) OnTick(now rt.Instant, _ []float32, a *Ask) bool {
	size := d.schedule.Size()
	fire, delay := d.trigger.OnTick(size)
	if !fire {
		return false
	}
	d.key++
	a.Key, a.Step, a.Runway = d.key, d.schedule.NextStep(), size
	a.PrefixEnd = d.trigger.PrefixEnd(delay)
	a.Rows, a.ModelRows, a.BothRows, a.Spans = 0, 0, false, a.Spans[:0]
	if d.prefix != PrefixNone {
		a.Rows = d.schedule.CopyPrefix(a.Robot, nil, a.PrefixEnd)
		a.ModelRows = d.schedule.CopyPrefix(nil, a.Model, a.Rows)
	}
	if d.prefix == PrefixSpans {
		a.Spans = d.schedule.AppendSpans(a.Spans, a.PrefixEnd)
	}
	a.Delay = min(delay, a.Rows) // only what is sent can be conditioned
	d.requests.Put(Request{Key: a.Key, Step: a.Step, Captured: now, Source: now, Delay: a.Delay, PrefixRows: a.Rows})
	return true
}

//rt:noalloc
func (d *drtc) OnIdleTick() { d.trigger.OnIdleTick() }

//rt:noalloc
func (d *drtc) Pictured(key int64, source rt.Instant) { d.requests.pictured(key, source) }

//rt:noalloc
func (d *drtc) Rearm() { d.trigger.Rearm() }

//rt:noalloc
func (d *drtc) Resume() {
	if !d.trigger.cfg.Compat {
		d.Rearm()
	}
}

//rt:noalloc
func (d *drtc) Reset() {
	d.schedule.Clear()
	d.trigger.Rearm()
}

//rt:noalloc
func (d *drtc) Last() Provenance { return d.schedule.Last() }

//rt:noalloc
func (d *drtc) View() View {
	return View{
		N: d.schedule.N(), Size: d.schedule.Size(), Estimate: d.trigger.Steps(),
		Cooldown: d.trigger.Cooldown(), SMin: d.trigger.SMin(),
	}
}

//rt:noalloc
func (d *drtc) Count(o Outcome) uint64 { return d.schedule.Count(o) }
