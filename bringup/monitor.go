package bringup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// MonitorConfig holds the settings of edge-rt monitor.
type MonitorConfig struct {
	Config
	Every    time.Duration // period of the tables
	Count    int           // number of tables; 0: until ctx ends
	Duration time.Duration // time from the first table to the end; 0: no end
	Live     bool          // tables on a terminal: each is drawn over the last one

	Places []device.Place // the parts of a robot of several parts, instead of Config.Place
}

// MonitorReport is one table of edge-rt monitor --json.
type MonitorReport struct {
	AtS    float64        `json:"at_s"` // s, since the first table
	Motors []MotorReading `json:"motors"`
}

// MotorReading is one motor's reading, or only its Error.
type MotorReading struct {
	Part string `json:"part,omitempty"` // part of the robot with this motor
	// name of the joint, with its part's prefix; for its second motor, _shadow follows
	Joint string `json:"joint"`
	ID    int    `json:"id"` // id on the bus
	// why the motor did not answer; the values after it are empty then
	Error        string   `json:"error,omitempty"`
	Raw          int      `json:"raw"`                    // counts, position
	Position     *float64 `json:"position,omitempty"`     // degrees or 0 to 100, position by the calibration
	LoadPercent  *float64 `json:"load_percent,omitempty"` // %, load
	TemperatureC int      `json:"temperature_c"`          // °C, temperature
	SupplyV      float64  `json:"supply_v"`               // V, supply
	CurrentMA    *float64 `json:"current_ma,omitempty"`   // mA, current
	Torque       bool     `json:"torque"`                 // torque is on
	State        string   `json:"state"`                  // ok, or the fault
}

// sayCalibration prints which calibration monitor uses. If it uses none, err is the reason.
func (s *session) sayCalibration(err error) {
	switch {
	case err != nil && s.ID == "" && s.Calibration == "":
		s.printf("Positions are raw: %v", err)
	case err != nil && exists(s.File()):
		s.printf("No calibration that fits at %s (%v): positions are raw.", s.File(), err)
	case err != nil:
		s.printf("No calibration that fits at %s: positions are raw. Next: edge-rt calibrate %s", s.File(), s.flags())
	case s.Taken != "":
		s.printf("%s.", s.Taken)
	}
}

// watched is one arm that Monitor reads.
type watched struct {
	*session
	calibration servo.Calibration // nil: positions are raw
}

// Monitor prints the readings of every motor until it is interrupted or the reader of its output ends. The only
// register that it writes is the status return level of a motor that answers only pings, so an operator may use it
// before a calibration.
func Monitor(ctx context.Context, cfg MonitorConfig) error {
	places := cfg.Places
	if places == nil {
		places = []device.Place{cfg.Place}
	}
	if err := device.CheckSwapped(places, rt.KernelClock()); err != nil {
		return err
	}
	var arms []watched
	for _, place := range places {
		cfg.Place = place
		arm, err := watch(cfg.Config)
		if err != nil {
			return place.Named(err)
		}
		defer arm.close()
		arms = append(arms, arm)
	}
	if cfg.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.Duration)
		defer cancel()
	}
	s := arms[0]
	began, drawn := s.Clock.Now(), 0
	line := "%s"
	if cfg.Live {
		line = oneLine + line + lineEnd
	}
	for n := 0; ctx.Err() == nil && (cfg.Count == 0 || n < cfg.Count); n++ {
		if n > 0 {
			if rt.Rest(ctx, s.Clock, cfg.Every) != nil {
				break
			}
			if cfg.Live {
				fmt.Fprintf(s.Out, "\x1b[%dA", drawn)
			}
		}
		report := MonitorReport{AtS: s.Clock.Now().Sub(began).Round(time.Millisecond).Seconds()}
		for _, arm := range arms {
			if err := arm.readAll(&report); err != nil {
				return arm.Named(err)
			}
		}
		width := nameWidth
		for _, reading := range report.Motors {
			width = max(width, len(reading.Joint))
		}
		s.printf(line, fmt.Sprintf("%-*s %3s %7s %9s %7s %5s %7s %8s  %s", width, "JOINT", "ID", "RAW", "POSITION",
			"LOAD", "TEMP", "SUPPLY", "CURRENT", "STATE"))
		for _, reading := range report.Motors {
			s.printf(line, reading.row(width))
		}
		drawn = len(report.Motors) + 1
		gone := s.writeErr
		if err := s.report(report); err != nil {
			gone = err
		}
		switch {
		case errors.Is(gone, syscall.EPIPE):
			return nil // the reader has closed the pipe
		case gone != nil:
			return fmt.Errorf("write the table: %w", gone)
		}
	}
	return nil
}

