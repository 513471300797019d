package servo

import (
	"math"
	"sync/atomic"
	"time"

	"edgert/rt"
	"edgert/servo/table"
)

const (
	healthEvery = 50 * time.Millisecond // one window of one motor is read that often
	healthRoom  = 2 * time.Millisecond  // left until the deadline, or it waits for the next tick
	healthLoss  = time.Millisecond      // beyond the computed end
	healthLate  = 10 * healthEvery      // so seldom where a motor is silent
)

// health is what the tick reads of its motors besides their positions, a little at a
// time.
type health struct {
	*armConst
	bus      *Bus
	goals    *goals
	newest   []Fault      // per joint, with its newest position
	readings []unitHealth // per unit

	poll
	checks
	faults

	hottest, lowest atomic.Int64 // degrees Celsius; tenths of a volt, 0: not known yet
}

// poll is which window is read next.
type poll struct {
	windows      []window
	due          rt.Instant
	next         int    // window to read
	turn         int    // the last one that was read in turn
	lastPriority int    // the last one that was read for its priority
	prioritized  uint32 // joints whose motors are read first
	tookPriority bool   // the next window is one of these
}

// unitHealth is the newest reading of one servo.
type unitHealth struct {
	voltage, temperature int // 0.1 V; degrees Celsius
	effort               float64
	push                 float64    // likewise, towards higher positions where it is above 0
	effortAt             rt.Instant // when that was read
	currentMax           int        // unit of its present current; 0: not known
	status               Fault
	expected             []expectedRegister // what its RAM holds unless it has restarted
	unread               uint32             // windows, one bit each, to be read before it counts as checked
	mismatches           int                // checks in a row that found something else
	goalMismatches       int                // and that found another goal
	silentSince          rt.Instant         // 0: it answers

	hotWarn, hotAct, lowWarn, lowAct bound
}

// window is a range of registers of one servo that is read at once.
type window struct {
	unit     int
	bit      uint32 // the unit's bit in the windows
	verifies bool   // it has registers that a check compares
	hasLoad  bool   // and the load or current
	group    *readGroup
}

// windowSpec is where a window begins and ends; a model that lacks the last register
// ends with the one before.
type windowSpec struct {
	from     table.Register
	to       [2]table.Register
	verifies bool
}

var windowSpecs = map[table.Protocol][]windowSpec{
	table.Feetech:    {{table.TorqueEnable, [2]table.Register{table.PresentCurrent, table.PresentTemperature}, true}},
	table.FeetechSCS: {{table.TorqueEnable, [2]table.Register{table.PresentTemperature}, true}},
	table.Dynamixel1: {{table.TorqueEnable, [2]table.Register{table.PresentTemperature}, true}},
	table.Dynamixel2: {
		{table.TorqueEnable, [2]table.Register{table.Status}, true},
		{table.PresentVoltage, [2]table.Register{table.PresentTemperature}, false},
		{table.BusWatchdog, [2]table.Register{table.PresentCurrent, table.PresentLoad}, true},
	},
}

func newHealth(a *Arm) *health {
	n := len(a.joints)
	h := &health{
		armConst: &a.armConst, bus: a.bus, goals: &a.goals, newest: a.faults,
		readings: make([]unitHealth, len(a.units)),
		faults: faults{
			streak: make([]int, n), encoders: make([]encoder, n), last: make([]Fault, n), exceeded: make([]Fault, n),
			offIDs: make([]ID, 0, len(a.units)), offWords: make([]int, len(a.units)), onWords: ones(len(a.units)),
		},
	}
	for i, u := range a.units {
		h.readings[i].setBounds(a.robot.Motors[u.joint].Bounds)
		for _, s := range windowSpecs[a.bus.protocol] {
			from, to := u.model.Row(s.from), u.model.Row(s.to[0])
			if to.Size == 0 {
				to = u.model.Row(s.to[1])
			}
			size := to.Addr + to.Size - from.Addr
			g := &readGroup{ids: []ID{u.id}, addr: from.Addr, params: size, all: 1, data: make([]byte, size), errs: make([]byte, 1)}
			g.expect(u.id)
			g.request = a.bus.format.AppendRead(nil, u.id, from.Addr, size)
			g.wire = a.bus.wireTime(len(g.request), 1, size)
			w := window{unit: i, bit: 1 << (len(h.windows) % 32), verifies: s.verifies, group: g}
			w.hasLoad = !u.shadow && (w.covers(u.model.Row(table.PresentLoad)) || w.covers(u.model.Row(table.PresentCurrent)))
			h.windows = append(h.windows, w)
		}
	}
	return h
}

