package bringup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// idWait is the time to wait for the reply to the write of a new id. The motor still replies with its old id.
const idWait = 50 * time.Millisecond

// SetupMotors gives every motor its id and baud rate.
func SetupMotors(ctx context.Context, cfg Config) error {
	if err := cfg.checkBus(); err != nil {
		return err
	}
	s := newSession(cfg)
	defer s.close()
	s.printf("Each motor of a %s gets its id. Keep the motors' supply on.", cfg.Robot.Name)
	given := map[servo.ID]string{}
	for _, m := range setupOrder(cfg.Robot.Motors) {
		if m.Shadow != 0 {
			if err := s.setUp(ctx, m, m.Shadow, m.Name+"_shadow", given); err != nil {
				return err
			}
		}
		if err := s.setUp(ctx, m, m.ID, m.Name, given); err != nil {
			return err
		}
	}
	s.printf("%s", s.next("All motors have their ids. Connect them in a chain.",
		"edge-rt scan %s, then edge-rt calibrate %s", s.flags(), s.flags()))
	return nil
}

// setupOrder returns the motors in LeRobot's order: the last motor of the arm first, and a base's
// wheels after the arm.
func setupOrder(motors []robot.Motor) []robot.Motor {
	var arm, wheels []robot.Motor
	for _, m := range slices.Backward(motors) {
		if m.Norm == robot.Velocity {
			wheels = append(wheels, m)
		} else {
			arm = append(arm, m)
		}
	}
	return append(arm, wheels...)
}

// setUp gives an id to the motor that the operator connects, and adds the motor's name to given, the names by id.
func (s *session) setUp(ctx context.Context, m robot.Motor, id uint8, name string, given map[servo.ID]string) error {
	for {
		if _, err := s.ask(ctx, "Connect the %s motor alone (%s) and press Enter.", name, m.Model.Name); err != nil {
			return err
		}
		f, err := s.findSingle(ctx, m)
		if err == nil && f.id != id && given[f.id] != "" {
			err = s.confirmOther(ctx, f.id, given[f.id])
		}
		if err == nil {
			err = s.writeID(f, m, id)
		}
		if err == nil {
			given[id] = name
			s.printf("%s is motor %d now.", name, id)
			return nil
		}
		if errors.Is(err, servo.ErrPortAbsent) || ctx.Err() != nil {
			return err
		}
		s.printf("Not yet: %v", err)
	}
}

// confirmOther asks whether a motor with the id of an earlier motor is another one: without the question, an operator
// who forgets to connect the next motor would give the earlier one a second id.
func (s *session) confirmOther(ctx context.Context, id servo.ID, earlier string) error {
	answer, err := s.ask(ctx, "It has id %d, as the %s motor has. If it is another motor, press y and Enter; "+
		"otherwise press Enter.", id, earlier)
	if err == nil && !strings.EqualFold(answer, "y") {
		err = fmt.Errorf("this is the %s motor", earlier)
	}
	return err
}

// findSingle finds the only motor on the bus, at any baud rate and id.
func (s *session) findSingle(ctx context.Context, m robot.Motor) (found, error) {
	p := m.Model.Protocol
	usual := []servo.ID{m.ID}
	for _, other := range s.Robot.Motors {
		usual = append(usual, other.ID, other.Shadow)
	}
	last := slices.Max(append(usual, defaultLastID))
	all, err := s.scan(ctx, last, &p)
	if err == nil && len(all) == 0 {
		all, err = s.scan(ctx, servo.MaxID, &p)
	}
	switch {
	case err != nil:
		return found{}, err
	case len(all) == 0:
		return found{}, fmt.Errorf("no %s answers: check its supply and cable, and --robot", m.Model.Name)
	case len(all) > 1 || all[0].duplicate:
		return found{}, errors.New("more than one motor answers: connect this one alone")
	case all[0].unreadable:
		return found{}, fmt.Errorf("motor %d %s", all[0].id, all[0].state())
	case all[0].model != m.Model:
		return found{}, fmt.Errorf("this is a %s, want a %s", all[0].name(), m.Model.Name)
	}
	return all[0], nil
}

// writeID writes the new id and the robot's baud rate to the motor f, with torque off and the EEPROM unlocked. The
// motor may reply to the write of the baud rate at the old or at the new rate, so writeID ends with a read at the new
// rate.
func (s *session) writeID(f found, m robot.Motor, id uint8) error {
	code, ok := m.Model.Protocol.BaudCode(s.Robot.Baud)
	if !ok {
		return fmt.Errorf("a %s cannot run at %d baud", m.Model.Name, s.Robot.Baud)
	}
	if err := s.openBus(f.baud, m.Model.Protocol); err != nil {
		return err
	}
	alone := m
	alone.ID = f.id
	if _, err := servo.EnableReplies(s.bus, []robot.Motor{alone}); err != nil {
		return err
	}
	if err := s.bus.WriteRegister(f.id, m.Model.Row(table.TorqueEnable), 0); err != nil {
		return err
	}
	if f.id != id {
		if err := s.unlock(f.id, m.Model, 0); err != nil {
			return err
		}
		// No retry: after a success the old id is gone. The ping below reveals the result.
		s.bus.SetRetry(1, idWait)
		failed := s.bus.WriteRegister(f.id, m.Model.Row(table.MotorID), int(id))
		s.bus.ResetRetry()
		s.Clock.SleepUntil(s.Clock.Now().Add(eepromTime))
		if err := s.bus.Ping(id); err != nil {
			return errors.Join(failed, err)
		}
	}
	if f.baud != s.Robot.Baud {
		if err := s.unlock(id, m.Model, 0); err != nil {
			return err
		}
		s.bus.SetRetry(1, scanWait)
		// The motor may answer at the old rate, at the new rate, or not at all.
		_ = s.bus.WriteRegister(id, m.Model.Row(table.BaudRate), code)
	}
	s.Clock.SleepUntil(s.Clock.Now().Add(eepromTime))
	if err := s.openBus(s.Robot.Baud, m.Model.Protocol); err != nil {
		return err
	}
	if err := s.unlock(id, m.Model, 1); err != nil {
		return fmt.Errorf("it does not answer as motor %d at %d baud: %w", id, s.Robot.Baud, err)
	}
	got, _, err := s.bus.ReadRegister(id, m.Model.Row(table.MotorID))
	if err == nil && got != int(id) {
		err = fmt.Errorf("its id is %d after writing %d", got, id)
	}
	return err
}

// unlock writes the value lock to the EEPROM lock of a Feetech servo: 0 unlocks, 1 locks. To other servos, which have
// no lock, it only sends a ping.
func (s *session) unlock(id servo.ID, m *table.Model, lock int) error {
	if !m.Has(table.Lock) {
		return s.bus.Ping(id)
	}
	return s.bus.WriteRegister(id, m.Row(table.Lock), lock)
}
