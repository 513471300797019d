package servo

import (
	"fmt"
	"time"

	"edgert/rt"
	"edgert/servo/robot"
	"edgert/servo/table"
)

// checkFaults counts a joint's complaints, the motor's and the robot's, and reacts to
// those that stay. An encoder that complains is not believed from the first time
// on.
//
//rt:noalloc
func (a *Arm) checkFaults(i int) {
	h, fault := a.health, a.faults[i]
	if fault&FaultHardware != 0 {
		fault |= h.units[i].status
	}
	fault |= h.exceeded[i]
	bit := uint32(1) << i
	if fault&^h.lastFaults[i] != 0 {
		a.recheckUnit(i, a.clock.Now()) // some faults take the torque away: look before it gets another goal
	}
	h.lastFaults[i] = fault
	a.checkEncoder(i, fault&FaultEncoder != 0)
	if fault == 0 {
		if h.streak[i] = max(0, min(h.streak[i], 2*persistentReads)-1); h.streak[i] > 0 {
			return // one that comes and goes stays for some reads
		}
		h.reactions.Hold, h.reactions.Overload = h.reactions.Hold&^bit, h.reactions.Overload&^bit
		return
	}
	if h.streak[i]++; h.streak[i] < persistentReads {
		return
	}
	h.reactions.Hold, h.reactions.Overload = h.reactions.Hold&^bit, h.reactions.Overload&^bit
	for _, c := range [...]struct {
		bits Fault
		r    robot.Reaction
	}{
		{FaultVoltage | FaultShock, a.robot.Safety.Voltage},
		{FaultTemperature, a.robot.Safety.Overheat}, {FaultCurrent | FaultOverload, a.robot.Safety.Overload},
	} {
		if fault&c.bits != 0 {
			a.react(i, c.r, fault, c.bits)
		}
	}
}

// encoderClear is how long an encoder has not complained before it is believed again;
// complaints less than that apart add up, as of a magnet that comes loose.
const encoderClear = time.Second

// checkEncoder keeps an encoder's complaint for some time, and ends the run, or what
// else the robot's description wants, by those that keep coming.
//
//rt:noalloc
func (a *Arm) checkEncoder(i int, complains bool) {
	h, bit := a.health, uint32(1)<<i
	if h.reactions.Encoder&bit == 0 && !complains {
		return
	}
	now := a.clock.Now()
	switch e := &h.encoders[i]; {
	case complains:
		h.reactions.Encoder |= bit
		e.last = now
		if e.count++; e.count >= persistentReads {
			a.react(i, a.robot.Safety.Encoder, FaultEncoder, FaultEncoder)
		}
	case now.Sub(e.last) >= encoderClear:
		h.reactions.Encoder &^= bit
		e.count = 0
	}
}

// encoder is what one said of itself.
type encoder struct {
	last  rt.Instant // complaint
	count int        // of those that are less than encoderTime apart
}

// react does what the robot's description wants to become of one kind of complaint.
//
//rt:noalloc
func (a *Arm) react(i int, r robot.Reaction, fault, kind Fault) {
	h, bit := a.health, uint32(1)<<i
	switch r {
	case robot.Hold:
		if kind&FaultOverload != 0 {
			h.reactions.Overload |= bit
		} else {
			h.reactions.Hold |= bit
		}
	case robot.Limp:
		if h.reactions.Limp&bit == 0 && h.torque&bit != 0 {
			a.DisableTorque(bit)
		}
	case robot.Stop:
		if h.stop == "" {
			h.stop, h.stopped, h.why = robot.Stop, i, fault
		}
	}
}

// DisableTorque takes the torque of joints for the rest of the run, and sees to it that
// they stay limp.
//
// Owner: tick thread.
//
//rt:noalloc
func (a *Arm) DisableTorque(joints uint32) {
	h := a.health
	h.reactions.Limp |= joints
	h.torque &^= joints
	h.zeros = h.zeros[:0]
	for i := range a.units {
		if joints&(1<<a.units[i].joint) != 0 {
			h.zeros = append(h.zeros, a.units[i].id)
		}
	}
	if len(h.zeros) > 0 {
		_ = a.bus.SyncWrite(a.rows.torque, h.zeros, h.off[:len(h.zeros)]) // read back with the next window
	}
}

