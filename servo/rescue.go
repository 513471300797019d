package servo

import (
	"fmt"
	"math"
	"slices"

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
		if err == nil {
			before, err = a.unlimited(u, row, before)
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
	leftover []speed // for servos under torque that OpenArm found with limits, see findLimits
}

// speed is a register that limits a servo's way to its goals, and its value to be restored.
type speed struct {
	unit  int
	row   table.Row
	value int
}

// slowSpeed returns a servo's speed register and its value for rescueSpeed.
func (a *Arm) slowSpeed(u unit) (row table.Row, value int, err error) {
	row, unit, err := a.speedUnit(u)
	if err == nil && row.Size == 0 {
		err = fmt.Errorf("%w: motor %d (%s) has no speed limit of its own; move it inside by hand", ErrOutOfRange, u.id, u.name)
	}
	counts := rescueSpeed * float64(u.model.Resolution) / u.model.Span // per second
	return row, max(1, int(counts/unit)), err
}

// speedUnit returns a servo's speed register, Size 0 where it has none, and how many counts a
// second one step of it stands for.
func (a *Arm) speedUnit(u unit) (row table.Row, unit float64, err error) {
	row, unit = u.model.Row(table.GoalVelocity), 1
	switch {
	case a.bus.protocol == table.Dynamixel2:
		row, unit = u.model.Row(table.ProfileVelocity), 0.229*4096/60
	case a.bus.protocol == table.Dynamixel1:
		unit = 0.111 * 360 / 60 * 1023 / 300
	case u.model.Has(table.Phase):
		phase, _, err := a.bus.ReadRegister(u.id, u.model.Row(table.Phase))
		if err != nil {
			return row, unit, a.wrap(u, err)
		}
		if phase&phaseSteps == 0 {
			unit = 50
		}
	}
	return row, unit, nil
}

// phaseSteps of an STS's Phase counts velocities in steps per second, not in 50 of them.
const phaseSteps = 1 << 2

// restoreSpeeds ends what findLimits has found, but for servos on their way in.
func (a *Arm) restoreSpeeds() error {
	for len(a.rescue.leftover) > 0 {
		s := a.rescue.leftover[0]
		a.rescue.leftover = a.rescue.leftover[1:]
		if slices.ContainsFunc(a.rescue.before, func(b speed) bool { return b.unit == s.unit && b.row == s.row }) {
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
// take 0 for a stop, and gets what it has after power-up; for the others 0 is none.
func (a *Arm) fullSpeed(unit float64) int {
	const most = 3400 // counts per second, of an STS
	if a.bus.protocol != table.Feetech {
		return 0
	}
	return int(most / unit)
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

// findLimits finds a servo that a killed run or other software left slow or weak, in
// registers that it has forgotten at the next power-up. One that is limp gets what it has
// then at once; one under torque, which may be on its way, when it is armed and inside.
func (a *Arm) findLimits(i int, stiff bool) error {
	u := a.units[i]
	m := a.robot.Motors[u.joint]
	if a.robot.Leader && !a.robot.Actuated && m.Trigger == nil {
		return nil // it gets no goals
	}
	for _, r := range limits {
		row := u.model.Row(r)
		if _, given := m.Setting(r); row.Size == 0 || given || r == table.GoalVelocity && a.bus.protocol == table.Dynamixel2 {
			continue // an X servo goes to a position at its profile's velocity
		}
		got, _, err := a.bus.ReadRegister(u.id, row)
		if err != nil {
			return a.wrap(u, err)
		}
		want, err := a.unlimited(u, row, got)
		if err != nil {
			return err
		}
		if want == got {
			continue
		}
		a.notes = append(a.notes, fmt.Sprintf("motor %d (%s) was left with %s %d, which limits it, by a rescue or other software; it gets %d", u.id, u.name, r, got, want))
		s := speed{i, row, want}
		if stiff {
			a.rescue.leftover = append(a.rescue.leftover, s)
		} else if err := a.setSpeed(s); err != nil {
			return err
		}
	}
	return nil
}

// limits are registers in RAM that make a servo slow or weak on its way to a goal. The marker
// sets the limit of its torque or PWM.
var limits = [...]table.Register{
	table.GoalVelocity, table.ProfileVelocity, table.GoalTime, table.Acceleration, table.ProfileAcceleration, table.GoalCurrent,
}

// unlimited returns the value for one of limits: got, or where that hinders the joint the one
// that the servo has after power-up.
func (a *Arm) unlimited(u unit, row table.Row, got int) (int, error) {
	const slower, slowStart = 0.5, 2.0 // times its velocity; per second, of its velocity
	need := a.fastest(u.joint)         // counts per second
	switch row.Register {
	case table.GoalVelocity, table.ProfileVelocity:
		_, unit, err := a.speedUnit(u)
		speed := math.Abs(float64(got)) * unit
		if err == nil && speed < slower*need && got != a.fullSpeed(unit) {
			got = a.fullSpeed(unit)
		}
		return got, err
	case table.GoalTime:
		return 0, nil
	case table.Acceleration, table.ProfileAcceleration:
		unit := 100. // counts per second and second
		if row.Register == table.ProfileAcceleration {
			unit = 214.577 * 4096 / 3600
		}
		if float64(got)*unit < slowStart*need {
			return 0, nil
		}
	case table.GoalCurrent:
		mode, given := a.robot.Motors[u.joint].Setting(table.OperatingMode)
		if !given {
			var err error
			if mode, _, err = a.bus.ReadRegister(u.id, u.model.Row(table.OperatingMode)); err != nil {
				return got, a.wrap(u, err)
			}
		}
		if mode != table.ModeCurrentPosition {
			return got, nil // it obeys none
		}
		limit, _, err := a.bus.ReadRegister(u.id, u.model.Row(table.CurrentLimit))
		if err != nil {
			return got, a.wrap(u, err)
		}
		if own, ok := a.robot.Motors[u.joint].Setting(table.CurrentLimit); ok {
			limit = own
		}
		return max(got, limit), nil
	}
	return got, nil
}

// fastest is the velocity limit of a joint in counts per second, or what any servo reaches.
func (a *Arm) fastest(i int) float64 {
	const any = 0.7 // turns per second
	s, m := &a.joints[i].scale, a.robot.Motors[i]
	return min(any*float64(m.Model.Resolution), math.Abs(float64(s.raw(m.MaxVelocity)-s.raw(0))))
}
