package servo

import (
	"fmt"
	"strings"
	"time"
)

const (
	offRounds   = 3                    // times the torque-off frame is sent to motors that have not confirmed it
	offAttempts = 2                    // of each write to a single motor after that
	offWait     = 5 * time.Millisecond // for one confirmation: six silent motors must not take longer than 200 ms
)

// TorqueOff makes every motor limp: one frame to all, read back, and then each
// motor by itself as often as needed. It ignores faults and goes on past
// failures; the error, which wraps ErrTorque, names the motors that may still
// be under torque. It works after bus errors and takes 200 ms at most for six
// motors.
//
// Owner: the thread that owns the arm, after the tick has ended.
func (a *Arm) TorqueOff() error {
	a.bus.lost = false // try whatever happened before
	off := make([]uint16, len(a.ids))
	if bad := a.set(TorqueEnable, off); len(bad) > 0 {
		return fmt.Errorf("%w: %s may still be under torque; switch off the motors' supply", ErrTorque, a.motors(bad))
	}
	return nil
}

// readPositions fills a.positions with an answer of every motor.
func (a *Arm) readPositions() error {
	missing := a.positions.all
	for attempt := range maxAttempts {
		if attempt > 0 {
			a.bus.retries.Add(1)
			a.bus.quiet()
		}
		missing = a.bus.gather(a.positions, ackWait, a.clock.Now().Add(2*ackWait))
		if missing == 0 {
			return nil
		}
	}
	var bad []int
	for i := range a.joints {
		if missing>>i&1 != 0 {
			bad = append(bad, i)
		}
	}
	return fmt.Errorf("%w: %s gave no position; check its cable and power", ErrMotorMissing, a.motors(bad))
}

// set writes one register of all motors, at first with one frame, and returns
// the motors that do not have the value afterwards.
func (a *Arm) set(r Register, words []uint16) (bad []int) {
	b := a.bus
	if b.dirty > 0 {
		b.hush = offWait
		b.quiet()
		b.hush = hushTime
	}
	check := b.newGroup(r.Addr(), r.Width(), a.ids)
	for range offRounds {
		if b.SyncWrite(r, a.ids, words) != nil {
			break
		}
		missing := b.gather(check, offWait, a.clock.Now().Add(check.wire+2*offWait))
		bad = bad[:0]
		for i, want := range words {
			if missing>>i&1 != 0 || parseWord(check.param(i)) != want {
				bad = append(bad, i)
			}
		}
		if len(bad) == 0 {
			return nil
		}
	}
	return a.setSingly(r, words)
}

// setSingly is what remains when the group does not confirm: acknowledged
// writes, one motor after the other.
func (a *Arm) setSingly(r Register, words []uint16) (bad []int) {
	a.bus.patience, a.bus.attempts, a.bus.hush = offWait, offAttempts, offWait
	defer func() { a.bus.patience, a.bus.attempts, a.bus.hush = ackWait, maxAttempts, hushTime }()
	for i, id := range a.ids {
		want := r.Decode(words[i])
		if _, err := a.bus.WriteRegister(id, r, want); err != nil {
			bad = append(bad, i)
			continue
		}
		if got, _, err := a.bus.ReadRegister(id, r); err != nil || got != want {
			bad = append(bad, i)
		}
	}
	return bad
}

// motors names joints for a message.
func (a *Arm) motors(index []int) string {
	names := make([]string, len(index))
	for k, i := range index {
		names[k] = fmt.Sprintf("%d (%s)", a.joints[i].id, a.joints[i].name)
	}
	return fmt.Sprintf("motor %s on %s", strings.Join(names, ", "), a.path)
}
