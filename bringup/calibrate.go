package bringup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

const (
	eepromTime    = 30 * time.Millisecond  // time after an EEPROM write until a servo answers with the new value
	recordEvery   = 10 * time.Millisecond  // period of the readings while ranges are recorded
	printEvery    = 500 * time.Millisecond // period of the printed lines
	drawEvery     = 100 * time.Millisecond // period of the table on a terminal
	saveEvery     = time.Second            // period of the saved progress
	noSecondaryID = 255                    // the Secondary_ID of a servo that answers only to its own id
	silentMax     = 2 * time.Second        // a recording ends when all joints were silent for so long
	homeSlack     = 256                    // counts that an arm in a hand may move while its offsets are written
	maxOthers     = 256                    // largest number of other calibrations that are compared with the motors
)

// Calibrate finds each joint's range and writes it into the servos and LeRobot's file. As with LeRobot, the operator
// puts the arm into the middle of its range, which becomes half a turn, and then moves every joint from end to end.
// Some arms get the factory's values. An interrupted calibration continues at its last step, see progress.
func Calibrate(ctx context.Context, cfg Config) error {
	if err := cfg.checkID(); err != nil {
		return err
	}
	if err := writable(cfg.File()); err != nil {
		return exit.With(exit.Config, err)
	}
	s, err := open(cfg)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.pingAll(); err != nil {
		return err
	}
	if err := s.checkModels(); err != nil {
		return err
	}
	if changed, err := servo.EnableReplies(s.bus, s.servos()); err != nil {
		return exit.With(exit.Absent, err)
	} else if len(changed) > 0 {
		s.printf("Motors that answered to no writes answer now: %s.", strings.Join(changed, ", "))
		if err := s.checkModels(); err != nil { // a motor that did not answer reads can have another model
			return err
		}
	}
	k := &calibrator{session: s}
	if done, err := k.resume(ctx); done || err != nil {
		return err
	}
	if done, err := k.reuse(ctx); done || err != nil {
		return err
	}
	if err := s.torqueOff(ctx); err != nil {
		return err
	}
	if cfg.Robot.Factory || cfg.Robot.Wheels().Len() == len(cfg.Robot.Motors) { // there is no joint to move
		return k.save(s.factory())
	}
	if err := k.home(ctx); err != nil {
		return err
	}
	return k.finish(ctx)
}

// calibrator is one running calibration.
type calibrator struct {
	*session
	progress progress
	ranges   []*jointRange  // ranges of the joints that are moved, in the robot's order
	offsets  map[string]int // homing offset in each motor
	drawn    int            // lines of the table on the terminal
}

// writable refuses a path that cannot be written, before the operator has to do anything.
func writable(path string) error {
	probe := servo.Calibration{}
	if err := probe.Save(path + probeSuffix); err != nil {
		return err
	}
	return os.Remove(path + probeSuffix)
}

const probeSuffix = ".try"

// reuse offers the existing calibration. Without one, it asks whether to calibrate motors that have the calibration of
// another arm.
func (k *calibrator) reuse(ctx context.Context) (done bool, err error) {
	file := k.File()
	c, err := servo.LoadCalibration(file)
	if err == nil {
		err = c.Check(k.Robot)
	}
	absent := errors.Is(err, os.ErrNotExist)
	switch {
	case k.Robot.Factory:
		return false, nil
	case err != nil && !absent:
		k.printf("The calibration at %s cannot be used and will be replaced: %v.", file, err)
		return false, nil
	}
	if bad := implausibles(k.Robot, c); bad != "" && !absent {
		answer, err := k.ask(ctx, "The calibration at %s is not plausible: %s. Press c and Enter to calibrate anew.",
			file, bad)
		if err == nil && !strings.EqualFold(answer, "c") {
			err = exit.Errorf(exit.Config, "the calibration at %s is not plausible: %s; nothing was written: run the "+
				"command again and answer c", file, bad)
		}
		return false, err
	}
	owner, unknown := k.owner(c)
	question := "There is a calibration at " + file
	switch {
	case absent && owner == "":
		return false, nil
	case absent:
		question = "The motors have the calibration of another arm, " + owner + ". Press "
	case unknown != nil:
		question += ". Press Enter to write it into the motors, or "
	case owner == "":
		question += ", which the motors do not have. Press Enter to write it into them, or "
	case owner == file:
		question += ", and the motors have it. Press Enter to keep it, or "
	default:
		question += ", and the motors have that of another arm, " + owner + ". Press w and Enter to write the first " +
			"into them all the same, or "
	}
	answer, err := k.ask(ctx, "%sc and Enter to calibrate anew.", question)
	switch {
	case err != nil || strings.EqualFold(answer, "c"):
		return false, err
	case absent, owner != "" && owner != file && !strings.EqualFold(answer, "w"):
		return false, exit.Errorf(exit.Config, "the motors at %s have the calibration %s and not %s: nothing was "+
			"written; give this arm's port or --id, or run the command again and give another answer", k.Bus, owner,
			file)
	}
	if err := k.torqueOff(ctx); err != nil {
		return false, err
	}
	return true, k.save(c)
}