//rt:noalloc
func (w *window) covers(r table.Row) bool {
	at := r.Addr - w.group.addr
	return r.Size != 0 && at >= 0 && at+r.Size <= w.group.params
}

//rt:noalloc
func (w *window) value(r table.Row) (v int, ok bool) {
	if !w.covers(r) {
		return 0, false
	}
	return r.Decode(w.group.data[r.Addr-w.group.addr:]), true
}

// monitor handles the faults that came with the positions, the silent motors, and one
// window where there is time.
//
//rt:noalloc
func (h *health) monitor(stale uint32, deadline rt.Instant) {
	now := h.clock.Now()
	for i := range h.units {
		if !h.units[i].shadow && stale&(1<<h.units[i].joint) != 0 {
			h.recheckUnit(i, now) // it may be another motor by now, or have restarted
		}
	}
	for i := range h.joints {
		if stale&(1<<i) == 0 {
			h.checkFaults(i)
		}
	}
	h.verifyUnchecked(stale, deadline)
	w := &h.windows[h.next]
	late := (stale != 0 || h.bus.retried) && now.Sub(h.due) < healthLate // this tick has waited long enough
	spare := healthLoss + healthRoom
	if now.Sub(h.due) >= healthEvery {
		spare = 0 // a tick that short never has more; the deadline bounds what a lost reply costs
	}
	fits := h.fits(w, spare, deadline)
	if late || now < h.due || !fits && (stale != 0 || now.Sub(h.due) < healthLate) {
		return
	}
	if !fits { // no tick has the time, see windowDeadline
		deadline = h.clock.Now().Add(w.group.wire + h.bus.replyDelay + healthLoss)
	}
	h.due = now.Add(healthEvery)
	h.next = h.nextWindow()
	if h.bus.gather(w.group, healthLoss, deadline) == 0 {
		h.recordWindow(w)
	}
}

// nextWindow is every second time one of a prioritized joint; the others take turns.
//
//rt:noalloc
func (h *health) nextWindow() int {
	n := len(h.windows)
	for i := 0; h.prioritized != 0 && !h.tookPriority && i < n; i++ {
		w := &h.windows[(h.lastPriority+1+i)%n]
		if bit := uint32(1) << h.units[w.unit].joint; w.hasLoad && h.prioritized&bit != 0 {
			h.prioritized, h.tookPriority = h.prioritized&^bit, true
			h.lastPriority = (h.lastPriority + 1 + i) % n
			return h.lastPriority
		}
	}
	h.tookPriority = false
	h.turn = (h.turn + 1) % n
	return h.turn
}

//rt:noalloc
func (h *health) fits(w *window, spare time.Duration, deadline rt.Instant) bool {
	return h.clock.Now().Add(w.group.wire+h.bus.replyDelay+spare) <= deadline
}

// windowDeadline is until when a window may be read. Where the reads leave no tick the
// time for it, as at high rates or with a slow adapter, one in healthEvery overruns its
// deadline: a motor that is never checked would be held for ever.
//
//rt:noalloc
func (h *health) windowDeadline(w *window, deadline rt.Instant) (end rt.Instant, ok bool) {
	now := h.clock.Now()
	if h.fits(w, 0, deadline) {
		h.crowdedSince = 0
		return deadline, true
	}
	if h.crowdedSince == 0 {
		h.crowdedSince = now
	}
	if now.Sub(h.crowdedSince) < healthEvery {
		return deadline, false
	}
	h.crowdedSince = 0
	return now.Add(w.group.wire + h.bus.replyDelay + healthLoss), true
}