// recordEffort keeps how hard a motor works: the share of what its limits allow.
//
//rt:noalloc
func (a *Arm) recordEffort(w *window, u *unitHealth) {
	m := a.units[w.unit].model
	effort, known := 0.0, false
	if v, ok := w.value(m.Row(table.PresentLoad)); ok {
		most := fullLoad
		if limit, ok := w.value(m.Row(table.TorqueLimit)); ok && limit > 0 {
			most = min(most, limit)
		}
		effort, known = float64(max(v, -v))/float64(most), true
	}
	if v, ok := w.value(m.Row(table.PresentCurrent)); ok {
		if u.currentMax > 0 {
			effort, known = max(effort, float64(max(v, -v))/float64(u.currentMax)), true
		}
	}
	if known {
		u.effort, u.effortAt = effort, a.clock.Now()
	}
}

// fullLoad is the present load of a motor at full duty, in its unit of 0.1 %.
const fullLoad = 1000

// readCurrentLimit reads the current at which a motor protects itself, in the unit of its
// present current.
func (a *Arm) readCurrentLimit(i int) error {
	u := a.units[i]
	for _, r := range [...]table.Register{table.ProtectionCurrent, table.CurrentLimit} {
		if !u.model.Has(r) || !u.model.Has(table.PresentCurrent) {
			continue
		}
		v, _, err := a.bus.ReadRegister(u.id, u.model.Row(r))
		if err != nil {
			return a.wrap(u, err)
		}
		a.health.units[i].currentMax = v
	}
	return nil
}

// Effort returns how hard joint i works as a share of what its limits allow; 0 when
// its motor does not say, or was not looked at since an instant.
//
// Owner: tick thread.
//
//rt:noalloc
func (a *Arm) Effort(i int, since rt.Instant) float64 {
	if u := &a.health.units[i]; u.effortAt >= since {
		return u.effort
	}
	return 0
}

// Prioritize has the motors of joints looked at before the others', once.
//
// Owner: tick thread.
//
//rt:noalloc
func (a *Arm) Prioritize(joints uint32) { a.health.prioritized |= joints }

const (
	boundReads  = 2 // readings in a row beyond a bound: one may be of a damaged reply whose checksum fits
	boundRelief = 3 // degrees, or tenths of a volt, back inside until it is over: an arm that holds cools, and its supply recovers
)

// bound is a limit that a robot's description puts to what a motor measures.
// What is measured counts as worse the higher it is.
type bound struct {
	on       bool
	at       int
	streak   int // readings in a row beyond it
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

// setBounds gives a unit its motor's bounds. Those of the supply are negative, since
// a lower one is worse.
func (u *unitHealth) setBounds(b robot.Bounds) {
	for _, p := range [...]struct {
		b  *bound
		at int
	}{{&u.hotWarn, b.HotWarn}, {&u.hotAct, b.HotAct}, {&u.lowWarn, -b.LowWarn}, {&u.lowAct, -b.LowAct}} {
		p.b.on, p.b.at = p.at != 0, p.at
	}
}

//rt:noalloc
func (u *unitHealth) checkTemperature() {
	u.hotWarn.update(u.temperature)
	u.hotAct.update(u.temperature)
}

// checkVoltage: a servo that says 0 V says that it has not measured yet.
//
//rt:noalloc
func (u *unitHealth) checkVoltage() {
	if u.voltage > 0 {
		u.lowWarn.update(-u.voltage)
		u.lowAct.update(-u.voltage)
	}
}

// updateExceeded sums up which bounds a joint's motors, its shadow among them, are
// beyond.
//
//rt:noalloc
func (a *Arm) updateExceeded(joint int) {
	h := a.health
	beyond, warned := Fault(0), false
	for i := range a.units {
		if a.units[i].joint != joint {
			continue
		}
		u := &h.units[i]
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

// Warned returns the joints with a motor that is hotter, or whose supply is
// lower, than the robot's description wants people to be told of.
//
// Owner: tick thread.
//
//rt:noalloc
func (a *Arm) Warned() uint32 { return a.health.warned }

// exceededText says which of the robot's own bounds a joint is beyond, for a message
// about why.
func (a *Arm) exceededText(joint int, why Fault) (text string) {
	for i := range a.units {
		if a.units[i].joint != joint {
			continue
		}
		u, b := &a.health.units[i], &a.robot.Motors[joint].Bounds
		if u.hotAct.exceeded && why&FaultTemperature != 0 {
			text += fmt.Sprintf("; %s has %d C, overheat_act is %d", a.units[i].name, u.temperature, b.HotAct)
		}
		if u.lowAct.exceeded && why&FaultVoltage != 0 {
			text += fmt.Sprintf("; %s has %.1f V, undervoltage_act is %.1f", a.units[i].name, float64(u.voltage)/10, float64(b.LowAct)/10)
		}
	}
	return text
}
