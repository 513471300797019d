package servo

import (
	"fmt"
	"slices"
	"time"

	"edgert/rt"
	"edgert/servo/table"
)

// How often a register is written again for a motor that does not confirm it: so
// often, and for as long, since a host under load may be away for all those tries.
const (
	armTries = 10
	armFor   = 500 * time.Millisecond
	armMost  = 100 // in any case
)

// stage is how far the arming has come.
type stage uint8

const (
	wake stage = iota // clear a bus watchdog that has fired: goals are refused until then
	setGoal
	checkGoal
	setTorque
	checkTorque
	guard // lock the EEPROM, set the bus watchdog
)

// arming is the way from a limp arm to one that holds where it is.
type arming struct {
	stage stage
	tries int
	since rt.Instant // of the first
	check *group
	row   table.Row
	words []int // what the last set wrote
}

// ArmStep takes one step towards an arm that holds where it is: goal := present
// first, because a goal left in the register would make the arm jump, then
// torque, both read back. It is one exchange on the bus, fit for a tick, and
// reports armed after the last of about six. The tick's Read must have
// brought every joint just before; the wait counts in BusWait.
//
// When a motor does not confirm, all torque goes off again and the error, which
// wraps ErrTorque, names it.
//
// Owner: the thread that owns the arm.
func (a *Arm) ArmStep(deadline rt.Instant) (armed bool, err error) {
	m := &a.arming
	switch m.stage {
	case wake:
		m.stage = setGoal
		if row := a.watchdogRow(); row.Size != 0 {
			return false, a.bus.SyncWrite(row, a.all, make([]int, len(a.all)))
		}
		fallthrough
	case setGoal:
		for i := range a.goals {
			a.goals[i] = a.raw(i)
		}
		return false, a.write(a.rows.goal, a.ids, a.goals, checkGoal)
	case checkGoal:
		if bad := a.unconfirmed(deadline); len(bad) > 0 {
			return false, a.again(setGoal, bad, "did not take its own position for a goal; if it stands outside its limits, move it inside by hand")
		}
		m.stage, m.tries = setTorque, 0
		fallthrough
	case setTorque:
		return false, a.write(a.rows.torque, a.all, ones(len(a.all)), checkTorque)
	case checkTorque:
		if bad := a.unconfirmed(deadline); len(bad) > 0 {
			return false, a.again(setTorque, bad, "did not switch on; check its cable and power")
		}
		m.stage = guard
		if row := a.units[0].model.Row(table.Lock); row.Size != 0 {
			// As LeRobot does, so that nothing wears the EEPROM in motion.
			return false, a.bus.SyncWrite(row, a.all, ones(len(a.all)))
		}
		fallthrough
	default:
		a.arming = arming{}
		a.health.expect(true)
		if row := a.watchdogRow(); row.Size != 0 && a.robot.Safety.BusWatchdog > 0 {
			ticks := watchdogTicks(a.robot.Safety.BusWatchdog)
			a.health.leash = time.Duration(ticks)*watchdogStep - watchdogMargin
			return true, a.bus.SyncWrite(row, a.all, slices.Repeat([]int{ticks}, len(a.all)))
		}
		return true, nil
	}
}

// watchdogRow is the register of Dynamixel's bus watchdog; its Size is 0 on
// other servos. Any instruction feeds it, to whomever; when it fires, the motor
// stops where it is and keeps its torque.
func (a *Arm) watchdogRow() table.Row { return a.units[0].model.Row(table.BusWatchdog) }

const (
	watchdogStep   = 20 * time.Millisecond
	watchdogMargin = 5 * time.Millisecond // a servo's clock, and the way to it
)

// watchdogTicks is the register's value for a time: steps of 20 ms, at least two.
func watchdogTicks(d time.Duration) int {
	const least, most = 2, 127
	return int(min(most, max(least, (d+watchdogStep-1)/watchdogStep)))
}

// raw is the position that joint i answered last.
//
//rt:noalloc
func (a *Arm) raw(i int) int { return a.rows.position.Decode(a.positions.param(i)) }

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

func ones(n int) []int { return slices.Repeat([]int{1}, n) }

// write sends one register to several motors and prepares the check.
func (a *Arm) write(r table.Row, ids []ID, words []int, next stage) error {
	m := &a.arming
	m.check, m.words, m.stage = a.bus.newCheck(r, ids), words, next
	m.row = r
	return a.bus.SyncWrite(r, ids, words)
}

// unconfirmed reads back what write sent and returns the motors that have
// something else, or do not answer, as indices of units.
func (a *Arm) unconfirmed(deadline rt.Instant) (bad []int) {
	m := &a.arming
	return a.bus.readBack(m.check, m.row, m.words, offWait, deadline)
}

// again goes back to an earlier stage, or gives up and makes the arm limp.
func (a *Arm) again(to stage, bad []int, why string) error {
	m := &a.arming
	now := a.clock.Now()
	if m.tries == 0 {
		m.since = now
	}
	if m.tries++; m.tries < armTries || now.Sub(m.since) < armFor && m.tries < armMost {
		a.bus.retries.Add(1)
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
