package servo

import (
	"fmt"
	"time"
)

// eepromSettle is what a servo needs after the acknowledgement of EEPROM writes
// until it answers from them; 10 to 20 ms were seen.
const eepromSettle = 20 * time.Millisecond

// firstFixedAddr begins the factory block, where some firmware keeps its own
// values whatever is written.
const firstFixedAddr = 80

// Held returns the motors that OpenArm found under torque and whose settings
// differ from the robot's. They were left alone: changing gains or limits of an
// arm that holds itself up would make it move. TorqueOff and a new OpenArm
// settle it.
func (a *Arm) Held() []string { return a.held }

// checkCalibration compares what the servo applies itself, homing offset and
// position limits, with the calibration. A servo that still has the factory's
// limits takes any range, which Write then enforces alone.
func (a *Arm) checkCalibration(j *joint, c MotorCalibration) error {
	var got [3]int
	for i, r := range [...]Register{HomingOffset, MinPositionLimit, MaxPositionLimit} {
		v, _, err := a.bus.ReadRegister(j.id, r)
		if err != nil {
			return a.wrap(j, err)
		}
		got[i] = v
	}
	offset, low, high := got[0], got[1], got[2]
	factory := low == 0 && high == maxPositionRaw
	if offset == c.HomingOffset && (factory || low == c.RangeMin && high == c.RangeMax) {
		return nil
	}
	return fmt.Errorf("%w: motor %d (%s) on %s: the servo has homing offset %d and range %d to %d, the file has %d and %d to %d; "+
		"take the file this arm was calibrated with, or calibrate it again",
		ErrCalibration, j.id, j.name, a.path, offset, low, high, c.HomingOffset, c.RangeMin, c.RangeMax)
}

// configure writes the settings that differ, and reads them back. A motor under
// torque is left as it is, see Held.
func (a *Arm) configure(j *joint) error {
	changes, err := a.differing(j)
	if err != nil || len(changes) == 0 {
		return err
	}
	torque, _, err := a.bus.ReadRegister(j.id, TorqueEnable)
	if err != nil {
		return a.wrap(j, err)
	}
	if torque != 0 {
		for _, s := range changes {
			if s.Register == OperatingMode || s.Register == Phase {
				return fmt.Errorf("%w: motor %d (%s) on %s: wants %s = %d, which cannot change now; switch its torque off first",
					ErrHeld, j.id, j.name, a.path, s.Register, s.Value)
			}
		}
		a.held = append(a.held, j.name)
		return nil
	}
	return a.apply(j, changes)
}

// differing returns the settings that motor j does not have yet. Besides the
// robot's list the multi-turn bit of Phase has to go, because with it positions
// leave 0 to 4095; the other bits, which differ between servos, stay.
func (a *Arm) differing(j *joint) ([]Setting, error) {
	var changes []Setting
	for _, s := range a.robot.Settings {
		if s.Motor != "" && s.Motor != j.name {
			continue
		}
		got, _, err := a.bus.ReadRegister(j.id, s.Register)
		if err != nil {
			return nil, a.wrap(j, err)
		}
		if got != s.Value {
			changes = append(changes, s)
		}
	}
	phase, _, err := a.bus.ReadRegister(j.id, Phase)
	if err != nil {
		return nil, a.wrap(j, err)
	}
	if phase&phaseMultiTurn != 0 {
		changes = append(changes, Setting{Phase, phase &^ phaseMultiTurn, j.name})
	}
	return changes, nil
}

// apply unlocks the EEPROM where it is needed, writes, locks it again whatever
// happened, and reads back.
func (a *Arm) apply(j *joint, changes []Setting) error {
	wear := false
	for _, s := range changes {
		wear = wear || table[s.Register].area == eeprom
	}
	if wear {
		if _, err := a.bus.WriteRegister(j.id, Lock, 0); err != nil {
			return a.wrap(j, err)
		}
	}
	var failed error
	for _, s := range changes {
		if _, failed = a.bus.WriteRegister(j.id, s.Register, s.Value); failed != nil {
			break
		}
	}
	if wear {
		a.clock.SleepUntil(a.clock.Now().Add(eepromSettle))
		if _, err := a.bus.WriteRegister(j.id, Lock, 1); failed == nil {
			failed = err
		}
	}
	if failed != nil {
		return a.wrap(j, failed)
	}
	for _, s := range changes {
		got, _, err := a.bus.ReadRegister(j.id, s.Register)
		if err != nil {
			return a.wrap(j, err)
		}
		if got != s.Value && s.Register.Addr() < firstFixedAddr {
			return fmt.Errorf("servo: motor %d (%s) on %s: %s is %d after writing %d; its EEPROM may be worn out, replace the servo",
				j.id, j.name, a.path, s.Register, got, s.Value)
		}
	}
	return nil
}
