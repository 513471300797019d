package servosim

import (
	"math"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim/motor"
)

// health holds the servo's own measurements, such as load and temperature, and the state of its protections.
//
// Guarded by Bus.mu.
type health struct {
	duty   float64 // -1 to 1
	amps   float64
	heat   motor.Heat
	volts  float64 // supply without load
	rail   float64 // measured supply, with the load of all servos
	demand float64 // duty of the control loop before its limit
	low    bool    // a script demands that the supply counts as outside its limits
	protection
}

// protection is the state of a servo's protections. The zero value has not tripped.
type protection struct {
	capped                           bool // torque is limited after an overload
	tripped                          bool // a call of overload has capped the torque, without a load
	overSince, surgeSince, idleSince rt.Instant
}

// rail is the state that all servos of a bus share: their supply and the adapter.
type rail struct {
	supply    motor.Rail
	unplugged bool // the adapter is unplugged, so all servos are silent
}

const (
	resetVolts   = 4.0  // supply below which the processor of a 7.4 V servo stops
	resetShare   = 0.54 // supply below which the processor of any servo stops, as a share of its nominal supply
	unobserved   = 0.1  // longest time between two readings, in seconds, for which the effort is known
	overloadDuty = 0.8
	overloadTime = 2 * time.Second // time until an overload trips a servo that has no register for this time
	overloadGone = time.Second     // time without a load after which a Feetech ends an overload
	idleDuty     = 0.05            // duty up to which the motor counts as without load
)

// monitor updates the measurements to the instant now. Then it updates the error bits.
//
//rt:noalloc
func (s *servo) monitor(now rt.Instant) {
	h := &s.health
	s.expire(now)
	if s.encoder.Faulty() {
		s.driveAgain(now) // because its reading may drift
	}
	s.measureVelocity(now)
	s.measureEffort(now)
	h.heat.Advance(&s.model.motor, h.amps, now)
	h.rail = s.rail.supply.Volts(h.volts)
	s.protect(now)
	s.emitChange(now)
}

// measureEffort computes the load of the motor. If two readings are far apart, the effort of an
// ideal shaft between them is unknown. It then trips no protection, unless the shaft presses
// against an obstacle.
//
//rt:noalloc
func (s *servo) measureEffort(now rt.Instant) {
	h := &s.health
	old := math.Abs(h.amps * h.duty)
	if s.motors != nil {
		h.duty, h.amps, h.demand = s.motors.Drive(now, s.joint)
	} else {
		off := s.pressing(now)
		if h.heat.Since(now) > unobserved && off == 0 {
			h.overSince, h.surgeSince = 0, 0
		}
		h.duty, h.amps, h.demand = s.cfg.joints[s.joint].Effort(&s.loop, off, s.mem[s.at.torque] == torqueOn,
			float64(s.velocity))
	}
	s.checkObject(now)
	if s.series == seriesX {
		f := float64(s.direction())
		h.duty = f * h.duty
		h.amps = f * h.amps
		h.demand = f * h.demand
	}
	s.rail.supply.Draw(old, math.Abs(h.amps*h.duty)) // the motor's bridge draws current only while it is on
}

// protect sets the error bits and applies their consequences.
//
//rt:noalloc
func (s *servo) protect(now rt.Instant) {
	h := &s.health
	deci := int64(h.rail*10 + 0.5)
	low := h.low || deci < s.get(s.at.minVoltage) || deci > s.get(s.at.maxVoltage)
	hot := int64(h.heat.Celsius+0.5) >= s.get(s.at.maxTemperature)
	limit, after := overloadDuty, overloadTime
	if s.feetech() {
		limit, after = float64(s.get(stsOverload))/100, time.Duration(s.get(stsProtectTime))*10*time.Millisecond
	}
	over := motor.Lasts(&h.overSince, math.Abs(h.duty) > limit, after, now)
	if s.feetech() {
		s.protectFeetech(low, hot, over, now)
	} else {
		// Both Dynamixel series have the same bits for these three faults.
		if s.series == seriesAX {
			s.alarm &^= axVoltage | axOverheat
		}
		s.raise(low, axVoltage)
		s.raise(hot, axOverheat)
		s.raise(over, axOverload)
		s.raise(s.series == seriesX && s.encoder.Reported(), xFaultEncoder)
	}
	if s.cutsTorque() {
		s.cutTorque(now)
	}
}