// owner returns the file whose calibration the motors have, or "" if it finds no such file. It compares the motors with
// the arm's file, whose calibration is c, and with the files of other arms in the same folder. If that folder is
// LeRobot's, it also compares them with the files in LeRobot's other folders.
func (k *calibrator) owner(c servo.Calibration) (file string, err error) {
	file = k.File()
	all, names := []servo.Calibration{c}, []string{file}
	pattern := "*.json"
	if k.Calibration == "" {
		pattern = "../../*/*/" + pattern
	}
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(file), pattern)) // a malformed pattern matches none
	for _, f := range files[:min(len(files), maxOthers)] {
		another, err := servo.LoadCalibration(f)
		if err == nil && f != file && moved(another) {
			all, names = append(all, another), append(names, f)
		}
	}
	differs, err := servo.MatchCalibrations(servo.ArmConfig{
		Path:  k.Bus,
		Robot: k.Robot,
		Port:  k.port,
		Clock: k.Clock,
	}, all)
	i := slices.Index(differs, nil)
	if i < 0 {
		return "", err
	}
	return names[i], nil
}

// moved reports whether a calibration has an offset. A calibration without offsets would match any motors that are as
// the factory delivers them.
func moved(c servo.Calibration) bool {
	for _, m := range c {
		if m.HomingOffset != 0 {
			return true
		}
	}
	return false
}

// implausibles returns, as text, the implausible ranges of a file with their reasons; "": all are plausible.
func implausibles(r robot.Robot, c servo.Calibration) string {
	var bad []string
	for _, m := range r.Motors {
		if why := implausible(m, c[m.Name]); why != "" {
			bad = append(bad, why)
		}
	}
	return strings.Join(bad, "; ")
}

// factory returns the calibration with which a maker delivers the arm: whole turns.
func (s *session) factory() servo.Calibration {
	c := servo.Calibration{}
	for _, m := range s.Robot.Motors {
		c[m.Name] = servo.MotorCalibration{
			ID:           int(m.ID),
			DriveMode:    m.DriveMode,
			HomingOffset: m.Homing,
			RangeMax:     m.Model.MaxRaw(),
		}
	}
	return c
}

// home writes offsets with which every motor reads half a turn in the middle pose. Until the operator has pressed
// Enter, the motors keep their old calibration.
func (k *calibrator) home(ctx context.Context) error {
	k.printf("%s", middlePose(k.Robot))
	if _, err := k.ask(ctx, "Torque is off. Move every joint to the middle of its range, "+
		"then press Enter."); err != nil {
		return err
	}
	k.offsets = map[string]int{}
	var wrote []string
	if err := k.separate(); err != nil {
		return err
	}
	for _, m := range k.servos() {
		offset, err := k.homeMotor(m)
		if err != nil {
			return k.halfWritten(err, wrote, m.Name)
		}
		k.offsets[m.Name] = offset
		wrote = append(wrote, m.Name)
	}
	var ranges []*jointRange
	for _, m := range k.moving() {
		at, err := k.read(m, table.PresentPosition)
		if err != nil {
			return k.halfWritten(err, wrote, "")
		}
		w := newRange(m, at, k.Clock.Now())
		if off := w.at - w.middle(); w.turn != 0 && max(off, -off) > homeSlack {
			return k.halfWritten(exit.Errorf(exit.Fault,
				"motor %d (%s) reads %d after its homing offset was written, want about %d: hold the arm still there; "+
					"a motor that does this again does not obey its offset: replace it", m.ID, m.Name, at, w.middle()),
				wrote, "")
		}
		ranges = append(ranges, w)
	}
	k.ranges = ranges
	return k.keep(stepMoving)
}

// separate makes every motor obey only its own id. Until the next OpenArm, a joint's second motor must not receive the
// writes to the id of its first motor, and other software may have left any Dynamixel with the id of another one.
func (k *calibrator) separate() error {
	for _, m := range k.servos() {
		alone := existing(m, []robot.Setting{{Register: table.SecondaryID, Value: noSecondaryID}})
		if len(alone) == 0 {
			continue
		}
		if err := k.setDiffering(m, alone); err != nil {
			return k.halfWritten(err, nil, m.Name)
		}
	}
	return nil
}

