package servosim

import (
	"math"
	"time"

	"edgert/rt"
)

// freeTurn is how much of its encoder's range a shaft without a plant turns in a
// second.
const freeTurn = 0.75

// freeShafts is the built-in plant: shafts that start in the middle, turn at a
// constant speed towards their goal, and without torque sink or stay.
//
// Guarded by Bus.mu, like everything that calls it.
type freeShafts struct{ shafts []shaft }

// shaft moves from place at instant since.
type shaft struct {
	place, goal float64
	speed       float64 // counts per second
	since       rt.Instant
	torque      bool
	rest, sink  float64 // counts, counts per second
}

func newFreeShafts(models []*model) *freeShafts {
	f := &freeShafts{shafts: make([]shaft, len(models))}
	for i, m := range models {
		middle := float64(m.table.counts) / 2
		f.shafts[i].place, f.shafts[i].goal = middle, middle
		f.shafts[i].speed = freeTurn * float64(m.table.counts)
	}
	return f
}

//rt:noalloc
func (f *freeShafts) Goal(now rt.Instant, joint int, raw int) {
	f.shafts[joint].settle(now)
	f.shafts[joint].goal = float64(raw)
}

//rt:noalloc
func (f *freeShafts) Torque(now rt.Instant, joint int, on bool) {
	f.shafts[joint].settle(now)
	f.shafts[joint].torque = on
}

//rt:noalloc
func (f *freeShafts) Sink(now rt.Instant, joint, rest int, speed float64) {
	s := &f.shafts[joint]
	s.settle(now)
	s.rest, s.sink = float64(rest), speed
}

//rt:noalloc
func (f *freeShafts) Present(now rt.Instant, joint int) int {
	f.shafts[joint].settle(now)
	return round(f.shafts[joint].place)
}

//rt:noalloc
func (f *freeShafts) Speed(now rt.Instant, joint int) float64 {
	s := &f.shafts[joint]
	s.settle(now)
	to, speed := s.goal, s.speed
	if !s.torque {
		to, speed = s.rest, s.sink
	}
	if s.place == to {
		return 0
	}
	return math.Copysign(speed, to-s.place)
}

//rt:noalloc
func round(v float64) int { return int(math.Floor(v + 0.5)) }

//rt:noalloc
func (s *shaft) settle(now rt.Instant) {
	if now > s.since {
		to, speed := s.goal, s.speed
		if !s.torque {
			to, speed = s.rest, s.sink
		}
		reach := speed * float64(now.Sub(s.since)) / float64(time.Second)
		s.place += min(max(to-s.place, -reach), reach)
	}
	s.since = max(s.since, now)
}

// EncoderFault is how an encoder lies. The servo's own loop believes it: it drives
// the shaft to where the lie reads as the goal.
type EncoderFault struct {
	Offset int     // counts on top of what is true
	Drift  float64 // counts per second on top
	Stuck  bool    // it reads what it read at first
	Silent bool    // no error bit tells
}

// lie is an encoder fault under way.
type lie struct {
	EncoderFault
	on    bool
	since rt.Instant
	stuck int // what it read at first
}

// lies reports whether the servo has noticed that its encoder lies.
//
//rt:noalloc
func (s *servo) lies() bool { return s.lie.on && !s.lie.Silent }

// seen is what the encoder says.
//
//rt:noalloc
func (s *servo) seen(now rt.Instant) int {
	raw := s.cfg.Plant.Present(now, s.joint)
	l := &s.lie
	if !l.on {
		return raw
	}
	if l.Stuck {
		raw = l.stuck
	}
	return raw + l.Offset + round(l.Drift*now.Sub(l.since).Seconds())
}

// mislead begins or ends an encoder fault.
//
//rt:noalloc
func (s *servo) mislead(f EncoderFault, now rt.Instant) {
	s.lie = lie{EncoderFault: f, on: f.Offset != 0 || f.Drift != 0 || f.Stuck, since: now, stuck: s.cfg.Plant.Present(now, s.joint)}
	s.chase(now)
}

// grip lets the motor drive its shaft, or not.
//
//rt:noalloc
func (s *servo) grip(now rt.Instant, on bool) {
	s.tight, s.carried = on, s.carried || on
	s.sink(now)
	s.cfg.Plant.Torque(now, s.joint, on)
}