// protectFeetech sets the error bits of a Feetech servo. It clears a bit when its cause has gone.
// An overload stays, with a fifth of the torque, until the load was absent for overloadGone or
// torque is switched off. The sources disagree about the end of an overload, see
// Config.OverloadYields.
//
//rt:noalloc
func (s *servo) protectFeetech(low, hot, over bool, now rt.Instant) {
	h := &s.health
	s.alarm &^= faultVoltage | faultTemperature | faultCurrent | faultEncoder
	s.raise(low, faultVoltage)
	s.raise(hot, faultTemperature)
	s.raise(over, faultOverload)
	s.raise(s.encoder.Reported(), faultEncoder)
	if over && !h.capped {
		h.capped = true
		s.tune(now)
	}
	slack := h.capped && !h.tripped && math.Abs(h.demand) <= max(s.afterTrip(), idleDuty)
	if motor.Lasts(&h.idleSince, slack, overloadGone, now) {
		s.endOverload(now)
	}
	amps := float64(s.get(stsProtectAmps)) * stsAmp
	s.raise(motor.Lasts(&h.surgeSince, math.Abs(h.amps) > amps, time.Duration(s.get(38))*10*time.Millisecond, now),
		faultCurrent)
}

// endOverload ends the overload of a Feetech servo, which then has its full torque again.
//
//rt:noalloc
func (s *servo) endOverload(now rt.Instant) {
	s.alarm &^= faultOverload
	s.health.protection = protection{surgeSince: s.health.surgeSince}
	s.tune(now)
}

//rt:noalloc
func (s *servo) raise(on bool, bit uint8) {
	if on {
		s.alarm |= bit
	}
}

//rt:noalloc
func (s *servo) cutsTorque() bool {
	switch s.series {
	case seriesX:
		return s.alarm&s.mem[xShutdown] != 0
	case seriesAX:
		return s.alarm&s.mem[axShutdown] != 0
	}
	return s.alarm&s.mem[stsUnload]&^faultOverload != 0 // an overload only reduces the torque
}

//rt:noalloc
func (s *servo) cutTorque(now rt.Instant) {
	if s.series == seriesAX && s.alarm&axOverload != 0 {
		s.put(axTorqueLimit, 0)
	}
	if s.mem[s.at.torque] != 0 {
		s.mem[s.at.torque] = 0
		s.setDriven(now, false)
	}
}

// overload trips the servo's overload protection, as a blocked shaft does.
//
//rt:noalloc
func (s *servo) overload(now rt.Instant) {
	if s.unpowered {
		return
	}
	s.alarm |= faultOverload // the same bit in all series
	s.health.capped, s.health.tripped = true, true
	if !s.feetech() && s.cutsTorque() {
		s.cutTorque(now)
	}
	s.tune(now)
}

// State is the state of a servo at an instant, in the units of its own registers.
type State struct {
	ID       uint8
	Torque   bool
	Powered  bool // its supply is on
	Boots    bool // the servo is powered but still boots
	Position int  // position that a client would read
	Place    int  // true position of the shaft, in encoder counts
	Pressed  bool // the motor presses the shaft against an obstacle
	Holds    bool // the shaft holds an object: see Block
	Goal     int
	Duty     float64 // -1 to 1
	Amps     float64
	Volts    float64
	Fault    uint8 // Feetech, AX: the error bits; X: the hardware error
}

// States returns the present state of every servo, in the order of Config.Servos.
func (b *Bus) States() (all []State) {
	now := b.cfg.Clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.servos {
		s.refresh(now)
		goal, _ := s.goal()
		h := &s.health
		all = append(all, State{
			ID:       s.mem[s.at.id],
			Torque:   s.mem[s.at.torque] == torqueOn,
			Powered:  !s.unpowered,
			Boots:    s.booting,
			Position: s.present(s.encoderCount(now)),
			Place:    b.cfg.Plant.Present(now, s.joint),
			Goal:     goal,
			Pressed:  s.pressing(now) != 0,
			Holds:    s.obstacle.Gripped,
			Duty:     h.duty,
			Amps:     h.amps,
			Volts:    h.rail,
			Fault:    s.alarm | s.forced,
		})
	}
	return all
}

// TorqueEnabled reports for each servo, in the order of Config.Servos, whether its torque is on.
func (b *Bus) TorqueEnabled() (on []bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.servos {
		on = append(on, s.mem[s.at.torque] == torqueOn)
	}
	return on
}
