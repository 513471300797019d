package bringup

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"edgert/internal/exit"
	"edgert/rt"
	"edgert/servo"
	"edgert/servo/robot"
	"edgert/servo/table"
)

const (
	eepromTime    = 30 * time.Millisecond  // after an EEPROM write, until a servo answers from it
	recordEvery   = 10 * time.Millisecond  // while ranges are recorded
	printEvery    = 500 * time.Millisecond // and printed
	noSecondaryID = 255                    // the Secondary_ID of a servo that answers to its own id only
	recordMisses  = 200                    // failed reads in a row that end a recording
)

// Calibrate finds each joint's range and writes it into the servos and LeRobot's file, in
// LeRobot's steps: the operator puts the arm into the middle of its range, which becomes
// half a turn, and moves every joint from end to end. Some arms get the factory's values.
func Calibrate(ctx context.Context, cfg Config) error {
	s, err := open(cfg)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.pingAll(); err != nil {
		return err
	}
	done, err := s.reuse(ctx)
	if done || err != nil {
		return err
	}
	if err := s.torqueOff(); err != nil {
		return err
	}
	var c servo.Calibration
	if cfg.Robot.Factory {
		c = s.factory()
	} else if c, err = s.measure(ctx); err != nil {
		return err
	}
	return s.save(c)
}

func (s *session) reuse(ctx context.Context) (done bool, err error) {
	c, err := servo.LoadCalibration(s.File())
	if err != nil || c.Check(s.Robot) != nil || s.Robot.Factory {
		if _, statErr := os.Stat(s.File()); statErr == nil && !s.Robot.Factory {
			s.say("The calibration at %s does not fit and will be replaced.", s.File())
		}
		return false, nil
	}
	answer, err := s.ask(ctx, "There is a calibration at %s. Press Enter to write it into the motors, or c and Enter to calibrate anew.", s.File())
	if err != nil || strings.EqualFold(answer, "c") {
		return false, err
	}
	if err := s.torqueOff(); err != nil {
		return false, err
	}
	return true, s.save(c)
}

// factory is the calibration of an arm that needs none.
func (s *session) factory() servo.Calibration {
	c := servo.Calibration{}
	for _, m := range s.Robot.Motors {
		c[m.Name] = servo.MotorCalibration{ID: int(m.ID), DriveMode: m.DriveMode, HomingOffset: m.Homing, RangeMax: m.Model.MaxRaw()}
	}
	return c
}

// measure asks the operator to move the arm.
func (s *session) measure(ctx context.Context) (servo.Calibration, error) {
	// Until OpenArm, shadow motors do not take what is written to their motors' ids.
	for _, m := range s.shadows() {
		if err := s.write(m, []robot.Setting{{Register: table.SecondaryID, Value: noSecondaryID}}); err != nil {
			return nil, err
		}
	}
	for _, m := range append(s.shadows(), s.Robot.Motors...) {
		if err := s.clearCalibration(m); err != nil {
			return nil, err
		}
	}
	if _, err := s.ask(ctx, "Torque is off. Move every joint to the middle of its range, then press Enter."); err != nil {
		return nil, err
	}
	for _, m := range s.shadows() {
		if _, err := s.writeHoming(m); err != nil {
			return nil, err
		}
	}
	c := servo.Calibration{}
	for _, m := range s.Robot.Motors {
		offset, err := s.writeHoming(m)
		if err != nil {
			return nil, err
		}
		c[m.Name] = servo.MotorCalibration{ID: int(m.ID), DriveMode: m.DriveMode, HomingOffset: offset, RangeMax: m.Model.MaxRaw()}
	}
	return c, s.record(ctx, c)
}

// shadows are the second servos of joints, as motors of their own.
func (s *session) shadows() (all []robot.Motor) {
	for _, m := range s.Robot.Motors {
		if m.Shadow != 0 {
			m.ID, m.Name = m.Shadow, m.Name+"_shadow"
			all = append(all, m)
		}
	}
	return all
}

func (s *session) clearCalibration(m robot.Motor) error {
	settings := []robot.Setting{}
	add := func(r table.Register, v int) {
		if m.Model.Has(r) {
			settings = append(settings, robot.Setting{Register: r, Value: v})
		}
	}
	mode := 0
	if m.Model.Protocol == table.Dynamixel2 {
		mode = table.ModeExtendedPosition
		add(table.DriveMode, m.DriveMode)
	}
	add(table.OperatingMode, mode)
	add(table.HomingOffset, 0)
	add(table.MinPositionLimit, 0)
	add(table.MaxPositionLimit, m.Model.MaxRaw())
	return s.write(m, settings)
}

func (s *session) write(m robot.Motor, settings []robot.Setting) error {
	if err := servo.WriteSettings(s.bus, m.ID, m.Model, settings); err != nil {
		return exit.With(exit.Absent, fmt.Errorf("motor %d (%s): %w", m.ID, m.Name, err))
	}
	return nil
}