// halfWritten adds to an error the names of the written motors and the way to continue.
func (k *calibrator) halfWritten(err error, wrote []string, broken string) error {
	if broken == "" && len(wrote) == 0 {
		return err
	}
	text := "no motor was written"
	if len(wrote) > 0 {
		text = "written so far: " + strings.Join(wrote, ", ")
	}
	if broken != "" {
		text += "; perhaps in part: " + broken
	}
	return fmt.Errorf("%w; %s; a run refuses the arm until this command has come to its end: run it again", err, text)
}

// homeMotor writes the settings of an uncalibrated motor, then the offset with which the motor's present position reads
// half a turn. It returns the offset. Source: LeRobot.
func (k *calibrator) homeMotor(m robot.Motor) (offset int, err error) {
	if err := k.setDiffering(m, bareSettings(m)); err != nil {
		return 0, err
	}
	if !m.Model.Has(table.HomingOffset) || m.Norm == robot.Velocity {
		return 0, nil // LeRobot's offset of a wheel is 0, too
	}
	at, err := k.read(m, table.PresentPosition)
	if err != nil {
		return 0, err
	}
	offset, _ = homing(m, at)
	return offset, k.setDiffering(m, []robot.Setting{{Register: table.HomingOffset, Value: offset}})
}

// bareSettings returns the settings of a motor without a calibration: no offset, no limits, and for a Dynamixel 2.0 the
// mode in which it counts turns.
func bareSettings(m robot.Motor) []robot.Setting {
	mode := 0
	switch {
	case m.Model.Protocol == table.Dynamixel2:
		mode = table.ModeExtendedPosition
	case m.Norm == robot.Velocity:
		mode = table.ModeVelocity
	}
	return existing(m, []robot.Setting{
		{Register: table.DriveMode, Value: m.DriveMode},
		{Register: table.OperatingMode, Value: mode},
		{Register: table.HomingOffset},
		{Register: table.MinPositionLimit},
		{Register: table.MaxPositionLimit, Value: m.Model.MaxRaw()},
	})
}

// existing returns the settings whose register the motor has.
func existing(m robot.Motor, settings []robot.Setting) []robot.Setting {
	return slices.DeleteFunc(settings, func(s robot.Setting) bool { return !m.Model.Has(s.Register) })
}

// servos returns the robot's motors, and then the second servos of joints as separate motors.
func (s *session) servos() []robot.Motor {
	all := slices.Clone(s.Robot.Motors)
	for _, m := range s.Robot.Motors {
		if m.Shadow != 0 {
			all = append(all, shadowOf(m))
		}
	}
	return all
}

// shadowOf returns the second servo of a joint. It faces the first one, so it turns the other way.
//
// Source: Interbotix wx250s and vx300s motor configurations.
func shadowOf(m robot.Motor) robot.Motor {
	m.ID, m.Shadow = m.Shadow, 0
	m.Name += "_shadow"
	if _, given := m.Setting(table.DriveMode); !given { // a robot file's Drive_Mode is for both motors
		m.DriveMode ^= 1
	}
	return m
}

// moving returns the motors whose ranges are recorded.
func (s *session) moving() (all []robot.Motor) {
	for _, m := range s.Robot.Motors {
		if !m.FullTurn {
			all = append(all, m)
		}
	}
	return all
}

// setDiffering writes settings to a limp motor, but only those that differ from the motor's, because EEPROM wears. On a
// Feetech motor it also clears the bit of Phase that makes positions count beyond one turn.
func (s *session) setDiffering(m robot.Motor, want []robot.Setting) error {
	if m.Model.Protocol == table.Feetech && m.Model.Has(table.Phase) {
		phase, err := s.read(m, table.Phase)
		if err != nil {
			return err
		}
		if phase&table.PhaseMultiTurn != 0 {
			if err := servo.SameAgain(s.bus, m.ID, m.Model.Row(table.Phase), phase); err != nil {
				return exit.Errorf(exit.Absent, "motor %d (%s): %w", m.ID, m.Name, err)
			}
			want = append([]robot.Setting{{Register: table.Phase, Value: phase &^ table.PhaseMultiTurn}}, want...)
		}
	}
	var settings []robot.Setting
	for _, w := range want {
		got, err := s.read(m, w.Register)
		if err != nil {
			return err
		}
		if got != w.Value {
			settings = append(settings, w)
		}
	}
	if len(settings) == 0 {
		return nil
	}
	if err := servo.WriteSettings(s.bus, m.ID, m.Model, settings); err != nil {
		return exit.Errorf(exit.Absent, "motor %d (%s): %w", m.ID, m.Name, err)
	}
	return nil
}

