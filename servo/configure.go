package servo

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/servo/packet"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// eepromSettle is the wait after EEPROM writes; servos needed 10 to 20 ms.
const eepromSettle = 20 * time.Millisecond

// Unconfigured returns the motors that were under torque in OpenArm and whose settings differ.
// OpenArm does not write them, because the change would make the arm move; TorqueOff and a new
// OpenArm write them.
func (a *Arm) Unconfigured() []string { return a.unconfigured }

// checkCalibration compares the servo's homing offset, position limits and direction with the
// calibration. A servo with the factory's position limits passes whatever the calibration's range
// is; then only Write enforces the range.
func (a *Arm) checkCalibration(u unit, all Calibration) error {
	if u.shadow {
		return nil
	}
	c := all[a.robot.Motors[u.joint].Name]
	got := [3]int{0, 0, u.model.MaxRaw()}
	for i, r := range [...]table.Register{table.HomingOffset, table.MinPositionLimit, table.MaxPositionLimit} {
		if !u.model.Has(r) {
			continue
		}
		v, err := a.read(u, r)
		if err != nil {
			return err
		}
		got[i] = v
	}
	offset := got[0]
	low := got[1]
	high := got[2]
	mode, given := a.robot.Motors[u.joint].Setting(table.OperatingMode)
	if !given && u.model.Protocol == table.Dynamixel2 {
		v, err := a.read(u, table.OperatingMode)
		if err != nil {
			return err
		}
		mode = v
	}
	if CountsTurns(u.model, mode) && (c.RangeMin < 0 || c.RangeMax > u.model.MaxRaw()) {
		// the servo's registers cannot hold this range, and in this mode the servo ignores them
		low, high = c.RangeMin, c.RangeMax
	}
	if limited(u.model, a.robot.Motors[u.joint]) && low < high {
		a.joints[u.joint].low, a.joints[u.joint].top = low, high
	}
	factory := low == 0 && high == u.model.MaxRaw() || u.model.Protocol == table.Dynamixel1
	if offset == c.HomingOffset && (factory || low == c.RangeMin && high == c.RangeMax) {
		if err := c.obeyed(u.model, mode); err != nil {
			return a.refuse(ErrCalibration, u, ": %w", err)
		}
		return a.checkDriveMode(u, c)
	}
	cure := otherFile
	for name, other := range all {
		if (offset != 0 || !factory) && offset == other.HomingOffset && low == other.RangeMin &&
			high == other.RangeMax {
			cure = fmt.Sprintf(
				"that is %s's in the file: the ids of the two may be exchanged, and each would move the "+
					"other's joint; give the motors their ids (edge-rt setup-motors)", name)
		}
	}
	return a.refuse(ErrCalibration, u, ": the servo has homing offset %d and range %d to %d, the file has %d and %d "+
		"to %d; %s", offset, low, high, c.HomingOffset, c.RangeMin, c.RangeMax, cure)
}

// MatchCalibrations compares candidates with the arm's motors: ids, models and the registers that OpenArm checks. It
// writes nothing but the status return level of a motor that answers only pings. differs holds, for each candidate, nil
// when it matches and an error with the difference when it does not. MatchCalibrations fails with OpenArm's errors when
// a motor does not answer, a motor has another model, or cfg.Canceled returns true.
func MatchCalibrations(cfg ArmConfig, candidates []Calibration) (differs []error, err error) {
	differs = make([]error, len(candidates))
	var fit []int // candidates that have the robot's motors
	for i, c := range candidates {
		if differs[i] = c.Check(cfg.Robot); differs[i] == nil {
			fit = append(fit, i)
		}
	}
	if len(fit) == 0 {
		return differs, nil
	}
	lent := cfg.Port != nil
	if err := cfg.openPort(); err != nil {
		return nil, err
	}
	if !lent {
		defer func() { err = errors.Join(err, cfg.Port.Close()) }()
	}
	cfg.Calibration = candidates[fit[0]]
	a := newArm(cfg)
	a.bus.DetectEcho(a.unusedID())
	if err := a.findMotors(); err != nil {
		return nil, err
	}
	if err := a.eachUnit(a.checkModel); err != nil {
		return nil, err
	}
	for _, i := range fit {
		err := a.eachUnit(func(u int) error {
			return a.checkCalibration(a.units[u], candidates[i])
		})
		if err != nil && !errors.Is(err, ErrCalibration) {
			return nil, err
		}
		differs[i] = err
	}
	return differs, nil
}

