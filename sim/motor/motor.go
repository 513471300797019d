// Package motor simulates the physics of a servo: motors, shafts and obstacles, encoders that fail,
// heat and supply. It has no registers, ids or packets. Positions are encoder counts.
//
// Its inputs are goals and a Loop, its outputs position, speed, duty and current. ideal.go has shafts that reach any
// goal at one speed, and fitted.go motors with friction and a load. encoder.go falsifies a shaft's reading, obstacle.go
// limits a shaft's travel, and heat.go computes a motor's temperature and the supply's voltage.
package motor

import "math"

// Motor is a DC motor with its gears. KT, Ohm and Inertia are values at the output shaft.
type Motor struct {
	Volts            float64 // nominal supply
	KT, Ohm, Inertia float64 // N m/A (V s/rad), ohm, kg m2
	Coulomb, Viscous float64 // N m, N m s/rad
	Stall            float64 // N m, from the data sheet
}

// Joint is a motor with its encoder and its load.
type Joint struct {
	Motor  Motor
	Counts int     // encoder counts in Arc
	Arc    float64 // radians
	Load   Load
}

const restBelow = 2.0 // counts/s up to which a shaft counts as at rest

// AtRest reports whether a speed, in counts per second, is so low that the shaft counts as at rest.
//
//rt:noalloc
func AtRest(speed float64) bool { return math.Abs(speed) <= restBelow }

// Effort computes the duty and the current of an ideal shaft. When pressed is not 0, the shaft presses against an
// obstacle, and its goal lies beyond the obstacle by this number of counts. Otherwise the shaft moves at the given
// speed in counts per second, with effort only under torque. The result demand is the duty before its limit.
//
//rt:noalloc
func (j *Joint) Effort(l *Loop, pressed int, torque bool, speed float64) (duty, amps, demand float64) {
	m := &j.Motor
	switch {
	case pressed != 0:
		demand = l.Gain * float64(pressed)
		duty = min(max(demand, -l.DutyMax), l.DutyMax)
		most := min(m.Stall/m.KT, l.AmpsMax)
		amps = min(max(duty*m.Volts/m.Ohm, -most), most)
	case torque && !AtRest(speed):
		w := speed * j.Arc / float64(j.Counts)
		amps = (math.Copysign(m.Coulomb, w) + m.Viscous*w) / m.KT
		duty = min(max((amps*m.Ohm+m.KT*w)/m.Volts, -1), 1)
		demand = duty
	}
	return duty, amps, demand
}
