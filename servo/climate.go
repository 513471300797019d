package servo

import (
	"fmt"

	"edgert/servo/robot"
)

const (
	convinced = 2 // readings in a row beyond a bound: one may be of a damaged reply whose checksum fits
	relief    = 3 // degrees, or tenths of a volt, back inside until it is over: an arm that holds cools, and its supply recovers
)

// bound is a limit that a robot's description puts to what a motor measures.
// What is measured counts as worse the higher it is.
type bound struct {
	on     bool
	at     int
	streak int // readings in a row beyond it
	beyond bool
}

//rt:noalloc
func (b *bound) take(v int) {
	switch {
	case !b.on:
	case v >= b.at:
		b.streak++
		b.beyond = b.beyond || b.streak >= convinced
	default:
		b.streak = 0
		b.beyond = b.beyond && v >= b.at-relief
	}
}

// bind gives a unit its motor's bounds. Those of the supply are negative, since
// a lower one is worse.
func (u *unitHealth) bind(b robot.Bounds) {
	for _, p := range [...]struct {
		b  *bound
		at int
	}{{&u.hotWarn, b.HotWarn}, {&u.hotAct, b.HotAct}, {&u.lowWarn, -b.LowWarn}, {&u.lowAct, -b.LowAct}} {
		p.b.on, p.b.at = p.at != 0, p.at
	}
}

//rt:noalloc
func (u *unitHealth) heated() {
	u.hotWarn.take(u.temperature)
	u.hotAct.take(u.temperature)
}

// supplied: a servo that says 0 V says that it has not measured yet.
//
//rt:noalloc
func (u *unitHealth) supplied() {
	if u.voltage > 0 {
		u.lowWarn.take(-u.voltage)
		u.lowAct.take(-u.voltage)
	}
}

// confront sums up which bounds a joint's motors, its shadow among them, are
// beyond.
//
//rt:noalloc
func (a *Arm) confront(joint int) {
	h := a.health
	beyond, warned := Fault(0), false
	for i := range a.units {
		if a.units[i].joint != joint {
			continue
		}
		u := &h.units[i]
		if u.hotAct.beyond {
			beyond |= FaultTemperature
		}
		if u.lowAct.beyond {
			beyond |= FaultVoltage
		}
		warned = warned || u.hotWarn.beyond || u.lowWarn.beyond || u.hotAct.beyond || u.lowAct.beyond
	}
	h.beyond[joint] = beyond
	h.warned &^= 1 << joint
	if warned {
		h.warned |= 1 << joint
	}
}

// Warned returns the joints with a motor that is hotter, or whose supply is
// lower, than the robot's description wants people to be told of.
//
// Owner: tick thread.
//
//rt:noalloc
func (a *Arm) Warned() uint32 { return a.health.warned }

// measured says which of the robot's own bounds a joint is beyond, for a message
// about why.
func (a *Arm) measured(joint int, why Fault) (text string) {
	for i := range a.units {
		if a.units[i].joint != joint {
			continue
		}
		u, b := &a.health.units[i], &a.robot.Motors[joint].Bounds
		if u.hotAct.beyond && why&FaultTemperature != 0 {
			text += fmt.Sprintf("; %s has %d C, overheat_act is %d", a.units[i].name, u.temperature, b.HotAct)
		}
		if u.lowAct.beyond && why&FaultVoltage != 0 {
			text += fmt.Sprintf("; %s has %.1f V, undervoltage_act is %.1f", a.units[i].name, float64(u.voltage)/10, float64(b.LowAct)/10)
		}
	}
	return text
}
