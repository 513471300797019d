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
	healthEvery     = 50 * time.Millisecond  // one window of one motor is read that often
	healthRoom      = 2 * time.Millisecond   // left until the deadline, or it waits for the next tick
	healthLoss      = time.Millisecond       // beyond the computed end
	healthLate      = 10 * healthEvery       // an arm with a silent motor is looked after too, that seldom
	persistentReads = 3                      // reads in a row with a complaint before it counts
	mismatchReads   = 2                      // comparisons in a row that find something else: one may be of a damaged reply whose checksum fits
	bootMin         = 100 * time.Millisecond // no servo boots in less: one without a mark that was silent for longer may have restarted
	verifyFails     = 2                      // reads in one tick that bring nothing, before the next tick goes on
	longGap         = 500 * time.Millisecond // without a read: one without a mark may have restarted
	goalSlack       = 2                      // a goal register that is off by more is not ours
)

// health watches the motors on the tick, a little at a time: it reads supply,
// temperature, load, torque and marks of one motor after the other, of those first
// that were silent, and turns complaints into the robot's reactions.
//
// Owner: tick thread.
type health struct {
	windows    []window
	next       int // window to read
	turn       int // the last one that was read in turn
	last       int // the last one of a joint that wanted attention
	due        rt.Instant
	units      []unitHealth // per unit
	streak     []int        // per joint: reads in a row with a complaint
	encoders   []encoder    // per joint
	reactions  Reactions
	lastFaults []Fault // per joint: in the last read
	exceeded   []Fault // per joint: which of the robot's bounds its motors are beyond
	warned     uint32  // joints beyond a bound of which people are told
	off        []int   // zeros, for a sync write
	zeros      []ID    // joints whose torque goes off

	torque          uint32        // joints that were switched on
	torqueLost      uint32        // joints that have lost their torque by themselves
	restarted       uint32        // joints of which a motor has lost its mark
	unchecked       uint32        // joints that were silent and have not been compared since
	crowdedSince    rt.Instant    // since when no tick has had time to compare one; 0: it has
	goalMismatch    uint32        // joints whose goal register was not ours after a silence
	nextCheck       int           // window that compareSilent begins with
	prioritized     uint32        // joints whose motors are looked at first
	tookPriority    bool          // the next window is one of these
	watchdogFired   bool          // the bus watchdogs have fired
	watchdogTimeout time.Duration // of the bus watchdogs; 0: none
	stop            robot.Reaction
	stopped         int // the joint that stops the run
	why             Fault

	hottest, lowest atomic.Int64 // degrees Celsius; tenths of a volt, 0: not known yet
}

// Reactions are joints, one bit each, whose motors complain, by what the robot's
// description wants to become of them.
type Reactions struct {
	Hold     uint32 // keep their goal: supply, heat
	Overload uint32 // push against something: follow only goals that relieve them
	Encoder  uint32 // say positions that nobody can believe: are not driven
	Limp     uint32 // have their torque taken for the rest of the run
}

// unitHealth is the newest reading of one servo.
type unitHealth struct {
	voltage, temperature int // 0.1 V; degrees Celsius
	effort               float64
	effortAt             rt.Instant // when that was read
	currentMax           int        // unit of its present current; 0: not known
	status               Fault
	expected             []expectedRegister // what tells it from a servo that has restarted
	unread               uint32             // its windows, one bit each, to be read before it counts as compared
	mismatches           int                // comparisons in a row that found something else
	silentSince          rt.Instant         // since when; 0: it answers

	hotWarn, hotAct, lowWarn, lowAct bound
}

// expect says which joints are meant to be under torque from now on.
func (h *health) expect(joints uint32) {
	h.torque, h.torqueLost, h.watchdogFired, h.goalMismatch = joints, 0, false, 0
	for i := range h.units {
		h.units[i].mismatches = 0
	}
}

// checkBusWatchdog notes a silence of ours that the bus watchdogs did not bear. It comes
// before a request ends that silence.
//
//rt:noalloc
func (a *Arm) checkBusWatchdog(now rt.Instant) {
	if h := a.health; h.torque != 0 && h.watchdogTimeout > 0 && now.Sub(a.bus.sent) >= h.watchdogTimeout {
		h.watchdogFired = true
	}
}