// nameWidth is the least width of the column of joints.
const nameWidth = 16

// watch opens an arm and finds its calibration.
func watch(cfg Config) (watched, error) {
	s, err := open(cfg)
	if err != nil {
		return watched{}, err
	}
	if err := s.hearAll(); err != nil {
		s.close()
		return watched{}, err
	}
	arm := servo.ArmConfig{
		Path:  s.Bus,
		Robot: s.Robot,
		Port:  s.port,
		Clock: s.Clock,
	}
	calibration, _, err := s.Find(&arm)
	if err == nil {
		var differs []error
		differs, err = servo.MatchCalibrations(arm, []servo.Calibration{calibration})
		err = errors.Join(append(differs, err)...)
	}
	if err != nil {
		calibration = nil
	}
	s.sayCalibration(err)
	return watched{s, calibration}, nil
}

// readAll adds the readings of the arm's motors to the report.
func (w watched) readAll(report *MonitorReport) error {
	for _, m := range w.Robot.Motors {
		reading, err := w.readMotor(m, w.calibration)
		if err != nil {
			return err
		}
		report.Motors = append(report.Motors, reading)
		if m.Shadow == 0 {
			continue
		}
		// the calibration is valid for the first motor only
		if reading, err = w.readMotor(shadowOf(m), nil); err != nil {
			return err
		}
		report.Motors = append(report.Motors, reading)
	}
	return nil
}

