package servosim

import (
	"math"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim/motor"
)

// wheeled is a Plant whose joints >= first are wheels of a base (motor.Fitted). These turn at a
// velocity, never to a position.
type wheeled struct {
	Plant
	wheels *motor.Fitted
	first  int
}

//rt:noalloc
func (p *wheeled) of(joint int) Plant {
	if joint >= p.first {
		return p.wheels
	}
	return p.Plant
}

//rt:noalloc
func (p *wheeled) Goal(now rt.Instant, joint, raw int) { p.of(joint).Goal(now, joint, raw) }

//rt:noalloc
func (p *wheeled) Present(now rt.Instant, joint int) int { return p.of(joint).Present(now, joint) }

//rt:noalloc
func (p *wheeled) Torque(now rt.Instant, joint int, on bool) { p.of(joint).Torque(now, joint, on) }

// Speed implements Turner. It returns 0 for the joints of a Plant that is not a Turner.
//
//rt:noalloc
func (p *wheeled) Speed(now rt.Instant, joint int) float64 {
	if t, ok := p.of(joint).(Turner); ok {
		return t.Speed(now, joint)
	}
	return 0
}

//rt:noalloc
func (p *wheeled) Sink(now rt.Instant, joint, rest int, speed float64) {
	if t, ok := p.of(joint).(Sinker); ok {
		t.Sink(now, joint, rest, speed)
	}
}

//rt:noalloc
func (s *servo) encoderCount(now rt.Instant) int {
	return s.encoder.Read(s.cfg.Plant.Present(now, s.joint), now)
}

//rt:noalloc
func (s *servo) setEncoderFault(f motor.EncoderFault, now rt.Instant) {
	s.encoder.Fail(f, s.cfg.Plant.Present(now, s.joint), now)
	s.driveAgain(now)
}

//rt:noalloc
func (s *servo) setDriven(now rt.Instant, on bool) {
	s.driven, s.wasDriven = on, s.wasDriven || on
	s.applyWeight(now)
	s.cfg.Plant.Torque(now, s.joint, on)
}

// applyWeight lets a joint sink that has lost its torque. A joint that never had torque does not
// sink.
//
//rt:noalloc
func (s *servo) applyWeight(now rt.Instant) {
	p, ok := s.cfg.Plant.(Sinker)
	if !ok || s.driven || !s.wasDriven || s.joint >= len(s.cfg.Weights) {
		return
	}
	w := s.cfg.Weights[s.joint]
	if s.feetech() && s.mem[stsTorque] == torqueDamp {
		w.Speed *= damped
	}
	p.Sink(now, s.joint, s.obstacle.Clamp(w.Rest), w.Speed)
}

// damped is the factor on a sinking joint's speed when its motor's windings are shorted.
const damped = 0.1

// driveTo moves the shaft to the position at which the encoder reads raw.
//
//rt:noalloc
func (s *servo) driveTo(now rt.Instant, raw int) {
	s.target = raw
	raw = s.encoder.Target(raw, s.cfg.Plant.Present(now, s.joint), s.counts, now)
	if s.motors == nil {
		raw = s.obstacle.Clamp(raw)
	}
	s.cfg.Plant.Goal(now, s.joint, raw)
}

// driveAgain recomputes the goal, because the encoder's fault or the obstacle has changed.
//
//rt:noalloc
func (s *servo) driveAgain(now rt.Instant) {
	if s.driven && s.positions() {
		s.driveTo(now, s.target)
	}
}

// block puts an obstacle in the shaft's way. The parameter at is its position, as a client reads it. If the parameter
// here is true, the obstacle is at the shaft's own position, and the shaft cannot leave this position.
//
//rt:noalloc
func (s *servo) block(at int, here, holds bool, now rt.Instant) {
	place := s.cfg.Plant.Present(now, s.joint)
	if !here {
		at = place + s.direction()*(at-s.present(place))
	} else {
		at = place
	}
	s.setObstacle(motor.ObstacleAt(at, place, holds), now)
}

//rt:noalloc
func (s *servo) setObstacle(o motor.Obstacle, now rt.Instant) {
	s.obstacle = o
	if s.motors != nil {
		lo, hi := math.Inf(-1), math.Inf(1)
		if o.On {
			lo, hi = float64(o.Lo), float64(o.Hi)
		}
		s.motors.Block(now, s.joint, lo, hi)
		return
	}
	s.driveAgain(now)
	s.applyWeight(now)
}

// pressing returns by how many counts the motor's target is beyond the obstacle; 0 when the motor
// does not press on it.
//
//rt:noalloc
func (s *servo) pressing(now rt.Instant) int {
	if !s.obstacle.On || !s.driven || !s.positions() {
		return 0
	}
	if off := s.target - s.encoderCount(now); s.obstacle.Blocks(s.cfg.Plant.Present(now, s.joint), off) {
		return off
	}
	return 0
}

// checkObject drops the held object when the motor has stopped pressing on it.
//
//rt:noalloc
func (s *servo) checkObject(now rt.Instant) {
	if s.obstacle.Press(s.pressing(now) != 0 && math.Abs(s.health.duty) >= idleDuty, now) {
		s.dropped++
		s.setObstacle(motor.Obstacle{}, now)
	}
}