// writeHoming makes where a motor stands half a turn. Source: LeRobot.
func (s *session) writeHoming(m robot.Motor) (offset int, err error) {
	if !m.Model.Has(table.HomingOffset) {
		return 0, nil
	}
	at, err := s.read(m, table.PresentPosition)
	if err != nil {
		return 0, err
	}
	offset = (m.Model.MaxRaw()/2 - at) * m.Model.Offset
	if err := m.Model.Row(table.HomingOffset).Check(offset); err != nil {
		return 0, exit.Errorf(exit.Fault, "motor %d (%s) stands at %d, at the very end of its turn: %w; the joint is far from its middle, or the horn sits wrong: move it and start again",
			m.ID, m.Name, at, err)
	}
	return offset, s.write(m, []robot.Setting{{Register: table.HomingOffset, Value: offset}})
}

// record follows the joints until the operator presses Enter.
func (s *session) record(ctx context.Context, c servo.Calibration) error {
	var moving []robot.Motor
	var still []string
	for _, m := range s.Robot.Motors {
		if m.FullTurn {
			still = append(still, m.Name)
			continue
		}
		moving = append(moving, m)
		entry := c[m.Name]
		at, err := s.read(m, table.PresentPosition)
		if err != nil {
			return err
		}
		entry.RangeMin, entry.RangeMax = at, at
		c[m.Name] = entry
	}
	but := ""
	if len(still) > 0 {
		but = " but " + strings.Join(still, " and ")
	}
	s.say("Now move every joint%s slowly from one end to the other. Press Enter when all have been there.", but)
	s.listen()
	misses, nextPrint := 0, rt.Instant(0)
	for {
		select {
		case _, ok := <-s.lines:
			if !ok {
				return errNoOperator
			}
			s.printRanges(moving, c)
			return s.checkMoved(moving, c)
		case <-ctx.Done():
			return exit.Errorf(exit.Failure, "interrupted: the old file stays, the motors have no limits now; calibrate again")
		default:
		}
		if err := s.widenRanges(moving, c); err == nil {
			misses = 0
		} else if misses++; misses > recordMisses {
			return err
		}
		if now := s.Clock.Now(); now >= nextPrint {
			nextPrint = now.Add(printEvery)
			s.printRanges(moving, c)
		}
		s.Clock.SleepUntil(s.Clock.Now().Add(recordEvery))
	}
}

func (s *session) widenRanges(motors []robot.Motor, c servo.Calibration) error {
	for _, m := range motors {
		at, err := s.read(m, table.PresentPosition)
		if err != nil {
			return err
		}
		entry := c[m.Name]
		entry.RangeMin, entry.RangeMax = min(entry.RangeMin, at), max(entry.RangeMax, at)
		c[m.Name] = entry
	}
	return nil
}

func (s *session) printRanges(motors []robot.Motor, c servo.Calibration) {
	text := ""
	for _, m := range motors {
		text += fmt.Sprintf("  %s %d..%d", m.Name, c[m.Name].RangeMin, c[m.Name].RangeMax)
	}
	s.say("%s", strings.TrimSpace(text))
}

func (s *session) checkMoved(motors []robot.Motor, c servo.Calibration) error {
	var still []string
	for _, m := range motors {
		if c[m.Name].RangeMin == c[m.Name].RangeMax {
			still = append(still, m.Name)
		}
	}
	if len(still) > 0 {
		return exit.Errorf(exit.Config, "%s did not move: start again and move every joint from end to end", strings.Join(still, ", "))
	}
	return nil
}

func (s *session) save(c servo.Calibration) error {
	if err := c.Check(s.Robot); err != nil {
		return exit.With(exit.Config, err)
	}
	for _, m := range s.Robot.Motors {
		entry := c[m.Name]
		var settings []robot.Setting
		for _, want := range []robot.Setting{{Register: table.DriveMode, Value: entry.DriveMode}, {Register: table.HomingOffset, Value: entry.HomingOffset},
			{Register: table.MinPositionLimit, Value: entry.RangeMin}, {Register: table.MaxPositionLimit, Value: entry.RangeMax}} {
			row := m.Model.Row(want.Register)
			if row.Size == 0 || row.Check(want.Value) != nil {
				continue // a range beyond a turn, which only the file can hold
			}
			got, err := s.read(m, want.Register)
			if err != nil {
				return err
			}
			if got != want.Value { // EEPROM wears
				settings = append(settings, want)
			}
		}
		if err := s.write(m, settings); err != nil {
			return err
		}
	}
	if err := c.Save(s.File()); err != nil {
		return exit.With(exit.Config, err)
	}
	s.say("Calibration is in the motors and at %s.", s.File())
	if s.Robot.Leader {
		id := ""
		if s.ID != "" {
			id = " --leader-id " + s.ID
		}
		if s.Calibration != "" {
			id += " --leader-calibration " + s.Calibration
		}
		s.say("Next: edge-rt teleop --leader %s --leader-robot %s%s --bus FOLLOWER", s.Bus, s.Robot.Flag(), id)
	} else {
		s.say("Next: edge-rt monitor %s, then move one joint: edge-rt move %s 10 %s", s.flags(), s.Robot.Motors[0].Name, s.flags())
	}
	return nil
}
