package servo

import (
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

const (
	// successive checks with another value that count as a mismatch; one may be a damaged reply whose checksum fits
	mismatchReads = 2
	// least time of a boot: a servo without a marker that was silent for longer may have restarted
	bootMin     = 100 * time.Millisecond
	longGap     = 500 * time.Millisecond // time without a Read in which a servo without a marker may restart
	verifyFails = 2                      // failed reads in one tick after which further reads wait for the next tick
	goalSlack   = 2                      // counts by which a goal register may differ
)

// checks compares registers of motors with their expected values: a motor that was silent may have
// restarted, or have lost its torque.
type checks struct {
	torque       robot.Joints // joints that were switched on
	torqueLost   robot.Joints // joints that have lost their torque by themselves
	restarted    robot.Joints // joints of which a motor has lost its marker
	goalMismatch robot.Joints // joints whose goal register had another goal after a silence
	unchecked    robot.Joints // joints whose motors were silent and have not been checked since
	nextCheck    int          // window with which verifyUnchecked begins
	// start of the time in which no tick had time for a window; 0: the newest window was read in time
	crowdedSince    rt.Instant
	watchdogFired   bool          // the bus watchdogs have stopped the motors
	watchdogTimeout time.Duration // timeout of the bus watchdogs; 0: no watchdog
}

// expect sets the joints that should be under torque from now on.
func (h *health) expect(joints robot.Joints) {
	h.torque = joints
	h.torqueLost = 0
	h.watchdogFired = false
	h.goalMismatch = 0
	for i := range h.readings {
		h.readings[i].mismatches = 0
	}
}

// checkBusWatchdog notes that the bus watchdogs have fired when the last request was longer ago
// than their timeout. Read calls it before its request.
//
//rt:noalloc
func (h *health) checkBusWatchdog(now rt.Instant) {
	if h.torque != 0 && h.watchdogTimeout > 0 && now.Sub(h.bus.sent) >= h.watchdogTimeout {
		h.watchdogFired = true
	}
}

// verifyUnchecked reads windows of unchecked motors that answer again, as many as the deadline allows.
//
//rt:noalloc
func (h *health) verifyUnchecked(stale robot.Joints, deadline rt.Instant) {
	if h.unchecked&^stale == 0 {
		return
	}
	failed := 0
	for k := range h.windows {
		w := &h.windows[(h.nextCheck+k)%len(h.windows)]
		if h.readings[w.unit].unread&w.bit == 0 || stale&(1<<h.units[w.unit].joint) != 0 {
			continue
		}
		end, ok := h.windowDeadline(w, deadline)
		if !ok {
			return
		}
		if h.bus.gather(w.group, healthLoss, end) == 0 {
			h.recordWindow(w)
		} else if failed++; failed == verifyFails {
			h.nextCheck = (h.nextCheck + k + 1) % len(h.windows) // the next tick begins with the next window
			return
		}
	}
}

// verify compares a window with the motor's expected values. When they differ, the window is read
// once more before the motor counts as restarted or limp.
//
//rt:noalloc
func (h *health) verify(w *window, u *unitHealth) {
	if !w.verifies {
		return
	}
	joint := h.units[w.unit].joint
	bit := robot.Joints(1) << joint
	lost := false
	for i := range u.expected {
		if v, ok := w.value(u.expected[i].row); ok && v != u.expected[i].value {
			lost = true
		}
	}
	torque, known := w.value(h.rows.torque)
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
	if h.otherGoal(w, u) {
		return
	}
	u.unread &^= w.bit
	if known && torque != 0 && h.reactions.Limp&bit != 0 {
		h.disableTorque(bit) // something has switched the motor's torque on again
	}
	if u.unread == 0 {
		u.mismatches = 0
		h.verified(w.unit)
	}
}

// otherGoal notes the joint when its goal register has another goal than the driver's after a
// silence. again is true when the register must be read once more before that counts.
//
//rt:noalloc
func (h *health) otherGoal(w *window, u *unitHealth) (again bool) {
	joint := h.units[w.unit].joint
	bit := robot.Joints(1) << joint
	goal, ok := w.value(h.rows.goal)
	if h.wheels.Has(joint) {
		goal, ok = w.value(h.rows.spin)
	}
	if !ok || h.unchecked&h.torque&bit == 0 || h.units[w.unit].shadow { // a limp motor's goal may differ
		return false
	}
	if d := goal + h.joints[joint].shift - h.goals.raw[joint]; d <= goalSlack && d >= -goalSlack {
		u.goalMismatches = 0
		return false
	}
	if u.goalMismatches++; u.goalMismatches < mismatchReads {
		u.unread |= w.bit
		return true
	}
	u.goalMismatches = 0
	h.goalMismatch |= bit
	return false
}

// verified ends the check of a unit that has its expected values. A follower's unit without expected values that was
// silent for at least the time of a boot counts as restarted nevertheless.
//
//rt:noalloc
func (h *health) verified(i int) {
	u := &h.readings[i]
	bit := robot.Joints(1) << h.units[i].joint
	if u.silentSince != 0 && len(u.expected) == 0 && !h.robot.Leader && h.clock.Now().Sub(u.silentSince) >= bootMin {
		h.restarted |= bit
	}
	u.silentSince = 0
	for k := range h.readings {
		if h.units[k].joint == h.units[i].joint && h.readings[k].unread != 0 {
			return // the joint's other motor is not checked yet
		}
	}
	h.unchecked &^= bit
}

// recheckUnit requests a check of unit i. The parameter at is the start of its silence.
//
//rt:noalloc
func (h *health) recheckUnit(i int, at rt.Instant) {
	u := &h.readings[i]
	h.unchecked |= 1 << h.units[i].joint
	for w := range h.windows {
		if h.windows[w].unit == i && h.windows[w].verifies {
			u.unread |= h.windows[w].bit
		}
	}
	if u.silentSince == 0 {
		u.silentSince = at
	}
}

// Recheck requests a check of every motor, as after a suspend or a step of the clock.
//
//rt:noalloc
func (a *Arm) Recheck() { a.health.recheckSince(a.clock.Now().Add(-bootMin)) }

//rt:noalloc
func (h *health) recheckSince(at rt.Instant) {
	for i := range h.units {
		h.recheckUnit(i, at)
	}
}

// Unchecked returns the joints whose motors were silent and have not been checked since.
//
//rt:noalloc
func (a *Arm) Unchecked() robot.Joints { return a.health.unchecked }

// GoalMismatch returns the joints whose goal register had another goal than the driver's after a
// silence, and forgets them.
//
//rt:noalloc
func (a *Arm) GoalMismatch() (joints robot.Joints) {
	joints, a.health.goalMismatch = a.health.goalMismatch, 0
	return joints
}

// TorqueLost returns the joints that are limp although the driver has switched their torque on.
//
//rt:noalloc
func (a *Arm) TorqueLost() robot.Joints { return a.health.torqueLost }

// BusWatchdogFired reports that Dynamixel's bus watchdogs have stopped the motors, because the bus
// was silent for too long: the motors hold, and refuse goals. ArmStep clears the watchdogs.
//
//rt:noalloc
func (a *Arm) BusWatchdogFired() bool { return a.health.watchdogFired }