// monitor is the part of a read that looks after the motors: complaints that came
// with the positions, the motors that were silent, and one window of another where
// there is time.
//
//rt:noalloc
func (a *Arm) monitor(stale uint32, deadline rt.Instant) {
	h := a.health
	now := a.clock.Now()
	for i := range a.units {
		a.noteSilence(i, stale, now)
	}
	for i := range a.joints {
		if stale&(1<<i) == 0 {
			a.checkFaults(i)
		}
	}
	a.verifyUnchecked(stale, deadline)
	w := &h.windows[h.next]
	tired := (stale != 0 || a.bus.retried) && now.Sub(h.due) < healthLate // this tick has waited long enough
	spare := healthLoss + healthRoom
	if now.Sub(h.due) >= healthEvery {
		spare = 0 // a tick that short never has more; the deadline bounds what a lost reply costs
	}
	fits := a.fits(w, spare, deadline)
	if tired || now < h.due || !fits && (stale != 0 || now.Sub(h.due) < healthLate) {
		return
	}
	if !fits { // no tick has the time: see makeRoom
		deadline = a.clock.Now().Add(w.group.wire + a.bus.replyDelay + healthLoss)
	}
	h.due = now.Add(healthEvery)
	h.next = a.nextWindow()
	if a.bus.gather(w.group, healthLoss, deadline) == 0 {
		a.recordWindow(w)
	}
}

// nextWindow is the window to read next: every second one of a joint that wants
// attention, that which says how hard its motor works; the others in turn.
//
//rt:noalloc
func (a *Arm) nextWindow() int {
	h := a.health
	n := len(h.windows)
	for i := 0; h.prioritized != 0 && !h.tookPriority && i < n; i++ {
		w := &h.windows[(h.last+1+i)%n]
		if bit := uint32(1) << a.units[w.unit].joint; w.hasLoad && h.prioritized&bit != 0 {
			h.prioritized, h.tookPriority = h.prioritized&^bit, true
			h.last = (h.last + 1 + i) % n
			return h.last
		}
	}
	h.tookPriority = false
	h.turn = (h.turn + 1) % n
	return h.turn
}

// fits reports whether a window can be read until so long before the deadline.
//
//rt:noalloc
func (a *Arm) fits(w *window, spare time.Duration, deadline rt.Instant) bool {
	return a.clock.Now().Add(w.group.wire+a.bus.replyDelay+spare) <= deadline
}

// verifyUnchecked reads what motors hold that were silent and answer again, as many
// of them as the tick has time for.
//
//rt:noalloc
func (a *Arm) verifyUnchecked(stale uint32, deadline rt.Instant) {
	h := a.health
	if h.unchecked&^stale == 0 {
		return
	}
	failed := 0
	for k := range h.windows {
		w := &h.windows[(h.nextCheck+k)%len(h.windows)]
		if h.units[w.unit].unread&w.bit == 0 || stale&(1<<a.units[w.unit].joint) != 0 {
			continue
		}
		end, ok := a.windowDeadline(w, deadline)
		if !ok {
			return
		}
		if a.bus.gather(w.group, healthLoss, end) == 0 {
			a.recordWindow(w)
		} else if failed++; failed == verifyFails {
			h.nextCheck = (h.nextCheck + k + 1) % len(h.windows) // the others come first in the next tick
			return
		}
	}
}

// recordWindow keeps what a window has brought.
//
//rt:noalloc
func (a *Arm) recordWindow(w *window) {
	h, m := a.health, a.units[w.unit].model
	u := &h.units[w.unit]
	if v, ok := w.value(m.Row(table.PresentVoltage)); ok {
		u.voltage = v
		u.checkVoltage()
	}
	if v, ok := w.value(m.Row(table.PresentTemperature)); ok {
		u.temperature = v
		u.checkTemperature()
	}
	if v, ok := w.value(m.Row(table.Status)); ok {
		u.status = StatusFault(m.Protocol, v)
	}
	if v, ok := w.value(m.Row(table.BusWatchdog)); ok && v < 0 && h.torque != 0 {
		h.watchdogFired = true
	}
	a.recordEffort(w, u)
	a.verify(w, u)
	a.updateExceeded(a.units[w.unit].joint)
	h.publishExtremes()
}

