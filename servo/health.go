package servo

import (
	"fmt"
	"sync/atomic"
	"time"

	"edgert/rt"
	"edgert/servo/robot"
	"edgert/servo/table"
)

const (
	healthEvery  = 50 * time.Millisecond // one window of one motor is read that often
	healthRoom   = 2 * time.Millisecond  // left until the deadline, or it waits for the next tick
	healthLoss   = time.Millisecond      // beyond the computed end
	healthLate   = 10 * healthEvery      // an arm with a silent motor is looked after too, that seldom
	persistent   = 3                     // reads in a row with a complaint before it counts
	missedTorque = 2                     // readings without torque, though it was switched on
)

// health watches the motors on the tick, a little at a time: it reads supply,
// temperature and torque of one motor after the other, and turns complaints into
// the robot's reactions.
//
// Owner: tick thread.
type health struct {
	windows []window
	next    int
	due     rt.Instant
	units   []unitHealth  // per unit
	streak  []int         // per joint: reads in a row with a complaint
	held    uint32        // joints that keep their goal
	limp    uint32        // joints whose torque was taken
	beyond  []Fault       // per joint: which of the robot's bounds its motors are beyond
	warned  uint32        // joints beyond a bound of which people are told
	off     []int         // zeros, for a sync write
	armed   bool          // torque was switched on
	gone    bool          // a motor has lost it
	asleep  bool          // the bus watchdogs have fired
	leash   time.Duration // of the bus watchdogs; 0: none
	stop    robot.Reaction
	stopped int // the joint that stops the run
	why     Fault

	hottest, lowest atomic.Int64 // degrees Celsius; tenths of a volt, 0: not known yet
}

// unitHealth is the newest reading of one servo.
type unitHealth struct {
	voltage, temperature int // 0.1 V; degrees Celsius
	status               Fault
	missed               int // readings in a row without torque

	hotWarn, hotAct, lowWarn, lowAct bound
}

// window is a stretch of registers read at once.
type window struct {
	unit  int
	group *group
}

// spans are the stretches worth reading, from and to a register.
var spans = map[table.Protocol][][2]table.Register{
	table.Feetech:    {{table.TorqueEnable, table.PresentTemperature}},
	table.FeetechSCS: {{table.TorqueEnable, table.PresentTemperature}},
	table.Dynamixel1: {{table.TorqueEnable, table.PresentTemperature}},
	table.Dynamixel2: {{table.TorqueEnable, table.Status}, {table.PresentVoltage, table.PresentTemperature}, {table.BusWatchdog, table.BusWatchdog}},
}

func newHealth(a *Arm) *health {
	h := &health{units: make([]unitHealth, len(a.units)), streak: make([]int, len(a.joints)), off: []int{0}, beyond: make([]Fault, len(a.joints))}
	for i, u := range a.units {
		h.units[i].bind(a.robot.Motors[u.joint].Bounds)
		for _, s := range spans[a.bus.protocol] {
			from, to := u.model.Row(s[0]), u.model.Row(s[1])
			n := to.Addr + to.Size - from.Addr
			g := &group{ids: []ID{u.id}, addr: from.Addr, params: n, all: 1, data: make([]byte, n), errs: make([]byte, 1)}
			g.mean(u.id)
			g.request = a.bus.format.AppendRead(nil, u.id, from.Addr, n)
			g.wire = a.bus.wireTime(len(g.request), 1, n)
			h.windows = append(h.windows, window{i, g})
		}
	}
	return h
}

// expect says whether the motors are meant to be under torque from now on.
func (h *health) expect(torque bool) {
	h.armed, h.gone, h.asleep = torque, false, false
	for i := range h.units {
		h.units[i].missed = 0
	}
}

// wakeful notes a silence of ours that the bus watchdogs did not bear. It comes
// before a request ends that silence.
//
//rt:noalloc
func (a *Arm) wakeful(now rt.Instant) {
	if h := a.health; h.armed && h.leash > 0 && now.Sub(a.bus.sent) >= h.leash {
		h.asleep = true
	}
}

// watch is the part of a read that looks after the motors: complaints that came
// with the positions, and one window where there is time.
//
//rt:noalloc
func (a *Arm) watch(stale uint32, deadline rt.Instant) {
	h := a.health
	for i := range a.joints {
		if stale&(1<<i) == 0 {
			a.weigh(i)
		}
	}
	now := a.clock.Now()
	w := &h.windows[h.next]
	tired := (stale != 0 || a.bus.repeated) && now.Sub(h.due) < healthLate // this tick has waited long enough
	if tired || now < h.due || now.Add(w.group.wire+a.bus.settle+healthLoss+healthRoom) > deadline {
		return
	}
	h.due = now.Add(healthEvery)
	h.next = (h.next + 1) % len(h.windows)
	if a.bus.gather(w.group, healthLoss, deadline) == 0 {
		a.note(w)
	}
}

