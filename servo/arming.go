package servo

import (
	"fmt"

	"edgert/rt"
)

// armTries bounds how often a register is written again for a motor that does
// not confirm it.
const armTries = 10

// stage is how far the arming has come.
type stage uint8

const (
	setGoal stage = iota
	checkGoal
	setTorque
	checkTorque
)

// arming is the way from a limp arm to one that holds where it is.
type arming struct {
	stage stage
	tries int
	check *group
	words []uint16 // what the last set wrote
}

// ArmStep takes one step towards an arm that holds where it is: goal := present
// first, because a goal left in the register would make the arm jump, then
// torque, both read back. It is one exchange on the bus, fit for a tick, and
// reports armed after the last of about five. The tick's Read must have
// brought every joint just before; the wait counts in BusWait.
//
// When a motor does not confirm, all torque goes off again and the error, which
// wraps ErrTorque, names it.
//
// Owner: the thread that owns the arm.
func (a *Arm) ArmStep(deadline rt.Instant) (armed bool, err error) {
	m, before := &a.arming, a.bus.waited
	defer func() { a.bus.waited += before }()
	switch m.stage {
	case setGoal:
		for i := range a.goals {
			a.goals[i] = parseWord(a.positions.param(i)) // the same encoding in both registers
		}
		return false, a.write(GoalPosition, a.goals, checkGoal)
	case checkGoal:
		if bad := a.unconfirmed(deadline); len(bad) > 0 {
			return false, a.again(setGoal, bad, "did not take its own position for a goal; if it stands outside its limits, move it inside by hand")
		}
		m.stage, m.tries = setTorque, 0
		fallthrough
	case setTorque:
		return false, a.write(TorqueEnable, a.ones(), checkTorque)
	default:
		if bad := a.unconfirmed(deadline); len(bad) > 0 {
			return false, a.again(setTorque, bad, "did not switch on; check its cable and power")
		}
		a.arming = arming{}
		// As LeRobot does, so that nothing wears the EEPROM in motion.
		return true, a.bus.SyncWrite(Lock, a.ids, a.ones())
	}
}

// TorqueOn is all of ArmStep at once, for whoever has no tick.
func (a *Arm) TorqueOn() error {
	a.arming = arming{}
	if err := a.readPositions(); err != nil {
		return err
	}
	for {
		armed, err := a.ArmStep(a.clock.Now().Add(2 * ackWait))
		if err != nil {
			if off := a.TorqueOff(); off != nil { // half an arm under torque is worse than none
				err = fmt.Errorf("%w; %w", err, off)
			}
			return err
		}
		if armed {
			return nil
		}
	}
}

func (a *Arm) ones() []uint16 {
	on := make([]uint16, len(a.ids))
	for i := range on {
		on[i] = 1
	}
	return on
}

// write sends one register to all motors and prepares the check.
func (a *Arm) write(r Register, words []uint16, next stage) error {
	m := &a.arming
	m.check, m.words, m.stage = a.bus.newGroup(r.Addr(), r.Width(), a.ids), words, next
	return a.bus.SyncWrite(r, a.ids, words)
}

// unconfirmed reads back what write sent and returns the motors that have
// something else, or do not answer.
func (a *Arm) unconfirmed(deadline rt.Instant) (bad []int) {
	m := &a.arming
	missing := a.bus.gather(m.check, offWait, deadline)
	for i, want := range m.words {
		if missing>>i&1 != 0 || parseWord(m.check.param(i)) != want {
			bad = append(bad, i)
		}
	}
	return bad
}

// again goes back to an earlier stage, or gives up and makes the arm limp.
func (a *Arm) again(to stage, bad []int, why string) error {
	m := &a.arming
	if m.tries++; m.tries < armTries {
		m.stage = to
		return nil
	}
	a.arming = arming{}
	err := fmt.Errorf("%w: %s %s", ErrTorque, a.motors(bad), why)
	if off := a.TorqueOff(); off != nil {
		err = fmt.Errorf("%w; %w", err, off)
	}
	return err
}
