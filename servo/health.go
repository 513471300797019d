package servo

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

const (
	healthEvery = 50 * time.Millisecond // period between two windows
	healthRoom  = 2 * time.Millisecond  // least spare time before the deadline for the read of a window
	healthLoss  = time.Millisecond      // wait for a window's reply beyond its computed end
	healthLate  = 10 * healthEvery      // longest wait of a window while a motor is silent
)

// health holds the readings of the motors other than their positions. Each tick reads a small part
// of them.
type health struct {
	*armConst
	bus      *Bus
	goals    *goals
	newest   []Fault      // per joint: fault that came with its newest position
	readings []unitHealth // per unit

	poll
	checks
	faults

	// highest temperature of a motor in degrees Celsius, and lowest supply in tenths of a volt; 0: not known yet
	hottest, lowest atomic.Int64
}

// poll selects the window that is read next.
type poll struct {
	windows      []window
	due          rt.Instant
	next         int          // window to read
	turn         int          // last window that was read in the order of all windows
	lastPriority int          // last window that was read with priority
	prioritized  robot.Joints // joints whose motors are read first
	tookPriority bool         // the next window is a prioritized one
}

// unitHealth holds the newest readings of one servo.
type unitHealth struct {
	voltage, temperature int // 0.1 V; degrees Celsius
	effort               float64
	push                 float64    // signed effort, above 0 towards higher positions
	effortAt             rt.Instant // time of the reading of effort and push
	// current above which the motor protects itself, in counts of Present_Current; 0: not known
	currentMax     int
	status         Fault
	expected       []expectedRegister // values that the servo's RAM holds unless it has restarted
	unread         uint32             // windows, one bit each, that must be read until the check is complete
	mismatches     int                // checks in a row that found another value
	goalMismatches int                // checks in a row that found another goal
	silentSince    rt.Instant         // instant at which the motor's silence began; 0: the motor answers

	hotWarn, hotAct, lowWarn, lowAct bound
}

// window is a range of registers of one servo that is read in one transaction.
type window struct {
	unit     int
	bit      uint32 // the window's bit in unitHealth.unread
	verifies bool   // the window contains registers that verify compares
	hasLoad  bool   // the window contains the load or the current
	group    *readGroup
}

// windowSpec names the first and the last register of a window, and a second choice of the last
// register for models that lack the first choice.
type windowSpec struct {
	from     table.Register
	to       [2]table.Register
	verifies bool
}

var windowSpecs = map[table.Protocol][]windowSpec{
	table.Feetech:    {{table.TorqueEnable, [2]table.Register{table.PresentCurrent, table.PresentTemperature}, true}},
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
		armConst: &a.armConst,
		bus:      a.bus,
		goals:    &a.goals,
		newest:   a.faults,
		readings: make([]unitHealth, len(a.units)),
		faults: faults{
			streak:   make([]int, n),
			encoders: make([]encoder, n),
			last:     make([]Fault, n),
			exceeded: make([]Fault, n),
			offIDs:   make([]ID, 0, len(a.units)),
			offWords: make([]int, len(a.units)),
			onWords:  ones(len(a.units)),
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
			w := window{
				unit:     i,
				bit:      1 << (len(h.windows) % 32),
				verifies: s.verifies,
				group:    a.bus.newSingle(u.id, from.Addr, size),
			}
			w.hasLoad = !u.shadow && (w.covers(u.model.Row(table.PresentLoad)) ||
				w.covers(u.model.Row(table.PresentCurrent)))
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

// monitor marks the silent motors for a check, handles the faults that came with the positions,
// checks the motors that answer again, and reads one window if the tick has the time.
//
//rt:noalloc
func (h *health) monitor(stale robot.Joints, deadline rt.Instant) {
	now := h.clock.Now()
	for i := range h.units {
		if !h.units[i].shadow && stale&(1<<h.units[i].joint) != 0 {
			h.recheckUnit(i, now) // a silent motor may have been replaced, or may restart
		}
	}
	for i := range h.joints {
		if !stale.Has(i) {
			h.checkFaults(i)
		}
	}
	h.verifyUnchecked(stale, deadline)
	w := &h.windows[h.next]
	late := (stale != 0 || h.bus.retried) && now.Sub(h.due) < healthLate // this tick has waited long enough for replies
	spare := healthLoss + healthRoom
	if now.Sub(h.due) >= healthEvery {
		// The window is overdue, because no tick had this spare time. The deadline limits the wait for a lost reply.
		spare = 0
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

// nextWindow returns the index of the window to read next: every second time a window of a
// prioritized joint, if there is one, otherwise the next of all windows in turn.
//
//rt:noalloc
func (h *health) nextWindow() int {
	n := len(h.windows)
	for i := 0; h.prioritized != 0 && !h.tookPriority && i < n; i++ {
		w := &h.windows[(h.lastPriority+1+i)%n]
		if bit := robot.Joints(1) << h.units[w.unit].joint; w.hasLoad && h.prioritized&bit != 0 {
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

// windowDeadline returns the instant until which a window may be read; ok is false when it must wait for a later tick.
// When the position reads leave no tick enough time, as at high rates or with a slow adapter, one window per
// healthEvery may overrun the deadline: otherwise a motor would never be checked and would be held for ever.
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

// Prioritize requests the load of these joints' motors. Each load is read once, in turn with the other windows.
//
//rt:noalloc
func (a *Arm) Prioritize(joints robot.Joints) { a.health.prioritized |= joints }

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

// pushLeast is the least effort at which a motor counts as pushing.
const pushLeast = 0.05

// Push returns the direction in which joint i pushes, in its unit: 1, -1, or 0 when its motor has no load. The result
// known is false when the newest reading of the load is older than the instant since. A joint that holds a weight
// pushes against the weight. Feetech's Present_Load has its direction in bit 10; Dynamixel's Present_Current and
// Present_Load are signed.
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

// RenewTorque switches the torque of joints off and on again, because some servos report an overload until their torque
// is switched off. The joints must be under torque, and their goals must be their present positions.
//
//rt:noalloc
func (a *Arm) RenewTorque(joints robot.Joints) {
	h := a.health
	if joints &= h.torque; joints == 0 {
		return
	}
	for _, words := range [...][]int{h.offWords, h.onWords} {
		h.writeTorque(joints, words)
	}
}

// fullLoad is the value of Present_Load at full duty, in units of 0.1 %.
const fullLoad = 1000

// readCurrentLimit reads the current above which a motor protects itself.
func (a *Arm) readCurrentLimit(i int) error {
	u := a.units[i]
	for _, r := range [...]table.Register{table.ProtectionCurrent, table.CurrentLimit} {
		if !u.model.Has(r) || !u.model.Has(table.PresentCurrent) {
			continue
		}
		v, err := a.read(u, r)
		if err != nil {
			return err
		}
		a.health.readings[i].currentMax = v
	}
	return nil
}

// Effort returns the load of joint i as a share of its motor's limits; 0 when the motor does not report its load, or
// when the newest reading of the load is older than the instant since.
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

// Extremes returns the hottest motor's temperature in degrees Celsius and the lowest supply voltage
// in volts; 0 before the first reading. Any thread may call it.
//
//rt:noalloc
func (a *Arm) Extremes() (hottest, volts float64) {
	return float64(a.health.hottest.Load()), float64(a.health.lowest.Load()) / 10
}
