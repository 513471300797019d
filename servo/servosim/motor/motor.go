// Package motor is what a simulated servo's registers act on: motors, shafts and
// what is in their way, encoders that fail, heat and supply. It knows no registers,
// ids or packets; positions are encoder counts.
//
// Goals and a Loop go in, position, speed, duty and current come out. ideal.go has
// shafts that reach any goal at one speed, fitted.go motors with friction and a load;
// encoder.go and obstacle.go spoil what a shaft reads and where it gets to, heat.go
// adds up what it draws.
package motor

import "math"

// Motor is a DC motor and its gears. KT and Ohm and Inertia are seen at the output
// shaft.
type Motor struct {
	Volts            float64 // supply that it is meant for
	KT, Ohm, Inertia float64 // N m/A (V s/rad), ohm, kg m2
	Coulomb, Viscous float64 // N m, N m s/rad
	Stall            float64 // N m, the data sheet's
}

// Joint is a motor with its encoder and its load.
type Joint struct {
	Motor  Motor
	Counts int     // encoder counts in Arc
	Arc    float64 // radians
	Load   Load
}

const standsBelow = 2.0 // counts/s that count as standing still

// Stands reports whether a speed in counts per second counts as standing still.
//
//rt:noalloc
func Stands(speed float64) bool { return math.Abs(speed) <= standsBelow }

// Effort works out what an ideal shaft's movement takes: under torque at a speed
// in counts per second, or pressed against an obstacle with its goal that many counts
// behind it. demand is the duty without its limit.
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
	case torque && !Stands(speed):
		w := speed * j.Arc / float64(j.Counts)
		amps = (math.Copysign(m.Coulomb, w) + m.Viscous*w) / m.KT
		duty = min(max((amps*m.Ohm+m.KT*w)/m.Volts, -1), 1)
		demand = duty
	}
	return duty, amps, demand
}
