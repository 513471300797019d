package chunk

import (
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// originalDRTC is the DRTC program's client. It differs from drtc in these points. A chunk starts at the last step run,
// so its first row is always late. An older chunk fills the steps that a newer chunk lacks, and Pop jumps over gaps.
// Spans pass over gaps and begin at the chunk's second step. The first request waits s_min + epsilon ticks.
//
// Source: the DRTC program, robot_client_drtc.py at d20888c.
type originalDRTC struct {
	c Config
	*schedule
	latency  estimator
	cooldown int // ticks
	requests requests
	key      int64 // number of the newest request
}

func newOriginalDRTC(c Config, e estimator) *originalDRTC {
	if c.Cooldown == cooldownRunway {
		c.Cooldown = cooldownCounts
	}
	d := &originalDRTC{c: c, schedule: newSchedule(c.Horizon, c.DOF), latency: e}
	d.RequestNow()
	return d
}

// first returns the smallest occupied step above n, or n if there is none.
//
//rt:noalloc
func (d *originalDRTC) first() int64 {
	for step := d.n + 1; step <= d.n+int64(len(d.slots)); step++ {
		if d.holds(step) {
			return step
		}
	}
	return d.n
}

//rt:noalloc
func (d *originalDRTC) Pop(now rt.Instant, maxAge time.Duration) ([]float32, time.Duration, bool) {
	return d.pop(d.first(), now, maxAge)
}

//rt:noalloc
func (d *originalDRTC) Peek() []float32 { return d.peek(d.first()) }

// merge joins every answer, in any order of the requests.
//
//rt:noalloc
func (d *originalDRTC) merge(c *Chunk, r Result) Result {
	if r.Outcome = d.check(c); r.Outcome != Joined {
		return r
	}
	return d.join(c, r)
}

//rt:noalloc
func (d *originalDRTC) OnChunk(now rt.Instant, c *Chunk) Result {
	_, r := d.requests.answer(now, c)
	if r.Outcome != Joined {
		return r
	}
	if r = d.merge(c, r); r.Outcome == Joined {
		if d.c.Cooldown == cooldownMerge {
			d.cooldown = 0
		}
		d.latency.observe(r.RTT.Seconds())
	}
	return r
}

//rt:noalloc
func (d *originalDRTC) OnTick(now rt.Instant, _ []float32, a *Ask) bool {
	size := d.live
	if size > d.c.Horizon-d.c.SMin || d.cooldown > 0 && d.c.Cooldown != cooldownOff {
		d.OnTickWithoutObservation()
		return false
	}
	estimate := d.estimate()
	if d.c.Cooldown != cooldownOff {
		d.cooldown = estimate + d.c.Epsilon
	}
	d.key++
	a.Key = d.key
	a.Step = max(d.n, 0)
	a.Runway = size
	d.condition(a, &d.c, min(estimate, size))
	if d.c.Prefix == prefixSpans {
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
func (d *originalDRTC) appendSpans(dst []Span, maxRows int) []Span {
	for step := d.n + 1; step <= d.n+int64(len(d.slots)) && maxRows > 0; step++ {
		if d.holds(step) {
			dst = d.appendSpan(dst, step)
			maxRows--
		}
	}
	return dst
}

//rt:noalloc
func (d *originalDRTC) OnTickWithoutObservation() {
	if d.c.Cooldown == cooldownCounts {
		d.cooldown = max(d.cooldown-1, 0)
	}
}

//rt:noalloc
func (d *originalDRTC) SetSource(key int64, source rt.Instant) { d.requests.setSource(key, source) }

// RequestNow sets the cooldown to its value at the program's start.
//
//rt:noalloc
func (d *originalDRTC) RequestNow() { d.cooldown = d.c.SMin + d.c.Epsilon }

//rt:noalloc
func (d *originalDRTC) Resume() {}

//rt:noalloc
func (d *originalDRTC) Reset() {
	d.clear()
	d.RequestNow()
}

//rt:noalloc
func (d *originalDRTC) Last() Provenance { return d.last }

//rt:noalloc
func (d *originalDRTC) estimate() int { return steps(d.latency.seconds(), d.c.FPS, d.c.Horizon) }

//rt:noalloc
func (d *originalDRTC) View() View {
	return View{
		N:        d.n,
		Size:     d.live,
		Estimate: d.estimate(),
		Cooldown: d.cooldown,
		SMin:     d.c.SMin,
	}
}
