package servo

import (
	"errors"
	"fmt"

	"edgert/servo/table"
)

// rescueSpeed is for a servo outside its own range, which goes to its edge by itself.
const rescueSpeed = 10.0 // degrees per second

// Rescue lets joints be armed that stand outside their range: with a speed limit
// in the servo itself, since an STS goes to the edge of its own range at once. EndRescue ends it.
//
// It fails with ErrOutOfRange when a motor of such a joint has no speed limit, or when the
// way in may be the other way round.
func (a *Arm) Rescue() error {
	outside := a.OutOfRange() &^ a.rescue.joints
	if err := a.checkSide(outside); err != nil {
		return err
	}
	for i, u := range a.units {
		if outside&(1<<u.joint) == 0 {
			continue
		}
		row, slow, err := a.slowSpeed(u)
		if err != nil {
			return err
		}
		before, _, err := a.bus.ReadRegister(u.id, row)
		if before == slow {
			before = a.fullSpeed(u, slow)
		}
		if err == nil {
			_, err = a.bus.WriteRegister(u.id, row, slow)
		}
		if err != nil {
			return a.wrap(u, err)
		}
		a.rescue.before = append(a.rescue.before, speed{i, row, before})
	}
	a.rescue.joints |= outside
	return nil
}

// rescue is the way in of joints that stand outside their range.
type rescue struct {
	joints   uint32  // that may be armed there
	before   []speed // their servos' speed limits before
	leftover []speed // for servos that OpenArm found with the speed of a rescue
}

// speed is a servo's speed limit, to be restored after the rescue.
type speed struct {
	unit  int
	row   table.Row
	value int
}

// slowSpeed returns a servo's speed register and its value for rescueSpeed.
func (a *Arm) slowSpeed(u unit) (row table.Row, value int, err error) {
	counts := rescueSpeed * float64(u.model.Resolution) / u.model.Span // per second
	row = u.model.Row(table.GoalVelocity)
	unit := 1.0
	switch {
	case a.bus.protocol == table.Dynamixel2:
		row, unit = u.model.Row(table.ProfileVelocity), 0.229*4096/60
	case a.bus.protocol == table.Dynamixel1:
		unit = 0.111 * 360 / 60 * 1023 / 300
	case u.model.Has(table.Phase):
		phase, _, err := a.bus.ReadRegister(u.id, u.model.Row(table.Phase))
		if err != nil {
			return row, 0, a.wrap(u, err)
		}
		if phase&phaseSteps == 0 {
			unit = 50
		}
	}
	if row.Size == 0 {
		return row, 0, fmt.Errorf("%w: motor %d (%s) has no speed limit of its own; move it inside by hand", ErrOutOfRange, u.id, u.name)
	}
	return row, max(1, int(counts/unit)), nil
}

// phaseSteps of an STS's Phase counts velocities in steps per second, not in 50 of them.
const phaseSteps = 1 << 2

// findSlow finds a servo that a killed run left slow. It gets its speed back once it is
// armed and inside: before, it might be on its way to the edge of its range.
func (a *Arm) findSlow(i int) error {
	if a.robot.Leader {
		return nil
	}
	u := a.units[i]
	row, slow, err := a.slowSpeed(u)
	if errors.Is(err, ErrOutOfRange) {
		return nil // no such register
	}
	if err != nil {
		return err
	}
	got, _, err := a.bus.ReadRegister(u.id, row)
	if err != nil {
		return a.wrap(u, err)
	}
	if got == slow {
		a.rescue.leftover = append(a.rescue.leftover, speed{i, row, a.fullSpeed(u, slow)})
		a.notes = append(a.notes, fmt.Sprintf("motor %d (%s) was left with the speed limit of a rescue; it gets its full speed back", u.id, u.name))
	}
	return nil
}

// restoreSpeeds ends what findSlow has found, but for servos on their way in.
func (a *Arm) restoreSpeeds() error {
	for len(a.rescue.leftover) > 0 {
		s := a.rescue.leftover[0]
		a.rescue.leftover = a.rescue.leftover[1:]
		if a.rescue.joints&(1<<a.units[s.unit].joint) != 0 {
			continue // EndRescue does
		}
		if err := a.setSpeed(s); err != nil {
			return err
		}
	}
	return nil
}

func (a *Arm) setSpeed(s speed) error {
	u := a.units[s.unit]
	_, err := a.bus.WriteRegister(u.id, s.row, s.value)
	return a.wrap(u, err)
}

// fullSpeed is the value of a servo's speed limit that does not limit it. An STS may
// take 0 for a stop, and gets what it has after power-up; for a Dynamixel 0 is none.
func (a *Arm) fullSpeed(u unit, slow int) int {
	const most = 3400 // counts per second, of an STS
	if a.bus.protocol != table.Feetech {
		return 0
	}
	if counts := rescueSpeed * float64(u.model.Resolution) / u.model.Span; slow < int(counts) {
		return most / 50
	}
	return most
}

// EndRescue gives the servos their own speed back once every joint is inside.
func (a *Arm) EndRescue() error {
	for len(a.rescue.before) > 0 {
		if err := a.setSpeed(a.rescue.before[0]); err != nil {
			return err
		}
		a.rescue.before = a.rescue.before[1:]
	}
	a.rescue.joints = 0
	return nil
}