// compare holds a window against what the motor should hold. What differs is read
// once more before it counts.
//
//rt:noalloc
func (a *Arm) verify(w *window, u *unitHealth) {
	if !w.verifies {
		return
	}
	h, joint := a.health, a.units[w.unit].joint
	bit := uint32(1) << joint
	lost := false
	for i := range u.expected {
		if v, ok := w.value(u.expected[i].row); ok && v != u.expected[i].value {
			lost = true
		}
	}
	torque, known := w.value(a.rows.torque)
	limp := known && torque == 0 && h.torque&bit != 0
	if lost || limp {
		h.unchecked |= bit
		u.unread |= w.bit
		if u.mismatches++; u.mismatches >= mismatchReads {
			if lost {
				h.restarted |= bit
			}
			if limp {
				h.torqueLost |= bit
			}
		}
		return
	}
	u.unread &^= w.bit
	if known && torque != 0 && h.reactions.Limp&bit != 0 {
		a.DisableTorque(bit) // something has switched it on again
	}
	if goal, ok := w.value(a.rows.goal); ok && h.unchecked&bit != 0 && !a.units[w.unit].shadow {
		if d := goal - a.goals[joint]; d > goalSlack || d < -goalSlack {
			h.goalMismatch |= bit
		}
	}
	if u.unread == 0 {
		u.mismatches = 0
		a.verified(w.unit)
	}
}

// verified ends the doubt about a unit that holds what it should. One without a mark
// that was silent for as long as a boot takes counts as restarted all the same.
//
//rt:noalloc
func (a *Arm) verified(i int) {
	h, u := a.health, &a.health.units[i]
	bit := uint32(1) << a.units[i].joint
	if u.silentSince != 0 && len(u.expected) == 0 && !a.robot.Leader && a.clock.Now().Sub(u.silentSince) >= bootMin {
		h.restarted |= bit
	}
	u.silentSince = 0
	for k := range h.units {
		if a.units[k].joint == a.units[i].joint && h.units[k].unread != 0 {
			return // the other motor of the joint
		}
	}
	h.unchecked &^= bit
}

// publishExtremes publishes the extremes.
//
//rt:noalloc
func (h *health) publishExtremes() {
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

// Reactions returns which joints' motors complain, and for what.
//
// Owner: tick thread.
//
//rt:noalloc
func (a *Arm) Reactions() Reactions { return a.health.reactions }

// Unchecked returns the joints that were silent and whose motors have not been
// compared since with what they should hold.
//
// Owner: tick thread.
//
//rt:noalloc
func (a *Arm) Unchecked() uint32 { return a.health.unchecked }

// GoalMismatch returns once the joints that hold another goal, after a silence, than
// they were given last.
//
// Owner: tick thread.
//
//rt:noalloc
func (a *Arm) GoalMismatch() (joints uint32) {
	joints, a.health.goalMismatch = a.health.goalMismatch, 0
	return joints
}

// TorqueLost returns the joints that are limp although they were switched on: a
// motor has restarted, or cut its torque by itself.
//
// Owner: tick thread.
//
//rt:noalloc
func (a *Arm) TorqueLost() uint32 { return a.health.torqueLost }

// WatchdogFired reports that Dynamixel's bus watchdogs have stopped the motors, because
// nothing was sent for too long: they hold, and refuse goals. ArmStep wakes them
// where they stand.
//
// Owner: tick thread.
//
//rt:noalloc
func (a *Arm) WatchdogFired() bool { return a.health.watchdogFired }

// Fatal returns why the run must end, nil when it need not.
//
// Owner: tick thread.
func (a *Arm) Fatal() error {
	h := a.health
	if h.stop == "" {
		return nil
	}
	j := &a.joints[h.stopped]
	return fmt.Errorf("servo: motor %d (%s) on %s: %w%s", j.id, j.name, a.path, h.why, a.exceededText(h.stopped, h.why))
}

// Extremes returns the hottest motor's temperature in degrees Celsius and the
// lowest supply in volts; 0 before they were read. Any thread may call it.
//
//rt:noalloc
func (a *Arm) Extremes() (hottest, volts float64) {
	return float64(a.health.hottest.Load()), float64(a.health.lowest.Load()) / 10
}
