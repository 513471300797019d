package faulty

import (
	"time"
)

// Plan is a script with a seed: what happens to a message at an instant. All its
// methods are pure; instants count from the begin of the episode.
type Plan struct {
	faults []Fault
	seed   uint64
	period time.Duration // of the grid on which chance is drawn
}

// Plan returns the script's plan for a seed. Chance is drawn once per period, so
// whoever sends in the same period meets the same fate. A nil script has no
// faults.
func (s *Script) Plan(seed uint64, period time.Duration) *Plan {
	p := &Plan{seed: seed, period: max(period, time.Millisecond)}
	if s != nil {
		p.faults = s.Faults
	}
	return p
}

// Fate is what happens to one message.
type Fate struct {
	Lost    bool
	Nth     int // every nth message of its direction is lost, see Line.Next; 0: none
	Twice   bool
	Hold    bool          // until the next message of its direction has passed
	Swapped bool          // a message held before may pass behind this one
	Delay   time.Duration // latency and jitter
	Rate    int           // bytes a second of the line, 0: no limit
}

// Observation returns the fate of an observation that leaves the robot at this
// instant.
func (p *Plan) Observation(at time.Duration) Fate {
	return p.fate(at, DropObservation, DuplicateObservation, ReorderObservation, 0)
}

// Chunk returns the fate of a chunk that reaches the robot at this instant.
// Delay and Rate are for the way there: ask for them at its departure.
func (p *Plan) Chunk(at time.Duration) Fate {
	return p.fate(at, DropChunk, DuplicateChunk, ReorderChunk, 1)
}

func (p *Plan) fate(at time.Duration, drop, double, reorder Kind, direction uint64) (f Fate) {
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
			f.Twice = f.Twice || hit()
		case reorder:
			f.Swapped = true
			f.Hold = f.Hold || hit()
		case Latency:
			if direction == 1 {
				f.Delay += fault.Delay
			}
		case Jitter:
			f.Delay += time.Duration(p.draw(i, direction, at) * float64(fault.Delay))
		case Bandwidth:
			if f.Rate == 0 || fault.BytesPerSecond < f.Rate {
				f.Rate = fault.BytesPerSecond
			}
		}
	}
	return f
}

// Away reports whether the server is down at this instant.
func (p *Plan) Away(at time.Duration) bool {
	for i := range p.faults {
		if p.faults[i].Kind == Restart && p.faults[i].Active(at) {
			return true
		}
	}
	return false
}

// Absence returns from when until when the server is down, the first time from an
// instant on; ok is false when it stays. Where restarts overlap, Away(until) is
// true and Absence(until) goes on from there.
func (p *Plan) Absence(at time.Duration) (from, until time.Duration, ok bool) {
	for i := range p.faults {
		f := &p.faults[i]
		if f.Kind != Restart {
			continue
		}
		if begin, comes := f.next(at); comes && (!ok || begin < from) {
			from, until, ok = begin, f.begin(begin)+f.For, true
		}
	}
	return from, until, ok
}

// next returns the first instant from at on at which the fault acts.
func (f *Fault) next(at time.Duration) (time.Duration, bool) {
	switch {
	case at <= f.At:
		return f.At, true
	case f.Active(at):
		return at, true
	case f.Every == 0:
		return 0, false
	}
	return f.begin(at) + f.Every, true
}

// begin returns when the window began that is the last one at an instant, which
// is not before the first.
func (f *Fault) begin(at time.Duration) time.Duration {
	return f.At + time.Duration(max(f.begun(at)-1, 0))*f.Every
}

// Latency returns what every answer costs from the begin on.
func (p *Plan) Latency() (d time.Duration) {
	for i := range p.faults {
		if f := &p.faults[i]; f.Kind == Latency && f.Active(0) {
			d += f.Delay
		}
	}
	return d
}

// Spikes returns how long the server stops in all for spikes that are due in
// (after, until].
func (p *Plan) Spikes(after, until time.Duration) (stop time.Duration) {
	for i := range p.faults {
		f := &p.faults[i]
		if f.Kind != Spike {
			continue
		}
		stop += time.Duration(f.begun(until)-f.begun(after)) * f.Delay
	}
	return stop
}

// Active reports whether the fault acts at this instant. A spike acts for as
// long as its delay.
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

// begun counts the windows that began up to this instant.
func (f *Fault) begun(at time.Duration) int {
	switch {
	case at < f.At:
		return 0
	case f.Every == 0:
		return 1
	}
	return int((at-f.At)/f.Every) + 1
}

// draw is uniform in [0, 1), a function of seed, fault, direction and tick.
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