// weigh counts a joint's complaints, the motor's and the robot's, and reacts to
// those that stay.
//
//rt:noalloc
func (a *Arm) weigh(i int) {
	h, fault := a.health, a.faults[i]
	if fault&FaultHardware != 0 {
		fault |= h.units[i].status
	}
	fault |= h.beyond[i]
	bit := uint32(1) << i
	if fault == 0 {
		h.streak[i] = 0
		h.held &^= bit &^ h.limp
		return
	}
	if h.streak[i]++; h.streak[i] < persistent {
		return
	}
	switch reaction(&a.robot.Safety, fault) {
	case robot.Hold:
		h.held |= bit
	case robot.Limp:
		if h.limp&bit == 0 && h.armed {
			h.limp |= bit
			h.held |= bit
			a.bus.SyncWrite(a.rows.torque, a.ids[i:i+1], h.off)
		}
	case robot.Stop:
		if h.stop == "" {
			h.stop, h.stopped, h.why = robot.Stop, i, fault
		}
	}
}

// reaction is the hardest of those that the faults ask for.
//
//rt:noalloc
func reaction(s *robot.Safety, f Fault) robot.Reaction {
	worst := robot.Ignore
	for _, c := range [...]struct {
		bits Fault
		r    robot.Reaction
	}{
		{FaultVoltage | FaultShock, s.Voltage}, {FaultEncoder, s.Encoder},
		{FaultTemperature, s.Overheat}, {FaultCurrent | FaultOverload, s.Overload},
	} {
		if f&c.bits != 0 && rank(c.r) > rank(worst) {
			worst = c.r
		}
	}
	return worst
}

//rt:noalloc
func rank(r robot.Reaction) int {
	switch r {
	case robot.Hold:
		return 1
	case robot.Limp:
		return 2
	case robot.Stop:
		return 3
	}
	return 0
}

// note keeps what a window has brought.
//
//rt:noalloc
func (a *Arm) note(w *window) {
	h, m := a.health, a.units[w.unit].model
	u := &h.units[w.unit]
	if v, ok := w.value(m.Row(table.PresentVoltage)); ok {
		u.voltage = v
		u.supplied()
	}
	if v, ok := w.value(m.Row(table.PresentTemperature)); ok {
		u.temperature = v
		u.heated()
	}
	if v, ok := w.value(m.Row(table.Status)); ok {
		u.status = StatusFault(m.Protocol, v)
	}
	if v, ok := w.value(m.Row(table.BusWatchdog)); ok && v < 0 && h.armed {
		h.asleep = true
	}
	if v, ok := w.value(m.Row(table.TorqueEnable)); ok {
		expected := h.armed && h.limp&(1<<a.units[w.unit].joint) == 0
		if v != 0 || !expected {
			u.missed = 0
		} else if u.missed++; u.missed >= missedTorque {
			h.gone = true
		}
	}
	a.confront(a.units[w.unit].joint)
	h.sum()
}

// sum publishes the extremes.
//
//rt:noalloc
func (h *health) sum() {
	hot, low := 0, 0
	for i := range h.units {
		u := &h.units[i]
		hot = max(hot, u.temperature)
		if u.voltage > 0 && (low == 0 || u.voltage < low) {
			low = u.voltage
		}
	}
	h.hottest.Store(int64(hot))
	h.lowest.Store(int64(low))
}

// value takes a register out of the window.
//
//rt:noalloc
func (w *window) value(r table.Row) (v int, ok bool) {
	at := r.Addr - w.group.addr
	if r.Size == 0 || at < 0 || at+r.Size > w.group.params {
		return 0, false
	}
	return r.Decode(w.group.data[at:]), true
}

// Hold returns the joints that shall keep their goal because of a motor's
// complaint.
//
// Owner: tick thread.
//
//rt:noalloc
func (a *Arm) Hold() uint32 { return a.health.held }

// TorqueGone reports that a motor is limp although it was switched on: it has
// restarted, or cut its torque by itself. What was in its RAM is lost.
//
// Owner: tick thread.
//
//rt:noalloc
func (a *Arm) TorqueGone() bool { return a.health.gone }

// Asleep reports that Dynamixel's bus watchdogs have stopped the motors, because
// nothing was sent for too long: they hold, and refuse goals. ArmStep wakes them
// where they stand.
//
// Owner: tick thread.
//
//rt:noalloc
func (a *Arm) Asleep() bool { return a.health.asleep }

// Fatal returns why the run must end, nil when it need not.
//
// Owner: tick thread.
func (a *Arm) Fatal() error {
	h := a.health
	if h.stop == "" {
		return nil
	}
	j := &a.joints[h.stopped]
	return fmt.Errorf("servo: motor %d (%s) on %s: %w%s", j.id, j.name, a.path, h.why, a.measured(h.stopped, h.why))
}

// Climate returns the hottest motor's temperature in degrees Celsius and the
// lowest supply in volts; 0 before they were read. Any thread may call it.
//
//rt:noalloc
func (a *Arm) Climate() (hottest, volts float64) {
	return float64(a.health.hottest.Load()), float64(a.health.lowest.Load()) / 10
}
