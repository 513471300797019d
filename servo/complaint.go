package servo

import (
	"fmt"
	"time"

	"edgert/rt"
	"edgert/servo/robot"
	"edgert/servo/table"
)

// weigh counts a joint's complaints, the motor's and the robot's, and reacts to
// those that stay. An encoder that complains is not believed from the first time
// on.
//
//rt:noalloc
func (a *Arm) weigh(i int) {
	h, fault := a.health, a.faults[i]
	if fault&FaultHardware != 0 {
		fault |= h.units[i].status
	}
	fault |= h.beyond[i]
	bit := uint32(1) << i
	if fault&^h.heard[i] != 0 {
		a.doubt(i, a.clock.Now()) // some faults take the torque away: look before it gets another goal
	}
	h.heard[i] = fault
	a.doubtEncoder(i, fault&FaultEncoder != 0)
	if fault == 0 {
		if h.streak[i] = max(0, min(h.streak[i], 2*persistent)-1); h.streak[i] > 0 {
			return // one that comes and goes stays for some reads
		}
		h.says.Hold, h.says.Overload = h.says.Hold&^bit, h.says.Overload&^bit
		return
	}
	if h.streak[i]++; h.streak[i] < persistent {
		return
	}
	h.says.Hold, h.says.Overload = h.says.Hold&^bit, h.says.Overload&^bit
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

// encoderTime is how long an encoder has not complained before it is believed again;
// complaints less than that apart add up, as of a magnet that comes loose.
const encoderTime = time.Second

// doubtEncoder keeps an encoder's complaint for some time, and ends the run, or what
// else the robot's description wants, by those that keep coming.
//
//rt:noalloc
func (a *Arm) doubtEncoder(i int, complains bool) {
	h, bit := a.health, uint32(1)<<i
	if h.says.Encoder&bit == 0 && !complains {
		return
	}
	now := a.clock.Now()
	switch e := &h.encoders[i]; {
	case complains:
		h.says.Encoder |= bit
		e.last = now
		if e.count++; e.count >= persistent {
			a.react(i, a.robot.Safety.Encoder, FaultEncoder, FaultEncoder)
		}
	case now.Sub(e.last) >= encoderTime:
		h.says.Encoder &^= bit
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
			h.says.Overload |= bit
		} else {
			h.says.Hold |= bit
		}
	case robot.Limp:
		if h.says.Limp&bit == 0 && h.torque&bit != 0 {
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
	h.says.Limp |= joints
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

// strain keeps how hard a motor works: the share of what its limits allow.
//
//rt:noalloc
func (a *Arm) strain(w *window, u *unitHealth) {
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
		u.effort, u.worked = effort, a.clock.Now()
	}
}

// fullLoad is the present load of a motor at full duty, in its unit of 0.1 %.
const fullLoad = 1000

// findLimit reads the current at which a motor protects itself, in the unit of its
// present current.
func (a *Arm) findLimit(i int) error {
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
	if u := &a.health.units[i]; u.worked >= since {
		return u.effort
	}
	return 0
}

// Prioritize has the motors of joints looked at before the others', once.
//
// Owner: tick thread.
//
//rt:noalloc
func (a *Arm) Prioritize(joints uint32) { a.health.attended |= joints }

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