// hearAll pings every motor, and sets motors that answer only pings to answer reads, too.
func (s *session) hearAll() error {
	if err := s.pingAll(); err != nil {
		return err
	}
	if mute := servo.AnswerReads(s.bus, s.servos()); len(mute) > 0 {
		s.printf("Motors that answered to pings only answer to reads now, until their supply is off: %s.",
			strings.Join(mute, ", "))
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readMotor reads one motor; it fails when the port has gone.
func (s *session) readMotor(m robot.Motor, c servo.Calibration) (MotorReading, error) {
	reading := MotorReading{
		Part:  s.Part,
		Joint: s.Prefix() + m.Name,
		ID:    int(m.ID),
	}
	var fault servo.Fault
	values := map[table.Register]int{}
	for _, r := range []table.Register{
		table.PresentPosition, table.PresentLoad, table.PresentTemperature, table.PresentVoltage, table.PresentCurrent,
		table.TorqueEnable,
		table.Status, table.OperatingMode,
	} {
		if !m.Model.Has(r) {
			continue
		}
		v, f, err := s.bus.ReadRegister(m.ID, m.Model.Row(r))
		if err != nil && s.bus.Lost() {
			return reading, exit.Errorf(exit.Absent, "%s has gone: plug the adapter in again", s.Bus)
		}
		if err != nil {
			reading.Error = err.Error()
			return reading, nil
		}
		values[r], fault = v, fault|f
	}
	if v, ok := values[table.Status]; ok {
		fault |= servo.StatusFault(m.Model.Protocol, v)
	}
	reading.Raw = values[table.PresentPosition]
	reading.TemperatureC = values[table.PresentTemperature]
	reading.Torque = values[table.TorqueEnable] != 0
	reading.SupplyV = float64(values[table.PresentVoltage]) / 10
	if v, ok := values[table.PresentLoad]; ok {
		reading.LoadPercent = new(float64(v) / 10)
	}
	if v, ok := values[table.PresentCurrent]; ok {
		reading.CurrentMA = new(float64(v) * m.Model.CurrentMA)
	}
	reading.State = stateOf(reading.Torque, fault) + oddValues(m.Model, values)
	if c != nil && m.Norm != robot.Velocity {
		raw, turned := inTurn(m, c[m.Name], reading.Raw, values[table.OperatingMode])
		reading.Position = new(float64(servo.Normalize(m, c[m.Name], raw)))
		reading.State += turned + outside(m, c[m.Name], raw, reading.Joint)
	}
	return reading, nil
}

// oddValues names implausible values: a register may contain values that no working motor measures.
func oddValues(m *table.Model, values map[table.Register]int) string {
	var odd []string
	for _, q := range [...]struct {
		register   table.Register
		unit, most float64
		format     string
	}{
		{table.PresentLoad, 0.1, 105, "%.1f %% load"},
		{table.PresentTemperature, 1, 150, "%.0f C"}, // the servos protect themselves far below
		{table.PresentVoltage, 0.1, 25.45, "%.1f V"}, // the highest supply of these servos is 24 V
		{table.PresentCurrent, m.CurrentMA, 20_000, "%.0f mA"},
	} {
		if v := float64(values[q.register]) * q.unit; math.Abs(v) > q.most {
			odd = append(odd, fmt.Sprintf(q.format, v))
		}
	}
	if odd == nil {
		return ""
	}
	return ", implausible: " + strings.Join(odd, ", ") + ": replace the motor if it repeats that"
}

// inTurn returns the position that a run computes from a motor's reading: at is the position, raw the reading. The two
// differ for a motor that counts turns and has forgotten them at power-up. The text turned has this difference, for the
// table.
func inTurn(m robot.Motor, c servo.MotorCalibration, raw, mode int) (at int, turned string) {
	if given, ok := m.Setting(table.OperatingMode); ok {
		mode = given // a run writes this mode
	}
	off := max(c.RangeMin-raw, raw-c.RangeMax)
	if !servo.CountsTurns(m.Model, mode) || off <= servo.RangeSlack {
		return raw, ""
	}
	if at = servo.InTurn(raw, c.RangeMin, c.RangeMax, m.Model.Resolution); at != raw {
		turned = fmt.Sprintf(", forgot its turns: counts as %d", at)
	}
	return at, turned
}

func (r *MotorReading) row(width int) string {
	if r.Error != "" {
		return fmt.Sprintf("%-*s %3d  %s", width, r.Joint, r.ID, r.Error)
	}
	optional := func(format string, v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf(format, *v)
	}
	return fmt.Sprintf("%-*s %3d %7d %9s %7s %4dC %6.1fV %8s  %s", width, r.Joint, r.ID, r.Raw,
		optional("%.2f", r.Position), optional("%.1f%%", r.LoadPercent), r.TemperatureC, r.SupplyV,
		optional("%.0fmA", r.CurrentMA), r.State)
}

// stateOf returns, as text, a motor's torque, its faults, and the reactions of a run to the faults.
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

// outside returns, as text, how far the motor m is outside its calibrated range; "": it is inside. The parameter name
// is the joint's name for edge-rt move.
func outside(m robot.Motor, c servo.MotorCalibration, raw int, name string) string {
	off := max(c.RangeMin-raw, raw-c.RangeMax)
	if off <= servo.RangeSlack {
		return ""
	}
	if servo.BeyondTurn(m.Model, raw) {
		return ", " + servo.NoPosition + ": will not be armed"
	}
	if servo.OtherSide(m.Model, raw, c.RangeMin, c.RangeMax) {
		return fmt.Sprintf(", %d counts outside its range %d to %d, or on its other side beyond the end of the "+
			"encoder's turn: will not be armed; "+
			"move it inside by hand", off, c.RangeMin, c.RangeMax)
	}
	return fmt.Sprintf(", %d counts outside its range %d to %d: will not be armed; move it in with edge-rt move %s "+
		"TO and the flags of this command", off, c.RangeMin, c.RangeMax, name)
}
