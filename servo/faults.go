package servo

import (
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

const (
	persistentReads = 3 // reads in a row with a fault that cause a reaction
	// time without an encoder fault until the encoder is trusted again; faults that are closer
	// together, as with a loose magnet, add up
	encoderClear = time.Second
	boundReads   = 2 // readings in a row beyond a bound that count; one may be from a damaged reply whose checksum fits
	// degrees, or tenths of a volt, by which a value must be inside the bound before the reaction ends: an arm that
	// holds cools, and its supply recovers
	boundRelief = 3
)

// faults turns the motors' faults, and measurements beyond the robot's own bounds, into the
// reactions of the robot's description.
type faults struct {
	reactions Reactions
	last      []Fault      // per joint: fault in the last read
	streak    []int        // per joint: reads in a row with a fault
	encoders  []encoder    // per joint
	exceeded  []Fault      // per joint: bounds of the robot that its motors exceed
	warned    robot.Joints // joints beyond a bound that Warned reports
	fatal     Fault        // fault that ends the run; 0: no such fault
	fatalOf   int          // joint of the fatal fault
	offIDs    []ID         // motors of the next sync write of Torque_Enable
	offWords  []int        // zeros
	onWords   []int        // ones
}

// Reactions holds the joints under each reaction to a fault.
type Reactions struct {
	Hold     robot.Joints // joints that keep their goal because of supply or heat
	Overload robot.Joints // joints that push against an obstacle, and follow only goals that reduce the push
	Encoder  robot.Joints // joints with a faulty encoder, which are not driven
	Limp     robot.Joints // joints without torque for the rest of the run
}

// encoder is the fault history of one joint's encoder.
type encoder struct {
	last  rt.Instant // time of the last fault
	count int        // faults less than encoderClear apart
}

// checkFaults counts the reads in a row in which joint i had a fault, and reacts to a persistent fault.
//
//rt:noalloc
func (h *health) checkFaults(i int) {
	fault := h.newest[i]
	if fault&FaultHardware != 0 {
		fault |= h.readings[i].status
	}
	fault |= h.exceeded[i]
	bit := robot.Joints(1) << i
	if fault&^h.last[i] != 0 {
		h.recheckUnit(i, h.clock.Now()) // some faults switch the torque off
	}
	h.last[i] = fault
	h.checkEncoder(i, fault&FaultEncoder != 0)
	if fault == 0 {
		if h.streak[i] = max(0, min(h.streak[i], 2*persistentReads)-1); h.streak[i] > 0 {
			return // an intermittent fault keeps its reaction for some reads
		}
	} else if h.streak[i]++; h.streak[i] < persistentReads {
		return
	}
	h.reactions.Hold, h.reactions.Overload = h.reactions.Hold&^bit, h.reactions.Overload&^bit
	for _, c := range [...]struct {
		bits Fault
		r    robot.Reaction
	}{
		{FaultVoltage | FaultShock, h.robot.Safety.Voltage},
		{FaultTemperature, h.robot.Safety.Overheat}, {FaultCurrent | FaultOverload, h.robot.Safety.Overload},
	} {
		if fault&c.bits != 0 {
			h.react(i, c.r, fault, c.bits)
		}
	}
}

// checkEncoder marks the encoder of joint i as faulty until encoderClear after its last fault, and
// reacts to repeated faults.
//
//rt:noalloc
func (h *health) checkEncoder(i int, faulty bool) {
	bit := robot.Joints(1) << i
	if h.reactions.Encoder&bit == 0 && !faulty {
		return
	}
	now := h.clock.Now()
	switch e := &h.encoders[i]; {
	case faulty:
		h.reactions.Encoder |= bit
		e.last = now
		if e.count++; e.count >= persistentReads {
			h.react(i, h.robot.Safety.Encoder, FaultEncoder, FaultEncoder)
		}
	case now.Sub(e.last) >= encoderClear:
		h.reactions.Encoder &^= bit
		e.count = 0
	}
}

//rt:noalloc
func (h *health) react(i int, r robot.Reaction, fault, kind Fault) {
	bit := robot.Joints(1) << i
	switch r {
	case robot.Hold:
		if kind&FaultOverload != 0 {
			h.reactions.Overload |= bit
		} else {
			h.reactions.Hold |= bit
		}
	case robot.Limp:
		if h.reactions.Limp&bit == 0 && h.torque&bit != 0 {
			h.disableTorque(bit)
		}
	case robot.Stop:
		if h.fatal == 0 {
			h.fatalOf, h.fatal = i, fault
		}
	}
}

// DisableTorque switches the torque of joints off for the rest of the run.
//
//rt:noalloc
func (a *Arm) DisableTorque(joints robot.Joints) { a.health.disableTorque(joints) }

//rt:noalloc
func (h *health) disableTorque(joints robot.Joints) {
	h.reactions.Limp |= joints
	h.torque &^= joints
	h.writeTorque(joints, h.offWords) // the next window reads the torque back
}

//rt:noalloc
func (h *health) writeTorque(joints robot.Joints, words []int) {
	h.offIDs = h.offIDs[:0]
	for i := range h.units {
		if joints&(1<<h.units[i].joint) != 0 {
			h.offIDs = append(h.offIDs, h.units[i].id)
		}
	}
	if len(h.offIDs) > 0 {
		_ = h.bus.syncWrite(h.rows.torque, h.offIDs, words[:len(h.offIDs)])
	}
}

// bound is an upper limit of a measurement.
type bound struct {
	on       bool
	at       int
	streak   int // readings in a row beyond the bound
	exceeded bool
}

//rt:noalloc
func (b *bound) update(v int) {
	switch {
	case !b.on:
	case v >= b.at:
		b.streak++
		b.exceeded = b.exceeded || b.streak >= boundReads
	default:
		b.streak = 0
		b.exceeded = b.exceeded && v >= b.at-boundRelief
	}
}

// setBounds sets the bounds of a unit's motor. The bounds of the supply are negated, because they
// are lower limits.
func (u *unitHealth) setBounds(b robot.Bounds) {
	for _, p := range [...]struct {
		b  *bound
		at int
	}{{&u.hotWarn, b.HotWarn}, {&u.hotAct, b.HotAct}, {&u.lowWarn, -b.LowWarn}, {&u.lowAct, -b.LowAct}} {
		p.b.on, p.b.at = p.at != 0, p.at
	}
}

// updateExceeded computes from the joint's motors which bounds the joint exceeds.
//
//rt:noalloc
func (h *health) updateExceeded(joint int) {
	beyond, warned := Fault(0), false
	for i := range h.units {
		if h.units[i].joint != joint {
			continue
		}
		u := &h.readings[i]
		if u.hotAct.exceeded {
			beyond |= FaultTemperature
		}
		if u.lowAct.exceeded {
			beyond |= FaultVoltage
		}
		warned = warned || u.hotWarn.exceeded || u.lowWarn.exceeded || u.hotAct.exceeded || u.lowAct.exceeded
	}
	h.exceeded[joint] = beyond
	h.warned &^= 1 << joint
	if warned {
		h.warned |= 1 << joint
	}
}

// Reactions returns the joints under each reaction.
//
//rt:noalloc
func (a *Arm) Reactions() Reactions { return a.health.reactions }

// Complaint returns joint i's fault of heat or supply, FaultTemperature or FaultVoltage, and the
// value that its motor has measured, in degrees Celsius or tenths of a volt, 0 before the first
// reading. It returns 0, 0 when the joint has no such fault.
//
//rt:noalloc
func (a *Arm) Complaint(i int) (fault Fault, value int) {
	u := &a.health.readings[i] // the joint's first motor: its fault comes with the joint's position
	switch f := a.health.last[i]; {
	case f&(FaultVoltage|FaultShock) != 0:
		return FaultVoltage, u.voltage
	case f&FaultTemperature != 0:
		return FaultTemperature, u.temperature
	}
	return 0, 0
}

// Warned returns the joints with a motor whose temperature or supply has reached a bound of the
// robot's description.
//
//rt:noalloc
func (a *Arm) Warned() robot.Joints { return a.health.warned }

// Fatal returns the reason why the run must end, or nil.
func (a *Arm) Fatal() error {
	h := a.health
	if h.fatal == 0 {
		return nil
	}
	return a.wrap(a.units[h.fatalOf], fmt.Errorf("%w%s", h.fatal, h.exceededText(h.fatalOf, h.fatal)))
}

// exceededText returns a text with each motor of a joint that exceeds one of the robot's own bounds, its measured value
// and the bound; "" if there is no such motor.
func (h *health) exceededText(joint int, why Fault) (text string) {
	for i := range h.units {
		if h.units[i].joint != joint {
			continue
		}
		u, b := &h.readings[i], &h.robot.Motors[joint].Bounds
		if u.hotAct.exceeded && why&FaultTemperature != 0 {
			text += fmt.Sprintf("; %s has %d C, overheat_act is %d", h.units[i].name, u.temperature, b.HotAct)
		}
		if u.lowAct.exceeded && why&FaultVoltage != 0 {
			text += fmt.Sprintf("; %s has %.1f V, undervoltage_act is %.1f", h.units[i].name, float64(u.voltage)/10,
				float64(b.LowAct)/10)
		}
	}
	return text
}