// limited reports whether a servo itself limits its goals to its range: for a goal outside, an STS
// goes to the edge of the range, and a Dynamixel in position mode refuses the goal.
func limited(model *table.Model, m robot.Motor) bool {
	if !model.Has(table.MinPositionLimit) {
		return false
	}
	mode, given := m.Setting(table.OperatingMode)
	return model.Protocol != table.Dynamixel2 || !given || mode == table.ModePosition
}

// rebootByHand is the advice for a motor that holds its joint in spite of a hardware error.
const rebootByHand = "only a reboot clears it, which would let the joint fall: hold the arm, switch its torque off " +
	"(edge-rt torque off), and start again"

// rebootTime is the wait until a rebooted servo answers again; servos needed 0.3 to 0.5 s.
const (
	rebootTime = 600 * time.Millisecond
	haltPoll   = 50 * time.Millisecond // period of the checks for cancellation during that wait
)

// checkLatched reboots a Dynamixel that reports a hardware error, because only a reboot clears the error. It refuses a
// follower's motor that has its torque, as after an error outside the motor's shutdown mask: a reboot switches the
// torque off, and the joint would fall. During a run, which goes on with such an error, it leaves the motor as it is. A
// leader's motors are let go in any case.
func (a *Arm) checkLatched(i int) error {
	u := a.units[i]
	if u.model.Protocol != table.Dynamixel2 {
		return nil
	}
	status, err := a.read(u, table.Status)
	fault := StatusFault(u.model.Protocol, status)
	if err != nil || fault == 0 {
		return err
	}
	torque, err := a.read(u, table.TorqueEnable)
	if err != nil {
		return err
	}
	switch {
	case torque == 0 || a.robot.Leader:
	case a.reopened:
		a.note(u, " has latched %v; %s", fault, rebootByHand)
		return nil
	default:
		return a.refuse(ErrLatched, u, ": %w; %s", fault, rebootByHand)
	}
	if err := a.answer(i); err != nil { // other software may have switched off its answers to instructions
		return err
	}
	if err := a.bus.instruct(u.id, packet.Reboot); err != nil {
		return a.wrap(u, err)
	}
	for end := a.clock.Now().Add(rebootTime); a.clock.Now() < end && !a.bus.isCanceled(); {
		a.clock.SleepUntil(min(end, a.clock.Now().Add(haltPoll)))
	}
	if status, err = a.read(u, table.Status); err != nil {
		return err
	}
	if still := StatusFault(u.model.Protocol, status); still != 0 {
		return a.refuse(ErrLatched, u, ": %w, again after a reboot; let it cool, check its supply and load", still)
	}
	a.note(u, " had latched %v and was rebooted", fault)
	return nil
}

// configure writes the settings that differ. A motor under torque stays as it is.
func (a *Arm) configure(i int) error {
	u := a.units[i]
	torque, err := a.read(u, table.TorqueEnable)
	if err != nil {
		return err
	}
	if torque != 0 && a.robot.Leader {
		if err := a.letGo(u); err != nil {
			return err
		}
		torque = 0
	}
	if err := a.findLimits(i, torque != 0); err != nil {
		return err
	}
	want, err := a.wanted(u)
	if err != nil {
		return err
	}
	changes, err := a.differing(u, want)
	if err != nil {
		return err
	}
	if torque == 0 {
		a.expectSettings(i, want, nil)
		if len(changes) == 0 {
			return nil
		}
		shadow := a.robot.Motors[u.joint].Shadow
		if shadow != 0 && !u.shadow && slices.ContainsFunc(changes, func(s robot.Setting) bool {
			return s.Register == table.DriveMode
		}) {
			// The shadow must not get this Drive_Mode, so until its own configuration it obeys only its own id.
			at := slices.IndexFunc(a.units, func(s unit) bool { return s.id == shadow })
			if err := a.answer(at); err != nil { // its own steps come later
				return err
			}
			alone := []robot.Setting{{Register: table.SecondaryID, Value: noSecondary}}
			if err := WriteSettings(a.bus, shadow, u.model, alone); err != nil {
				return a.wrap(a.units[at], err)
			}
		}
		return a.wrap(u, WriteSettings(a.bus, u.id, u.model, changes))
	}
	a.stiff |= 1 << u.joint
	a.expectSettings(i, want, changes)
	for _, s := range a.deferMarker(i, changes) {
		if slices.Contains(limpOnly, s.Register) {
			return a.refuse(ErrTorqueOn, u, ": wants %s = %d, which cannot change now; switch its torque off first "+
				"(edge-rt torque off)", s.Register, s.Value)
		}
		if !slices.Contains(a.unconfigured, u.name) {
			a.unconfigured = append(a.unconfigured, u.name)
		}
	}
	return nil
}