// sink lets a joint sink that was driven once and is not any more: before that it
// lies where it was put.
//
//rt:noalloc
func (s *servo) sink(now rt.Instant) {
	p, ok := s.cfg.Plant.(Sinker)
	if !ok || s.tight || !s.carried || s.joint >= len(s.cfg.Weights) {
		return
	}
	w := s.cfg.Weights[s.joint]
	if s.mem[s.t.at.torque] == torqueDamp {
		w.Speed *= damped
	}
	p.Sink(now, s.joint, s.obstacle.keep(w.Rest), w.Speed)
}

// damped is how much of its speed a sinking joint has whose windings are shorted.
const damped = 0.1

// aim sends the shaft to where the encoder will read raw.
//
//rt:noalloc
func (s *servo) aim(now rt.Instant, raw int) {
	s.aimed = raw
	if s.lie.on {
		place := s.cfg.Plant.Present(now, s.joint)
		off := raw - s.seen(now)
		switch {
		case s.lie.Stuck && off > 0: // the loop never sees that it is there
			raw = s.t.counts - 1
		case s.lie.Stuck && off < 0:
			raw = 0
		default:
			raw = place + off
		}
	}
	if s.cfg.motors == nil {
		raw = s.obstacle.keep(raw)
	}
	s.cfg.Plant.Goal(now, s.joint, raw)
}

// chase aims again, because what the encoder says or what is in the way has
// changed.
//
//rt:noalloc
func (s *servo) chase(now rt.Instant) {
	if s.tight && s.positions() {
		s.aim(now, s.aimed)
	}
}

// obstacle is what a shaft cannot pass, in encoder counts.
type obstacle struct {
	on      bool
	lo, hi  int
	holds   bool // it is an object, which falls when nothing presses on it
	gripped bool
	slack   rt.Instant // since when nothing has
}

// keep returns a place on this side of the obstacle.
//
//rt:noalloc
func (o *obstacle) keep(raw int) int {
	if !o.on {
		return raw
	}
	return min(max(raw, o.lo), o.hi)
}

// dropAfter is how long a grip may be loose before what it holds falls.
const dropAfter = 50 * time.Millisecond

// block puts something in the shaft's way: at a place that a client reads as at, or
// where the shaft stands, which it then cannot leave.
//
//rt:noalloc
func (s *servo) block(at int, here, holds bool, now rt.Instant) {
	place := s.cfg.Plant.Present(now, s.joint)
	if !here {
		at = place + s.facing()*(at-s.present(place))
	} else {
		at = place
	}
	o := obstacle{on: true, lo: math.MinInt32, hi: math.MaxInt32, holds: holds}
	if at <= place {
		o.lo = at
	}
	if at >= place {
		o.hi = at
	}
	s.bar(o, now)
}

// bar sets what is in the shaft's way.
//
//rt:noalloc
func (s *servo) bar(o obstacle, now rt.Instant) {
	s.obstacle = o
	if s.cfg.motors != nil {
		lo, hi := math.Inf(-1), math.Inf(1)
		if o.on {
			lo, hi = float64(o.lo), float64(o.hi)
		}
		s.cfg.motors.block(now, s.joint, lo, hi)
		return
	}
	s.chase(now)
	s.sink(now)
}

// presses returns by how many counts the motor wants to go beyond what is in its
// way; 0 when it does not press.
//
//rt:noalloc
func (s *servo) presses(now rt.Instant) int {
	o := &s.obstacle
	if !o.on || !s.tight || !s.positions() {
		return 0
	}
	place, off := s.cfg.Plant.Present(now, s.joint), s.aimed-s.seen(now)
	if off > 0 && place >= o.hi || off < 0 && place <= o.lo {
		return off
	}
	return 0
}

// object lets an object fall that is not pressed any more.
//
//rt:noalloc
func (s *servo) object(now rt.Instant) {
	o := &s.obstacle
	if !o.on || !o.holds {
		return
	}
	firm := s.presses(now) != 0 && math.Abs(s.health.duty) >= idle
	if firm {
		o.gripped = true
	}
	if s.lasts(&o.slack, o.gripped && !firm, dropAfter, now) {
		s.dropped++
		s.bar(obstacle{}, now)
	}
}
