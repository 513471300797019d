package servo

import (
	"fmt"
	"math"
	"slices"

	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// rescueSpeed is the speed limit of a servo outside its own range, which moves to the edge of the
// range as soon as it has torque.
const rescueSpeed = 10.0 // degrees per second

// Rescue permits the arming of joints that are outside their range. It sets a speed limit in their servos,
// since an STS moves to the edge of its own range as soon as it has torque. EndRescue ends the permission.
//
// It fails with ErrOutOfRange when a motor of such a joint has no speed limit, or when the joint
// may be on the other side of its range.
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
		before, err := a.read(u, row.Register)
		if err == nil {
			before, err = a.unlimited(u, row, before)
		}
		if err == nil {
			err = a.setSpeed(speed{i, row, slow})
		}
		if err != nil {
			return err
		}
		a.rescue.before = append(a.rescue.before, speed{i, row, before})
	}
	a.rescue.joints |= outside
	return nil
}

// rescue is the state of joints that return from outside their range.
type rescue struct {
	joints   robot.Joints // joints that may be armed outside their range
	before   []speed      // speed limits that the servos of joints had before
	leftover []speed      // values that findLimits has deferred, for servos under torque
}

// speed is a value to write into a register that limits a servo's speed, acceleration or current.
type speed struct {
	unit  int
	row   table.Row
	value int
}

// slowSpeed returns a servo's speed register and its value for rescueSpeed.
func (a *Arm) slowSpeed(u unit) (row table.Row, value int, err error) {
	row, unit, err := a.speedUnit(u)
	if err == nil && row.Size == 0 {
		err = fmt.Errorf("%w: motor %d (%s) has no speed limit of its own; move it inside by hand", ErrOutOfRange, u.id,
			u.name)
	}
	counts := rescueSpeed * float64(u.model.Resolution) / u.model.Span // per second
	return row, max(1, int(counts/unit)), err
}

// speedUnit returns the register that limits a servo's speed, and the counts per second of one step
// of that register. row.Size is 0 when the servo has no such register.
func (a *Arm) speedUnit(u unit) (row table.Row, unit float64, err error) {
	row, unit = u.model.Row(table.GoalVelocity), 1
	switch {
	case a.bus.protocol == table.Dynamixel2:
		row, unit = u.model.Row(table.ProfileVelocity), 0.229*4096/60
	case a.bus.protocol == table.Dynamixel1:
		unit = 0.111 * 360 / 60 * 1023 / 300
	case u.model.Has(table.Phase):
		phase, err := a.read(u, table.Phase)
		if err != nil {
			return row, unit, err
		}
		if phase&phaseSteps == 0 {
			unit = 50
		}
	}
	return row, unit, nil
}

// The bits of an STS's Phase that concern its velocities. A new motor has Phase 12, with both.
//
// Source: Feetech STS memory table, servo phase.
const (
	phaseSteps    = 1 << 2 // the unit of velocities is a step per second instead of 50 steps per second
	phaseZeroFast = 1 << 3 // a goal velocity of 0 is the highest speed instead of a stop
)

// restoreSpeeds writes the values that findLimits has deferred, except those that EndRescue will restore.
func (a *Arm) restoreSpeeds() error {
	a.rescue.leftover = slices.DeleteFunc(a.rescue.leftover, func(s speed) bool {
		return slices.ContainsFunc(a.rescue.before, func(b speed) bool { return b.unit == s.unit && b.row == s.row })
	})
	return a.setSpeeds(&a.rescue.leftover)
}

// setSpeeds writes the speeds of the list, and removes each speed from the list once it is written.
func (a *Arm) setSpeeds(list *[]speed) error {
	for len(*list) > 0 {
		if err := a.setSpeed((*list)[0]); err != nil {
			return err
		}
		*list = (*list)[1:]
	}
	return nil
}

func (a *Arm) setSpeed(s speed) error { return a.write(a.units[s.unit], s.row, s.value) }

