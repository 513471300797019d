package servo

import (
	"fmt"
	"strings"
	"time"

	"edgert/rt"
	"edgert/servo/robot"
	"edgert/servo/table"
)

const (
	offRounds      = 3                    // times the torque-off frame is sent to motors that have not confirmed it
	offAttempts    = 2                    // for each write to a single motor after that
	confirmTimeout = 5 * time.Millisecond // for one confirmation: six silent motors take 0.2 s
)

// TorqueOff makes every motor limp: one frame to all, read back, and then each
// motor by itself as often as needed. It ignores faults and goes on past
// failures; the error, which wraps ErrTorque, names the motors that may still
// be under torque. It works after bus errors. Six silent motors take 0.2 s, on a line that
// never falls silent up to a second; a motor that gets the first frame, sent within 50 ms, is limp then.
//
// Owner: the thread that owns the arm, after the tick has ended.
func (a *Arm) TorqueOff() error {
	if a.closed {
		return fmt.Errorf("%w: the port is closed", ErrTorque)
	}
	a.bus.lost = false // try whatever happened before
	a.health.expect(0)
	if bad := setAll(a.bus, a.rows.torque, a.all, make([]int, len(a.all))); len(bad) > 0 {
		return fmt.Errorf("%w: %s may still be under torque; switch off the motors' supply", ErrTorque, a.motors(bad))
	}
	_ = a.EndRescue() // or OpenArm does
	return nil
}

// Triggers lists a leader's joints that are held so that they can be pulled.
func (a *Arm) Triggers() (joints []int) {
	for i, m := range a.robot.Motors {
		if m.Trigger != nil {
			joints = append(joints, i)
		}
	}
	return joints
}

// HoldTriggers gives a leader's triggers torque at their place, with whatever
// current their settings allow; nothing else of a leader is ever under torque.
func (a *Arm) HoldTriggers() error {
	for _, i := range a.Triggers() {
		j := &a.joints[i]
		raw := min(j.max, max(j.min, j.scale.raw(*a.robot.Motors[i].Trigger)))
		for _, w := range []struct {
			row   table.Row
			value int
		}{{a.rows.goal, raw - j.shift}, {a.rows.torque, 1}} {
			if _, err := a.bus.WriteRegister(j.id, w.row, w.value); err != nil {
				return a.wrap(a.units[i], err)
			}
		}
	}
	return nil
}

// readPositions fills a.positions with an answer of every motor.
func (a *Arm) readPositions() error {
	missing, patience := a.positions.all, ackTimeout
	for attempt := range maxAttempts {
		if attempt > 0 {
			a.bus.retries.Add(1)
			patience *= 2 // a slow adapter
		}
		if a.bus.isCanceled() {
			return ErrCanceled
		}
		missing = a.bus.gather(a.positions, patience, a.clock.Now().Add(a.positions.wire+2*patience))
		if missing == 0 {
			return nil
		}
		a.bus.waitQuiet()
	}
	var bad []int
	for i := range a.joints { // the first units are the joints
		if missing>>i&1 != 0 {
			bad = append(bad, i)
		}
	}
	return fmt.Errorf("%w: %s gave no position; check its cable and power", ErrMotorMissing, a.motors(bad))
}

// checkMore makes a length that nothing read on the tick has.
const checkMore = 4

// newReadback asks for more bytes than the register has: a late reply of a position must
// not pass for the goal's.
func (b *Bus) newReadback(r table.Row, ids []ID) *readGroup {
	return b.newGroup(r.Addr, r.Size+checkMore, ids)
}

// readBack returns the motors that have another word or do not answer, as indices of
// words.
func (b *Bus) readBack(check *readGroup, r table.Row, words []int, patience time.Duration, deadline rt.Instant) (bad []int) {
	missing := b.gather(check, patience, deadline)
	for i, want := range words {
		if missing>>i&1 != 0 || r.Decode(check.param(i)) != want {
			bad = append(bad, i)
		}
	}
	return bad
}

// setAll writes one register of all motors, at first with one frame, and
// returns the motors that do not have the value afterwards.
func setAll(b *Bus, r table.Row, ids []ID, words []int) (bad []int) {
	if b.drainNext > 0 {
		b.quietTime = confirmTimeout
		b.waitQuiet()
		b.quietTime = quietTime
	}
	check := b.newReadback(r, ids)
	for range offRounds {
		if b.syncWrite(r, ids, words) != nil {
			break
		}
		if bad = b.readBack(check, r, words, confirmTimeout, b.clock.Now().Add(check.wire+2*confirmTimeout)); len(bad) == 0 {
			return nil
		}
	}
	return setSingly(b, r, ids, words)
}

// setSingly is what remains when the group does not confirm: acknowledged
// writes, one motor after the other.
func setSingly(b *Bus, r table.Row, ids []ID, words []int) (bad []int) {
	b.SetRetry(offAttempts, confirmTimeout)
	defer b.ResetRetry()
	for i, id := range ids {
		if _, err := b.WriteRegister(id, r, words[i]); err != nil {
			bad = append(bad, i)
			continue
		}
		if got, _, err := b.ReadRegister(id, r); err != nil || got != words[i] {
			bad = append(bad, i)
		}
	}
	return bad
}

// Release makes every motor of a robot limp that nobody has opened. The error wraps
// ErrTorque and names the motors that did not confirm.
func Release(b *Bus, r robot.Robot) error {
	ids, row := r.IDs(), r.Motors[0].Model.Row(table.TorqueEnable)
	var names []string
	for _, i := range setAll(b, row, ids, make([]int, len(ids))) {
		// There is time now: the adapter may be a slow one.
		if _, err := b.WriteRegister(ids[i], row, 0); err == nil {
			if on, _, err := b.ReadRegister(ids[i], row); err == nil && on == 0 {
				continue
			}
		}
		name := "shadow"
		for _, m := range r.Motors {
			if m.ID == ids[i] {
				name = m.Name
			}
		}
		names = append(names, fmt.Sprintf("motor %d (%s)", ids[i], name))
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s did not confirm; switch off the motors' supply", ErrTorque, strings.Join(names, ", "))
}

func (a *Arm) motors(index []int) string {
	names := make([]string, len(index))
	for k, i := range index {
		names[k] = fmt.Sprintf("%d (%s)", a.units[i].id, a.units[i].name)
	}
	return fmt.Sprintf("motor %s on %s", strings.Join(names, ", "), a.path)
}