//rt:noalloc
func (h *health) recordWindow(w *window) {
	m := h.units[w.unit].model
	u := &h.readings[w.unit]
	if v, ok := w.value(m.Row(table.PresentVoltage)); ok {
		u.voltage = v
		if v > 0 { // 0: not measured yet
			u.lowWarn.update(-v)
			u.lowAct.update(-v)
		}
	}
	if v, ok := w.value(m.Row(table.PresentTemperature)); ok {
		u.temperature = v
		u.hotWarn.update(v)
		u.hotAct.update(v)
	}
	if v, ok := w.value(m.Row(table.Status)); ok {
		u.status = StatusFault(m.Protocol, v)
	}
	if v, ok := w.value(m.Row(table.BusWatchdog)); ok && v < 0 && h.torque != 0 {
		h.watchdogFired = true
	}
	h.recordEffort(w, u)
	h.verify(w, u)
	h.updateExceeded(h.units[w.unit].joint)
	h.publishExtremes()
}

// Prioritize has the load of joints' motors read before the other windows, once.
//
//rt:noalloc
func (a *Arm) Prioritize(joints uint32) { a.health.prioritized |= joints }

//rt:noalloc
func (h *health) recordEffort(w *window, u *unitHealth) {
	m := h.units[w.unit].model
	effort, known := 0.0, false
	push := 0
	if v, ok := w.value(m.Row(table.PresentLoad)); ok {
		push = v
		most := fullLoad
		if limit, ok := w.value(m.Row(table.TorqueLimit)); ok && limit > 0 {
			most = min(most, limit)
		}
		effort, known = float64(max(v, -v))/float64(most), true
	}
	if v, ok := w.value(m.Row(table.PresentCurrent)); ok {
		if push == 0 {
			push = v
		}
		if u.currentMax > 0 {
			effort, known = max(effort, float64(max(v, -v))/float64(u.currentMax)), true
		}
	}
	if known {
		u.effort, u.effortAt = effort, h.clock.Now()
		u.push = math.Copysign(effort, float64(push))
	}
}

// pushLeast is the effort from which on a motor counts as pushing.
const pushLeast = 0.05

// Push returns which way joint i pushes, in its unit's direction: 1, -1, or 0 where its motor
// has no load. It is not known where the load was not read since an instant. A joint that
// holds a weight pushes against it. Feetech's Present_Load has its direction in bit 10,
// Dynamixel's Present_Current and Present_Load are signed.
//
//rt:noalloc
func (a *Arm) Push(i int, since rt.Instant) (way float32, known bool) {
	u := &a.health.readings[i]
	switch {
	case u.effortAt < since || u.effortAt == 0:
		return 0, false
	case u.effort < pushLeast:
		return 0, true
	case (u.push > 0) != a.joints[i].scale.flip:
		return 1, true
	}
	return -1, true
}

// RenewTorque switches the torque of joints off and on again: some servos complain of an
// overload until then. It has to be on, and their goals have to be where they are.
//
//rt:noalloc
func (a *Arm) RenewTorque(joints uint32) {
	h := a.health
	if joints &= h.torque; joints == 0 {
		return
	}
	for _, words := range [...][]int{h.offWords, h.onWords} {
		h.writeTorque(joints, words)
	}
}

// fullLoad is the present load of a motor at full duty, in its unit of 0.1 %.
const fullLoad = 1000

// readCurrentLimit reads the current at which a motor protects itself.
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
		a.health.readings[i].currentMax = v
	}
	return nil
}

// Effort returns how hard joint i works as a share of what its limits allow; 0 when
// its motor does not report it, or not since an instant.
//
//rt:noalloc
func (a *Arm) Effort(i int, since rt.Instant) float64 {
	if u := &a.health.readings[i]; u.effortAt >= since {
		return u.effort
	}
	return 0
}

//rt:noalloc
func (h *health) publishExtremes() {
	hot, low := 0, 0
	for i := range h.readings {
		u := &h.readings[i]
		hot = max(hot, u.temperature)
		if u.voltage > 0 && (low == 0 || u.voltage < low) {
			low = u.voltage
		}
	}
	h.hottest.Store(int64(hot))
	h.lowest.Store(int64(low))
}

// Extremes returns the hottest motor's temperature in degrees Celsius and the
// lowest supply in volts; 0 before they were read. Any thread may call it.
//
//rt:noalloc
func (a *Arm) Extremes() (hottest, volts float64) {
	return float64(a.health.hottest.Load()), float64(a.health.lowest.Load()) / 10
}