// fullSpeed returns the value of a servo's speed register at which the servo has its full speed; unit is the counts per
// second of one step. In a Dynamixel, 0 means no limit. In an STS or SMS, 0 may mean a stop, so fullSpeed returns the
// register's value after power-up.
func (a *Arm) fullSpeed(unit float64) int {
	const most = 3400 // counts per second, of an STS
	if a.bus.protocol != table.Feetech {
		return 0
	}
	return int(most / unit)
}

// EndRescue ends the permission of Rescue and restores the servos' earlier speed limits. The caller
// calls it once every joint is inside its range.
func (a *Arm) EndRescue() error {
	if err := a.setSpeeds(&a.rescue.before); err != nil {
		return err
	}
	a.rescue.joints = 0
	return nil
}

// findLimits restores the power-up values of registers in RAM with which a killed run or other software has left a
// servo slow or weak. It writes to a limp servo at once. A servo under torque may be moving, so restoreSpeeds writes to
// it at the end of the arming.
func (a *Arm) findLimits(i int, stiff bool) error {
	u := a.units[i]
	m := a.robot.Motors[u.joint]
	if a.robot.Leader && !a.robot.Actuated && m.Trigger == nil {
		return nil // a motor that a person moves gets no goals
	}
	if a.wheels.Has(u.joint) {
		return a.stopLeft(u, stiff)
	}
	for _, r := range limits {
		row := u.model.Row(r)
		if _, given := m.Setting(r); row.Size == 0 || given || r == table.GoalVelocity &&
			a.bus.protocol == table.Dynamixel2 {
			continue // in a position mode an X servo obeys its profile velocity, not its goal velocity
		}
		got, err := a.read(u, r)
		if err != nil {
			return err
		}
		want, err := a.unlimited(u, row, got)
		if err != nil {
			return err
		}
		if want == got {
			continue
		}
		a.note(u, " was left with %s %d, which limits it, by a rescue or other software; it gets %d", r, got, want)
		s := speed{i, row, want}
		if stiff {
			a.rescue.leftover = append(a.rescue.leftover, s)
		} else if err := a.setSpeed(s); err != nil {
			return err
		}
	}
	return nil
}

// limits are the registers in RAM that can make a servo slow or weak on its way to a goal. The
// limit of the torque or the PWM is not among them, because the marker sets it.
var limits = [...]table.Register{
	table.GoalVelocity, table.ProfileVelocity, table.GoalTime, table.Acceleration, table.ProfileAcceleration,
	table.GoalCurrent,
}

// unlimited returns the value that a register of limits should have: its present value, which the parameter got holds,
// or the value after power-up if the present value hinders the joint.
func (a *Arm) unlimited(u unit, row table.Row, got int) (int, error) {
	const slower, slowStart = 0.5, 2.0 // shares of the velocity limit: a speed, and an acceleration per second
	need := a.fastest(u.joint)         // counts per second
	switch row.Register {
	case table.GoalVelocity, table.ProfileVelocity:
		if got == 0 && u.model.Has(table.Phase) {
			if phase, err := a.read(u, table.Phase); err != nil || phase&phaseZeroFast != 0 {
				return got, err
			}
		}
		_, unit, err := a.speedUnit(u)
		speed := math.Abs(float64(got)) * unit
		if err == nil && speed < slower*need && got != a.fullSpeed(unit) {
			got = a.fullSpeed(unit)
		}
		return got, err
	case table.GoalTime:
		return 0, nil
	case table.Acceleration, table.ProfileAcceleration:
		unit := 100. // counts per second squared
		if row.Register == table.ProfileAcceleration {
			unit = 214.577 * 4096 / 3600
		}
		if float64(got)*unit < slowStart*need {
			return 0, nil
		}
	case table.GoalCurrent:
		mode, err := a.setting(u, table.OperatingMode)
		if err != nil || mode != table.ModeCurrentPosition {
			return got, err // another mode ignores a goal current
		}
		limit, err := a.setting(u, table.CurrentLimit)
		return max(got, limit), err
	}
	return got, nil
}

// fastest returns the velocity limit of a joint in counts per second, but at most a speed that
// every servo reaches.
func (a *Arm) fastest(i int) float64 {
	const any = 0.7 // turns per second
	m := a.robot.Motors[i]
	return min(any*float64(m.Model.Resolution), m.MaxVelocity*a.joints[i].scale.unit())
}