// finish records the joints' ranges, changes the offset of each joint whose range crosses its encoder's seam, and
// writes the calibration.
func (k *calibrator) finish(ctx context.Context) error {
	if err := k.record(ctx); err != nil {
		return err
	}
	c := k.factory()
	for name, entry := range c {
		entry.HomingOffset = k.offsets[name]
		c[name] = entry
	}
	for _, w := range k.ranges {
		entry := c[w.motor.Name]
		offset, shift := clearOfSeam(w.motor, entry.HomingOffset, w.low, w.high)
		if shift != 0 {
			k.printf("%s: %d to %d is over or near the seam of its encoder (%d to 0): with homing offset %d its range "+
				"is %d to %d, clear of the seam.",
				w.motor.Name, w.low, w.high, w.motor.Model.MaxRaw(), offset, w.low+shift, w.high+shift)
		}
		entry.HomingOffset = offset
		entry.RangeMin = w.low + shift
		entry.RangeMax = w.high + shift
		c[w.motor.Name] = entry
	}
	k.progress.Result = c
	if err := k.keep(stepWriting); err != nil {
		return err
	}
	return k.save(c)
}

// save writes a calibration into the motors, then into the file.
func (k *calibrator) save(c servo.Calibration) error {
	if err := c.Check(k.Robot); err != nil {
		return exit.With(exit.Config, err)
	}
	if err := k.separate(); err != nil {
		return err
	}
	var wrote []string
	for _, m := range k.Robot.Motors {
		err := k.setDiffering(m, calibrated(m, c[m.Name]))
		if err == nil && m.Shadow != 0 {
			err = k.pair(m, c[m.Name])
		}
		if err != nil {
			return k.halfWritten(err, wrote, m.Name)
		}
		wrote = append(wrote, m.Name)
	}
	if err := c.Save(k.File()); err != nil {
		return exit.With(exit.Config, k.halfWritten(err, wrote, ""))
	}
	k.RememberAdapter()
	k.forget()
	k.printf("Calibration is in the motors and at %s.", k.File())
	k.sayNext()
	return nil
}

// pair makes the second servo of a joint read the same position as its first servo m reads with the calibration c. Both
// servos get the same goals.
func (k *calibrator) pair(m robot.Motor, c servo.MotorCalibration) error {
	m.DriveMode = c.DriveMode
	shadow := shadowOf(m)
	err := k.setDiffering(shadow, []robot.Setting{{Register: table.DriveMode, Value: shadow.DriveMode}})
	if err != nil {
		return err
	}
	was, err := k.read(shadow, table.HomingOffset)
	if err != nil {
		return err
	}
	at, err := k.read(m, table.PresentPosition)
	if err != nil {
		return err
	}
	other, err := k.read(shadow, table.PresentPosition)
	if err != nil {
		return err
	}
	middle, _ := homing(m, at-c.HomingOffset)
	offset, _ := homing(shadow, other-was)
	if offset += c.HomingOffset - middle; max(offset-was, was-offset) <= readSlack {
		return nil
	}
	return k.setDiffering(shadow, []robot.Setting{{Register: table.HomingOffset, Value: offset}})
}

// calibrated returns a motor's settings for its calibration. A Dynamixel that counts turns may have a range that
// exceeds one turn. Such a range is only in the file, and the motor gets no limits: one limit without the other would
// be wrong.
func calibrated(m robot.Motor, c servo.MotorCalibration) []robot.Setting {
	low, high := c.RangeMin, c.RangeMax
	if low < 0 || high > m.Model.MaxRaw() {
		low, high = 0, m.Model.MaxRaw()
	}
	return existing(m, []robot.Setting{
		{Register: table.DriveMode, Value: c.DriveMode}, {Register: table.HomingOffset, Value: c.HomingOffset},
		{Register: table.MinPositionLimit, Value: low}, {Register: table.MaxPositionLimit, Value: high},
	})
}

func (s *session) sayNext() {
	if s.Part != "" {
		return // EachPart prints the next step
	}
	if !s.Robot.Leader {
		s.printf("Next: edge-rt monitor %s, then move one joint: edge-rt move %s 10 %s", s.flags(),
			s.Robot.Motors[0].Name,
			s.flags())
		return
	}
	id := ""
	if s.ID != "" {
		id = " --leader-id " + device.Quote(s.ID)
	}
	if s.Calibration != "" {
		id += " --leader-calibration " + device.Quote(s.Calibration)
	}
	s.printf("Next: edge-rt teleop --leader %s --leader-robot %s%s --bus FOLLOWER", device.Quote(s.Bus),
		device.Quote(s.Robot.Flag()), id)
}