// limpOnly are the registers that are written only while a motor is limp. They change the meaning
// of its goal, so that a motor under torque would move.
var limpOnly = []table.Register{table.OperatingMode, table.Phase, table.SecondaryID, table.DriveMode}

// differing returns the wanted settings that a motor does not have yet, followed by the corrections of repairs.
func (a *Arm) differing(u unit, want []robot.Setting) ([]robot.Setting, error) {
	var changes []robot.Setting
	for _, s := range want {
		got, err := a.read(u, s.Register)
		if err != nil {
			return nil, err
		}
		if got != s.Value {
			changes = append(changes, s)
		}
	}
	repairs, err := a.repairs(u)
	return a.gainsToo(want, append(changes, repairs...)), err
}

// repairs returns corrections for registers in which other software has left a value that changes the meaning
// of goals. A correction of Phase changes one bit, since the other bits differ between servos.
func (a *Arm) repairs(u unit) (changes []robot.Setting, err error) {
	m := a.robot.Motors[u.joint]
	for _, r := range [...]table.Register{table.Phase, table.DriveMode, table.SecondaryID} {
		if _, given := m.Setting(r); !u.model.Has(r) || given {
			continue
		}
		got, err := a.read(u, r)
		if err != nil {
			return nil, err
		}
		want, why := got, ""
		switch {
		case r == table.Phase && u.model.Protocol == table.Feetech:
			want, why = got&^table.PhaseMultiTurn, "positions left 0 to 4095"
		case r == table.DriveMode:
			want, why = got&^(timeProfile|torqueByGoal),
				"its speed limits counted as times, or a goal switched its torque on"
		case r == table.SecondaryID && !u.shadow && ID(got) != u.id && slices.Contains(a.all, ID(got)):
			want, why = noSecondary, fmt.Sprintf("it took the goals of motor %d", got)
		}
		if want != got {
			if err := SameAgain(a.bus, u.id, u.model.Row(r), got); err != nil {
				return nil, a.wrap(u, err)
			}
			changes = append(changes, robot.Setting{Register: r, Value: want})
			a.note(u, " had %s %d, with which %s; it gets %d", r, got, why, want)
		}
	}
	return changes, nil
}

// SameAgain reads a register again and fails when its value is not the value before. Before a caller changes one bit of
// a register, the other bits must be certain: one damaged reply in 256 passes its checksum, and wrong bits in Phase
// make a motor run away.
func SameAgain(b *Bus, id ID, row table.Row, before int) error {
	again, _, err := b.ReadRegister(id, row)
	if err == nil && again != before {
		err = fmt.Errorf("%w: %s is %d, and then %d: nothing was written to it; check the plugs and cables",
			ErrGarbled, row.Register, before, again)
	}
	return err
}

// The values that repairs uses for an X servo.
const (
	timeProfile  = 1 << 2 // bit of Drive_Mode
	torqueByGoal = 1 << 3 // bit of Drive_Mode
	noSecondary  = 255    // Secondary_ID of a servo that obeys only its own id
)

// gainsToo adds all wanted settings to changes that contain the operating mode of a Dynamixel,
// because a change of the mode resets the gains.
func (a *Arm) gainsToo(want, changes []robot.Setting) []robot.Setting {
	if a.bus.protocol != table.Dynamixel2 || !slices.ContainsFunc(changes, func(s robot.Setting) bool {
		return s.Register == table.OperatingMode
	}) {
		return changes
	}
	for _, s := range want {
		if s.Register != table.OperatingMode && !slices.Contains(changes, s) {
			changes = append(changes, s)
		}
	}
	return changes
}

