package netfault

import (
	"cmp"
	"slices"
	"time"
)

// Plan is a script with a seed. It determines the effect on a message at any instant. Its methods
// are pure functions. Instants count from the start of the episode.
type Plan struct {
	faults  []Fault
	compute []Point
	seed    uint64
	period  time.Duration // time between two random draws
}

// Plan returns the script's plan for a seed. Random numbers are drawn once per period: all messages
// of one period meet the same effect. A nil script has no faults.
func (s *Script) Plan(seed uint64, period time.Duration) *Plan {
	p := &Plan{seed: seed, period: max(period, time.Millisecond)}
	if s != nil {
		p.faults, p.compute = s.Faults, s.Compute
	}
	return p
}

// Effect is the plan's effect on one message.
type Effect struct {
	Lost       bool
	Nth        int // every nth message of the direction is lost, see Line.Next; 0: no such loss
	Duplicated bool
	Held       bool          // held until the direction's next message has passed
	Reorders   bool          // a message that is held now may pass after this message
	Delay      time.Duration // latency and jitter
	Rate       int           // bytes per second of the line; 0: no limit
}

// Observation returns the effect on an observation that leaves the robot at this instant.
func (p *Plan) Observation(at time.Duration) Effect {
	return p.effect(at, DropObservation, DuplicateObservation, ReorderObservation, 0)
}

// Chunk returns the effect on a chunk that reaches the robot at this instant. Delay and Rate are
// exceptions: the caller takes them from the effect at the instant at which the chunk leaves the
// server.
func (p *Plan) Chunk(at time.Duration) Effect {
	return p.effect(at, DropChunk, DuplicateChunk, ReorderChunk, 1)
}

func (p *Plan) effect(at time.Duration, drop, double, reorder Kind, direction uint64) (f Effect) {
	for i := range p.faults {
		fault := &p.faults[i]
		if !fault.Active(at) {
			continue
		}
		hit := func() bool { return p.draw(i, direction, at) < fault.Share }
		switch fault.Kind {
		case Blackout, Restart:
			f.Lost = true
		case drop:
			switch {
			case fault.Nth == 0:
				f.Lost = f.Lost || hit()
			case f.Nth == 0 || fault.Nth < f.Nth:
				f.Nth = fault.Nth
			}
		case double:
			f.Duplicated = f.Duplicated || hit()
		case reorder:
			f.Reorders = true
			f.Held = f.Held || hit()
		case Latency:
			if direction == 1 {
				f.Delay += fault.Delay
			}
		case Jitter:
			f.Delay += time.Duration(p.draw(i, direction, at) * float64(fault.Delay))
		case Trace:
			if point := state(fault.Points, p.place(i, at)); point != nil {
				f.Delay += point.Delay
				f.Lost = f.Lost || point.Lost
			}
		case Bandwidth:
			if f.Rate == 0 || fault.BytesPerSecond < f.Rate {
				f.Rate = fault.BytesPerSecond
			}
		}
	}
	return f
}

// place converts an instant of the episode to an instant of the fault's trace.
func (p *Plan) place(fault int, at time.Duration) time.Duration {
	f := &p.faults[fault]
	at -= f.At
	if f.Anywhere {
		// no message is drawn at maxTime, so this draw is independent of the messages' draws
		at += time.Duration(p.draw(fault, 0, maxTime) * float64(f.Every))
	}
	if f.Every > 0 {
		at %= f.Every
	}
	return at
}

// state returns the newest point that is not after an instant; nil when the instant is before the first point.
func state(points []Point, at time.Duration) *Point {
	n, exact := slices.BinarySearchFunc(points, at, func(p Point, at time.Duration) int {
		return cmp.Compare(p.At, at)
	})
	if exact {
		n++
	}
	if n == 0 {
		return nil
	}
	return &points[n-1]
}

// Compute returns the additional time of an inference that begins at this instant.
func (p *Plan) Compute(at time.Duration) time.Duration {
	if point := state(p.compute, at); point != nil {
		return point.Delay
	}
	return 0
}

// ServerDown reports whether the server is down at this instant.
func (p *Plan) ServerDown(at time.Duration) bool {
	for i := range p.faults {
		if p.faults[i].Kind == Restart && p.faults[i].Active(at) {
			return true
		}
	}
	return false
}

// NextOutage returns the next span of time in which the server is down. The span begins at the given instant or later.
// ok is false when the server stays up. When restarts overlap, ServerDown(until) is true, and NextOutage(until) returns
// the next part of the outage.
func (p *Plan) NextOutage(at time.Duration) (from, until time.Duration, ok bool) {
	for i := range p.faults {
		f := &p.faults[i]
		if f.Kind != Restart {
			continue
		}
		if begin, comes := f.next(at); comes && (!ok || begin < from) {
			from = begin
			until = f.windowStart(begin) + f.For
			ok = true
		}
	}
	return from, until, ok
}

// next returns the first instant, not before at, at which the fault is active; false when there is none.
func (f *Fault) next(at time.Duration) (time.Duration, bool) {
	switch {
	case at <= f.At:
		return f.At, true
	case f.Active(at):
		return at, true
	case f.Every == 0:
		return 0, false
	}
	return f.windowStart(at) + f.Every, true
}

// windowStart returns the start of the newest window that does not begin after an instant.
func (f *Fault) windowStart(at time.Duration) time.Duration {
	return f.At + time.Duration(max(f.windows(at)-1, 0))*f.Every
}

// Latency returns the delay of an answer by those latency faults that are active from the start of
// the episode.
func (p *Plan) Latency() (d time.Duration) {
	for i := range p.faults {
		if f := &p.faults[i]; f.Kind == Latency && f.Active(0) {
			d += f.Delay
		}
	}
	return d
}

// Spikes returns for how long the server stops because of the spikes that begin in (after, until].
func (p *Plan) Spikes(after, until time.Duration) (stop time.Duration) {
	for i := range p.faults {
		if f := &p.faults[i]; f.Kind == Spike {
			stop += time.Duration(f.windows(until)-f.windows(after)) * f.Delay
		}
	}
	return stop
}

// Active reports whether the fault acts at this instant. A spike is active for its Delay.
func (f *Fault) Active(at time.Duration) bool {
	if at < f.At {
		return false
	}
	length := f.For
	if f.Kind == Spike {
		length = f.Delay
	}
	since := at - f.At
	if f.Every > 0 {
		since %= f.Every
	}
	return length == 0 || since < length
}

// windows returns the number of the fault's windows that have begun by this instant.
func (f *Fault) windows(at time.Duration) int {
	switch {
	case at < f.At:
		return 0
	case f.Every == 0:
		return 1
	}
	return int((at-f.At)/f.Every) + 1
}

// draw returns a number in [0, 1), uniformly distributed, that depends only on seed, fault, direction and tick.
func (p *Plan) draw(fault int, direction uint64, at time.Duration) float64 {
	tick := uint64(max(at, 0) / p.period)
	x := mix(p.seed ^ 0x6a09e667f3bcc909)
	x = mix(x ^ uint64(fault)<<1 ^ direction)
	x = mix(x ^ tick)
	return float64(x>>11) * 0x1p-53
}

// mix is one step of SplitMix64.
//
// Source: Steele, Lea, Flood, OOPSLA 2014.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
