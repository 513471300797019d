package chunk

import (
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// drtc is the default discipline: a schedule, and a trigger that requests its chunks. A chunk is conditioned on the
// rows that will run before it arrives.
type drtc struct {
	*schedule
	trigger  trigger
	requests requests
	key      int64 // number of the newest request
}

func newDRTC(c Config, e estimator) *drtc {
	return &drtc{schedule: newSchedule(c.Horizon, c.DOF), trigger: trigger{c: c, latency: e}}
}

//rt:noalloc
func (d *drtc) Pop(now rt.Instant, maxAge time.Duration) ([]float32, time.Duration, bool) {
	return d.pop(d.n+1, now, maxAge)
}

//rt:noalloc
func (d *drtc) Peek() []float32 { return d.peek(d.n + 1) }

//rt:noalloc
func (d *drtc) OnChunk(now rt.Instant, c *Chunk) Result {
	_, r := d.requests.answer(now, c)
	if r.Outcome != Joined {
		return r
	}
	if r = d.merge(c, r); r.Outcome == Joined {
		d.trigger.answered(r.RTT.Seconds())
	}
	return r
}

//rt:noalloc
func (d *drtc) OnTick(now rt.Instant, _ []float32, a *Ask) bool {
	size := d.size()
	fire, delay := d.trigger.onTick(size)
	if !fire {
		return false
	}
	d.key++
	a.Key = d.key
	a.Step = d.n + 1
	a.Runway = size
	d.condition(a, &d.trigger.c, delay)
	if d.trigger.c.Prefix == prefixSpans {
		a.Spans = d.appendSpans(a.Spans, a.PrefixEnd)
	}
	d.requests.put(request{
		key:      a.Key,
		step:     a.Step,
		captured: now,
		source:   now,
		delay:    a.Delay,
	})
	return true
}

//rt:noalloc
func (d *drtc) OnTickWithoutObservation() { d.trigger.onTickWithoutObservation() }

//rt:noalloc
func (d *drtc) SetSource(key int64, source rt.Instant) { d.requests.setSource(key, source) }

//rt:noalloc
func (d *drtc) RequestNow() { d.trigger.askNow() }

//rt:noalloc
func (d *drtc) Resume() { d.trigger.askNow() }

//rt:noalloc
func (d *drtc) Reset() {
	d.clear()
	d.trigger.askNow()
}

//rt:noalloc
func (d *drtc) Last() Provenance { return d.last }

//rt:noalloc
func (d *drtc) View() View {
	return View{
		N:        d.n,
		Size:     d.size(),
		Estimate: d.trigger.estimate(),
		Cooldown: d.trigger.cooldown,
		SMin:     d.trigger.c.SMin,
	}
}
