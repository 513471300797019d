package servosim

import (
	"math"

	"edgert/rt"
	"edgert/servo/servosim/motor"
)

// seen is what the encoder says.
//
//rt:noalloc
func (s *servo) seen(now rt.Instant) int {
	return s.encoder.Read(s.cfg.Plant.Present(now, s.joint), now)
}

// mislead begins or ends an encoder fault.
//
//rt:noalloc
func (s *servo) mislead(f motor.EncoderFault, now rt.Instant) {
	s.encoder.Fail(f, s.cfg.Plant.Present(now, s.joint), now)
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
	p.Sink(now, s.joint, s.obstacle.Clamp(w.Rest), w.Speed)
}

// aim sends the shaft to where the encoder will read raw.
//
//rt:noalloc
func (s *servo) aim(now rt.Instant, raw int) {
	s.aimed = raw
	raw = s.encoder.Target(raw, s.cfg.Plant.Present(now, s.joint), s.t.counts, now)
	if s.cfg.motors == nil {
		raw = s.obstacle.Clamp(raw)
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
	s.bar(motor.ObstacleAt(at, place, holds), now)
}

// bar sets what is in the shaft's way.
//
//rt:noalloc
func (s *servo) bar(o motor.Obstacle, now rt.Instant) {
	s.obstacle = o
	if s.cfg.motors != nil {
		lo, hi := math.Inf(-1), math.Inf(1)
		if o.On {
			lo, hi = float64(o.Lo), float64(o.Hi)
		}
		s.cfg.motors.Block(now, s.joint, lo, hi)
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
	if !s.obstacle.On || !s.tight || !s.positions() {
		return 0
	}
	if off := s.aimed - s.seen(now); s.obstacle.Blocks(s.cfg.Plant.Present(now, s.joint), off) {
		return off
	}
	return 0
}

// object lets an object fall that is not pressed any more.
//
//rt:noalloc
func (s *servo) object(now rt.Instant) {
	if s.obstacle.Press(s.presses(now) != 0 && math.Abs(s.health.duty) >= idle, now) {
		s.dropped++
		s.bar(motor.Obstacle{}, now)
	}
}
