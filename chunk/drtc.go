package chunk

import (
	"time"

	"edgert/rt"
)

// drtc is the default discipline: the canonical Schedule, asked for by Trigger.
// A chunk is conditioned on the rows that will run meanwhile.
//
// Source: Distributed Real-Time Chunking, algorithm 1.
type drtc struct {
	schedule *Schedule
	trigger  *Trigger
	requests Requests
	key      int64
}

func newDRTC(c Config) (*drtc, error) {
	estimator, err := c.estimator("jk")
	if err != nil {
		return nil, err
	}
	return &drtc{
		schedule: NewSchedule(c.Horizon, c.DOF),
		trigger: NewTrigger(TriggerConfig{
			Horizon: c.Horizon, SMin: c.SMin, Epsilon: c.Epsilon, FPS: c.FPS,
			Estimator: estimator, PrefixEnd: c.PrefixEnd, MaxDelay: c.MaxDelay,
		}),
	}, nil
}

//rt:noalloc
func (d *drtc) Pop(now rt.Instant, maxAge time.Duration) ([]float32, time.Duration, Verdict) {
	return d.schedule.Pop(now, maxAge)
}

//rt:noalloc
func (d *drtc) Peek() []float32 { return d.schedule.Peek() }

//rt:noalloc
func (d *drtc) OnChunk(now rt.Instant, c *Chunk) MergeResult {
	q, known := d.requests.Take(c.Key)
	if !known {
		return d.schedule.refuse(Unknown)
	}
	c.Step, c.Source = q.Step, q.Source
	r := d.schedule.Merge(c)
	r.RTT = now.Sub(q.Captured)
	if r.Outcome == Joined {
		d.trigger.OnChunk(r.RTT, false)
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
	a.Spans = a.Spans[:0]
	a.Rows = d.schedule.CopyPrefix(a.Robot, nil, a.PrefixEnd)
	a.ModelRows = d.schedule.CopyPrefix(nil, a.Model, a.Rows)
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
func (d *drtc) Reset() {
	d.schedule.Clear()
	d.trigger.Rearm()
}

//rt:noalloc
func (d *drtc) Last() Provenance { return d.schedule.Last() }

//rt:noalloc
func (d *drtc) View() View {
	return View{N: d.schedule.N(), Size: d.schedule.Size(), Estimate: d.trigger.Steps(), Cooldown: d.trigger.Cooldown(), SMin: d.trigger.SMin()}
}

//rt:noalloc
func (d *drtc) Count(o Outcome) uint64 { return d.schedule.Count(o) }