// WriteSettings sets registers of one limp motor in order and reads them back. It opens Feetech's
// lock for the writes and closes it again, also after a failure.
func WriteSettings(b *Bus, id ID, model *table.Model, changes []robot.Setting) error {
	halted := b.canceled
	b.canceled = nil // no cancellation while the lock is open
	defer func() { b.canceled = halted }()
	lock, wear := model.Row(table.Lock), false
	for _, s := range changes {
		wear = wear || model.Row(s.Register).Area == table.EEPROM
	}
	var failed error
	if wear && lock.Size != 0 {
		failed = b.WriteRegister(id, lock, 0) // the lock may be open even if no acknowledgement has come
	}
	for _, s := range changes {
		if failed != nil {
			break
		}
		failed = b.WriteRegister(id, model.Row(s.Register), s.Value)
	}
	if wear {
		b.clock.SleepUntil(b.clock.Now().Add(eepromSettle))
	}
	if wear && lock.Size != 0 {
		if err := b.WriteRegister(id, lock, 1); failed == nil {
			failed = err
		}
	}
	if failed != nil {
		return failed
	}
	for _, s := range changes {
		row := model.Row(s.Register)
		got, _, err := b.ReadRegister(id, row)
		if err != nil {
			return err
		}
		fixed := row.Addr >= table.FactoryBlock && model.Protocol == table.Feetech
		if got != s.Value && !fixed {
			cause := "its EEPROM may be worn out, replace the servo"
			if row.Area != table.EEPROM {
				cause = "it is perhaps no " + model.Name
			}
			return fmt.Errorf("%s is %d after writing %d; %s", s.Register, got, s.Value, cause)
		}
	}
	return nil
}

// EnableReplies makes motors answer reads and writes, and returns the names of the motors that it
// changed. Other software may have left a status return level at which motors obey without an
// answer.
func EnableReplies(b *Bus, motors []robot.Motor) (changed []string, err error) {
	for _, m := range motors {
		done, err := enableReplies(b, m)
		if err != nil {
			return changed, fmt.Errorf("motor %d (%s): %w", m.ID, m.Name, err)
		}
		if done {
			changed = append(changed, m.Name)
		}
	}
	return changed, nil
}

// AnswerReads changes motors that answer only pings, as a Dynamixel does at status return level 0,
// so that they also answer reads. It returns the names of the changed motors. It writes nothing to
// a motor that answers reads, is silent or is of another model.
func AnswerReads(b *Bus, motors []robot.Motor) (changed []string) {
	if b.protocol != table.Dynamixel2 {
		return nil // a Feetech answers reads at each of its levels, and an AX has its level in EEPROM
	}
	for _, m := range motors {
		if _, _, err := b.ReadRegister(m.ID, m.Model.Row(table.ModelNumber)); !errors.Is(err, ErrNoReply) {
			continue
		}
		if done, err := enableReplies(b, m); done && err == nil {
			changed = append(changed, m.Name)
		}
	}
	return changed
}

// allReplies returns the status return level at which a servo answers every instruction.
func allReplies(p table.Protocol) int {
	if p == table.Feetech {
		return 1
	}
	return 2
}

func enableReplies(b *Bus, m robot.Motor) (changed bool, err error) {
	row, want := m.Model.Row(table.ResponseStatusLevel), allReplies(m.Model.Protocol)
	if row.Size == 0 {
		return false, nil
	}
	level, _, err := b.ReadRegister(m.ID, row)
	if err == nil && level >= want {
		return false, nil
	}
	if err != nil && !b.pings(m) {
		return false, err // there is no motor, or it is another model, whose registers have other addresses
	}
	b.writeUnanswered(m.ID, m.Model, row, want)
	if level, _, err = b.ReadRegister(m.ID, row); err != nil {
		return false, err
	}
	if level != want {
		return false, fmt.Errorf("%s is %d after writing %d, so that it does not answer to writes", row.Register, level,
			want)
	}
	return true, nil
}

// writeUnanswered writes a register of a servo that does not acknowledge writes. It opens the
// servo's lock for a write to the EEPROM.
func (b *Bus) writeUnanswered(id ID, model *table.Model, row table.Row, value int) {
	b.SetRetry(1, ackTimeout)
	defer b.ResetRetry()
	lock := model.Row(table.Lock)
	locked := row.Area == table.EEPROM && lock.Size != 0
	if locked {
		_ = b.WriteRegister(id, lock, 0)
	}
	_ = b.WriteRegister(id, row, value) // the caller reads the register back
	if row.Area == table.EEPROM {
		b.clock.SleepUntil(b.clock.Now().Add(eepromSettle))
	}
	if locked {
		_ = b.WriteRegister(id, lock, 1)
	}
}
