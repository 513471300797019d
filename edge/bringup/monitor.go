package bringup

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"edgert/edge/follow"
	"edgert/internal/exit"
	"edgert/rt"
	"edgert/servo"
	"edgert/servo/robot"
	"edgert/servo/table"
)

// MonitorConfig is one edge-rt monitor.
type MonitorConfig struct {
	Config
	Every time.Duration // between tables
	Count int           // tables; 0: until ctx ends
	Live  bool          // over the last table instead of below it
}

// Monitor shows what every motor says of itself, until it is interrupted or
// nobody reads on. It reads only, so it may run before anything is calibrated.
func Monitor(ctx context.Context, cfg MonitorConfig) error {
	s, err := open(cfg.Config)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.find(); err != nil {
		return err
	}
	calibration, err := servo.LoadCalibration(s.File())
	if err != nil || calibration.Check(s.Robot) != nil {
		s.say("No calibration that fits at %s: positions are raw. Next: edge-rt calibrate %s", s.File(), s.flags())
		calibration = nil
	}
	for n := 0; ctx.Err() == nil && (cfg.Count == 0 || n < cfg.Count); n++ {
		if n > 0 {
			if s.pause(ctx, cfg.Every); ctx.Err() != nil {
				break
			}
			if cfg.Live {
				fmt.Fprintf(s.Out, "\x1b[%dA", len(s.Robot.Motors)+1)
			}
		}
		s.say("%-16s %3s %7s %9s %7s %5s %7s %8s  %s", "JOINT", "ID", "RAW", "POSITION", "LOAD", "TEMP", "SUPPLY", "CURRENT", "STATE")
		for _, m := range s.Robot.Motors {
			line, err := s.row(m, calibration)
			if err != nil {
				return err
			}
			s.say("%s", line)
		}
		if errors.Is(s.gone, syscall.EPIPE) {
			return nil // whoever read it has seen enough
		}
		if s.gone != nil {
			return fmt.Errorf("write the table: %w", s.gone)
		}
	}
	return nil
}

// row reads one motor and writes it as a line. A motor that does not answer has
// one too.
func (s *session) row(m robot.Motor, c servo.Calibration) (string, error) {
	var fault servo.Fault
	values := map[table.Register]int{}
	for _, r := range []table.Register{table.PresentPosition, table.PresentLoad, table.PresentTemperature, table.PresentVoltage, table.PresentCurrent, table.TorqueEnable, table.Status} {
		if !m.Model.Has(r) {
			continue
		}
		v, f, err := s.bus.ReadRegister(m.ID, m.Model.Row(r))
		if err != nil {
			if s.bus.Lost() {
				return "", exit.Errorf(exit.Absent, "%s has gone: plug the adapter in again", s.Bus)
			}
			return fmt.Sprintf("%-16s %3d  %v", m.Name, m.ID, err), nil
		}
		values[r], fault = v, fault|f
	}
	if v, ok := values[table.Status]; ok {
		fault |= servo.StatusFault(m.Model.Protocol, v)
	}
	position, load, current := "-", "-", "-"
	if c != nil {
		position = fmt.Sprintf("%.2f", servo.Normalize(m, c[m.Name], values[table.PresentPosition]))
	}
	if v, ok := values[table.PresentLoad]; ok {
		load = fmt.Sprintf("%.1f%%", float64(v)/10)
	}
	if v, ok := values[table.PresentCurrent]; ok {
		current = fmt.Sprintf("%.0fmA", float64(v)*m.Model.CurrentMA)
	}
	state := stateOf(values[table.TorqueEnable] != 0, fault)
	if c != nil {
		state += outside(m, c[m.Name], values[table.PresentPosition])
	}
	return fmt.Sprintf("%-16s %3d %7d %9s %7s %4dC %6.1fV %8s  %s", m.Name, m.ID, values[table.PresentPosition], position, load,
		values[table.PresentTemperature], float64(values[table.PresentVoltage])/10, current, state), nil
}

// stateOf says what a motor does, what it complains of, and what that would mean to
// a run: the words are those of its page.
func stateOf(torque bool, fault servo.Fault) string {
	state, life := "limp", follow.Torque|follow.Answering|follow.Verified
	if torque {
		state = "torque on"
	}
	for _, c := range []struct {
		bits servo.Fault
		life follow.Condition
	}{
		{servo.FaultEncoder, follow.EncoderFault}, {servo.FaultCurrent | servo.FaultOverload, follow.Overloaded},
		{servo.FaultVoltage | servo.FaultShock | servo.FaultTemperature, follow.HeatOrSupply},
	} {
		if fault&c.bits != 0 {
			life |= c.life
		}
	}
	if fault != 0 {
		state += ", " + fault.Error() + ": in a run, " + life.Why()
	}
	return state
}

// outside says how far a joint stands outside its calibrated range.
func outside(m robot.Motor, c servo.MotorCalibration, raw int) string {
	off := max(c.RangeMin-raw, raw-c.RangeMax)
	if off <= servo.RangeSlack {
		return ""
	}
	return fmt.Sprintf(", %d counts outside its range %d to %d: will not be armed; walk it in with edge-rt move %s TO", off, c.RangeMin, c.RangeMax, m.Name)
}

// pause waits, but not longer than the operator.
func (s *session) pause(ctx context.Context, d time.Duration) {
	const step = 20 * time.Millisecond
	for end := s.Clock.Now().Add(d); ctx.Err() == nil && s.Clock.Now() < end; {
		s.Clock.SleepUntil(min(end, s.Clock.Now().Add(step)))
	}
}

// instant is what a deadline is made from.
func (s *session) instant(d time.Duration) rt.Instant { return s.Clock.Now().Add(d) }
