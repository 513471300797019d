package servo

import (
	"fmt"
	"math"

	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// scale converts raw positions to a motor's unit and back, with exactly LeRobot's results: a turn
// has 4095 steps, not 4096, and the conversion back truncates toward zero. Products are wrapped in
// float64() because on arm64 Go may fuse a product with a sum, which rounds differently.
//
// Source: LeRobot motors/motors_bus.py, _normalize and _unnormalize.
type scale struct {
	mode     robot.NormMode
	min, max float64 // range_min and range_max, raw
	flip     bool    // the driver reverses the position by drive_mode; a Dynamixel does that itself
	span     float64 // degrees of steps raw steps
	steps    float64
}

func newScale(m robot.Motor, c MotorCalibration) scale {
	return scale{
		mode:  m.Norm,
		min:   float64(c.RangeMin),
		max:   float64(c.RangeMax),
		flip:  c.DriveMode != 0 && !m.Model.Has(table.DriveMode),
		span:  m.Model.Span,
		steps: float64(m.Model.MaxRaw()),
	}
}

// value returns the position in the motor's unit. The range modes clamp raw to the calibrated
// range, degrees do not.
//
//rt:noalloc
func (s *scale) value(raw int) float64 {
	if s.mode != robot.Degrees {
		raw = min(int(s.max), max(int(s.min), raw))
	}
	return s.unclamped(raw)
}

//rt:noalloc
func (s *scale) unclamped(raw int) float64 {
	r := float64(raw)
	if s.mode == robot.Degrees {
		return (r - (s.min+s.max)/2) * s.span / s.steps
	}
	share := (r - s.min) / (s.max - s.min)
	if s.mode == robot.Range0100 {
		v := float64(share * 100)
		if s.flip {
			return 100 - v
		}
		return v
	}
	v := float64(share*200) - 100
	if s.flip {
		return -v
	}
	return v
}

// raw is the inverse of unclamped. The value must be finite.
//
//rt:noalloc
func (s *scale) raw(v float64) int {
	v = min(1e6, max(-1e6, v)) // limits that no register exceeds and an int can represent
	switch s.mode {
	case robot.Degrees:
		return int(float64(v*s.steps/s.span) + (s.min+s.max)/2)
	case robot.Range0100:
		if s.flip {
			v = 100 - v
		}
		return int(float64(v/100*(s.max-s.min)) + s.min)
	default:
		if s.flip {
			v = -v
		}
		return int(float64((v+100)/200*(s.max-s.min)) + s.min)
	}
}

// unit returns the counts of one unit.
func (s *scale) unit() float64 {
	switch s.mode {
	case robot.Range0100:
		return (s.max - s.min) / 100
	case robot.RangeM100:
		return (s.max - s.min) / 200
	}
	return s.steps / s.span
}

// Normalize converts a raw position of a motor to its unit.
func Normalize(m robot.Motor, c MotorCalibration, raw int) float64 {
	s := newScale(m, c)
	return s.value(raw)
}

// reverse is the bit of a Dynamixel's Drive_Mode that reverses its positions.
const reverse = 1

// checkDriveMode fails when a Dynamixel does not count in the direction of the calibration's
// drive_mode, which LeRobot leaves to the motor. With the wrong direction homing offset and range
// still fit, but the joint moves mirrored.
func (a *Arm) checkDriveMode(u unit, c MotorCalibration) error {
	if !u.model.Has(table.DriveMode) {
		return nil // Normalize reverses the positions of this servo
	}
	got, err := a.setting(u, table.DriveMode)
	if err != nil || got&reverse == c.DriveMode&reverse {
		return err
	}
	holder := "the servo has"
	if _, given := a.robot.Motors[u.joint].Setting(table.DriveMode); given {
		holder = "the robot's description sets"
	}
	return a.refuse(ErrCalibration, u, ": %s Drive_Mode %d, the file has drive_mode %d: the joint would run the wrong "+
		"way round; take the file this arm was calibrated with, or write the file into the motors or calibrate them "+
		"again (edge-rt calibrate)", holder, got, c.DriveMode)
}

// noteCalibration notes doubtful values of a calibration, but accepts them, because the user may have chosen them. Such
// values are a range that edge-rt calibrate would refuse, and a drive_mode without effect. Neither the driver nor
// LeRobot reverses a position in degrees.
func (a *Arm) noteCalibration(calibration Calibration) {
	for i, m := range a.robot.Motors {
		c := calibration[m.Name]
		if got := m.Degrees(c.RangeMax - c.RangeMin); got < m.LeastTravel() {
			a.note(a.units[i], ": its calibrated range has %.1f degrees, want at least %.0f: calibrate it again, "+
				"unless the joint is to move no further", got, m.LeastTravel())
		}
		// Where an arm was never calibrated, and its offsets are 0, a whole turn is only the factory's range.
		if c.HomingOffset != 0 && !m.FullTurn && !a.robot.Factory && c.RangeMax-c.RangeMin > m.MostTravel() {
			a.note(a.units[i], ": its calibrated range, %d to %d, is the encoder's whole turn, as when the joint "+
				"passes the encoder's end while its range is recorded: it may run into its stop; calibrate it again, "+
				"or set full_turn: true for a joint without stops", c.RangeMin, c.RangeMax)
		}
		if c.DriveMode != 0 && m.Norm == robot.Degrees && !m.Model.Has(table.DriveMode) {
			a.note(a.units[i], ": its calibration has drive_mode %d, which has no effect on a joint in degrees, as in "+
				"LeRobot: it is not reversed", c.DriveMode)
		}
	}
}

// findTurns finds, for each joint whose servos forget their turns at power-up, the turn that fits
// the calibrated range.
func (a *Arm) findTurns() error {
	for i := range a.units {
		counts, err := a.countsTurns(a.units[i])
		if err == nil && counts {
			err = a.findTurn(i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// countsTurns reports whether a servo counts turns since its power-up, as a Dynamixel does in two
// of its modes.
func (a *Arm) countsTurns(u unit) (bool, error) {
	if a.bus.protocol != table.Dynamixel2 {
		return false, nil
	}
	mode, err := a.setting(u, table.OperatingMode)
	return err == nil && CountsTurns(u.model, mode), err
}

// fit returns the raw position moved by whole turns, each of turn counts, to fit the calibrated range.
//
//rt:noalloc
func (s *scale) fit(raw, turn int) int {
	low, high := int(s.min), int(s.max)
	if outside(raw, low, high) <= RangeSlack {
		return raw
	}
	return InTurn(raw, low, high, turn)
}

// CountsTurns reports whether a servo in that Operating_Mode counts turns, which it forgets at
// power-up.
func CountsTurns(m *table.Model, mode int) bool {
	return m.Protocol == table.Dynamixel2 && (mode == table.ModeExtendedPosition || mode == table.ModeCurrentPosition)
}

func (a *Arm) findTurn(i int) error {
	u := a.units[i]
	j := &a.joints[u.joint]
	low := int(j.scale.min)
	high := int(j.scale.max)
	turn := u.model.Resolution
	if u.shadow {
		return a.checkShadowTurn(u, turn)
	}
	read := a.rawPosition(i)
	at := j.scale.fit(read, turn)
	for _, other := range []int{at - turn, at + turn} {
		if other >= low && other <= high && !a.robot.Motors[u.joint].FullTurn {
			cure := fmt.Sprintf("move the joint by hand to between %d and %d, then start again", high-turn, low+turn)
			if high-low >= 2*turn {
				cure = "that is more than two turns: calibrate it again"
			}
			return a.refuse(ErrTurn, u, " reads %d: its range, %d to %d, has that place twice, at %d and %d, and a "+
				"Dynamixel forgets its turns at power-up; %s", read, low, high, at, other, cure)
		}
	}
	j.turn, j.shift = turn, at-read
	if j.shift != 0 {
		a.note(u, " reads %d and its range is %d to %d: it forgot its turns, as a Dynamixel does at power-up; its "+
			"position counts as %d", read, low, high, at)
	}
	return nil
}

// pairShare is the share of a turn by which the positions of a joint's two motors may differ.
const pairShare = 16

// checkShadowTurn fails when a shadow is in another turn than its joint's first motor, or in another place. Both take
// the same goals, so the shadow would turn against the first motor.
func (a *Arm) checkShadowTurn(u unit, turn int) error {
	read, err := a.read(u, table.PresentPosition)
	if err != nil {
		return err
	}
	first := a.rawPosition(u.joint)
	switch off := max(read-first, first-read); {
	case off > turn/2:
		return a.refuse(ErrTurn, u, " reads %d and motor %d reads %d: both move one joint and take the same goals, "+
			"and at power-up they forgot different turns; switch their supply off, move the joint to the middle of "+
			"its range, and switch it on there; if they read so again, calibrate the arm again (edge-rt calibrate)",
			read, a.units[u.joint].id, first)
	case off > turn/pairShare:
		return a.refuse(ErrSetting, u, " reads %d and motor %d reads %d: both move one joint and take the same goals, "+
			"and would work against each other: calibrate the arm again (edge-rt calibrate)", read,
			a.units[u.joint].id, first)
	}
	return nil
}

// checkSide fails when a joint outside its range may be on the other side of the range. A servo knows its position
// modulo one turn, and reads a joint beyond its encoder's seam at the far end of the turn.
func (a *Arm) checkSide(joints robot.Joints) error {
	for i := range a.joints {
		j, m := &a.joints[i], a.robot.Motors[i]
		if joints.Has(i) && BeyondTurn(m.Model, a.raws[i]) {
			return a.refuse(ErrOutOfRange, a.units[i], " reads %d, and %s", a.raws[i], NoPosition)
		}
		if !joints.Has(i) || !OtherSide(m.Model, a.raws[i], j.min, j.max) {
			continue
		}
		return a.refuse(ErrOutOfRange, a.units[i], " reads %d, its range is %d to %d: it may be beyond the end of its "+
			"encoder's turn, on the other side of its range, and the motor would push it into its stop; move it "+
			"inside by hand", a.raws[i], j.min, j.max)
	}
	return nil
}

// Turn returns the counts of one turn of a servo's encoder, after which the encoder starts again at
// 0. It returns 0 for a potentiometer, which has ends.
func Turn(m *table.Model) int {
	if m.Protocol != table.Feetech && m.Protocol != table.Dynamixel2 {
		return 0
	}
	return m.Resolution
}

// BeyondTurn reports whether a servo that counts no turns reads a position outside the counts of one turn.
func BeyondTurn(m *table.Model, raw int) bool {
	return m.Protocol == table.Feetech && (raw < 0 || raw > m.MaxRaw())
}

// NoPosition explains a reading for which BeyondTurn is true.
const NoPosition = "a servo of one turn has 0 to 4095: it counts turns against its settings, or its encoder " +
	"fails; switch its supply off and on, and replace it if it reads so again"

// OtherSide reports whether a joint that reads raw, outside its range, may be on the other side of the range. This is
// so if the position a whole turn away from raw is nearer to the range than raw, or hardly farther from it.
func OtherSide(m *table.Model, raw, low, high int) bool {
	const hardly = 1.5 // times as far
	off := outside(raw, low, high)
	turn := Turn(m)
	other := min(outside(raw-turn, low, high), outside(raw+turn, low, high))
	return turn > 0 && off > 0 && float64(other) < hardly*float64(off)
}

// InTurn returns a raw position moved by whole turns, each of turn counts, to the place nearest to the range
// low to high. Of two such places it returns the place nearer to raw. A servo that counts turns forgets them
// at power-up: its position is then known modulo one turn, and the range determines the turn.
//
//rt:noalloc
func InTurn(raw, low, high, turn int) int {
	if turn <= 0 || raw >= low && raw <= high {
		return raw
	}
	up := low - raw // way from raw, which is below the range, to the near edge of the range
	if raw > high {
		up = high - raw
	}
	near := raw + up/turn*turn // raw moved by whole turns, until it is less than a turn from the range
	past := near + turn
	if up < 0 {
		past = near - turn
	}
	if outside(past, low, high) < outside(near, low, high) {
		return past
	}
	return near
}

// outside returns by how many counts raw is outside the range low to high; 0 when it is inside.
//
//rt:noalloc
func outside(raw, low, high int) int { return max(low-raw, raw-high, 0) }

// Difference is a joint for which two calibrations differ.
type Difference struct {
	Joint    string
	Was, Is  MotorCalibration
	Degrees  float64 // largest change of the joint's position at the same value in its unit
	Mirrored bool    // the motor turns in the opposite direction
}

func (d Difference) String() string {
	text := fmt.Sprintf("%s: range %d..%d, homing_offset %d, drive_mode %d then, and range %d..%d, homing_offset %d, "+
		"drive_mode %d now",
		d.Joint, d.Was.RangeMin, d.Was.RangeMax, d.Was.HomingOffset, d.Was.DriveMode, d.Is.RangeMin, d.Is.RangeMax,
		d.Is.HomingOffset, d.Is.DriveMode)
	if d.Mirrored {
		return text + ", which mirrors the joint"
	}
	return fmt.Sprintf("%s, which is up to %.1f degrees elsewhere", text, d.Degrees)
}

// Compare returns the joints of a robot whose calibration has changed. same is true when both calibrations
// are of one arm, so that their homing offsets can be compared; for two arms only the widths of the ranges
// are compared. A motor that one calibration lacks has a difference of a whole turn.
func Compare(r robot.Robot, was, is Calibration, same bool) (changed []Difference) {
	for _, m := range r.Motors {
		a, known := was[m.Name]
		b, here := is[m.Name]
		if a == b && known == here {
			continue
		}
		d := Difference{
			Joint:    m.Name,
			Was:      a,
			Is:       b,
			Mirrored: a.DriveMode != b.DriveMode && m.Model.Has(table.DriveMode),
		}
		d.Degrees = m.Model.Span
		if known && here && a.check() == nil && b.check() == nil {
			d.Degrees = elsewhere(m, a, b, same)
		}
		changed = append(changed, d)
	}
	return changed
}

// elsewhere returns how far apart two calibrations put the joint for the same value in robot units, in degrees: the
// largest distance over the range. For two arms it is half the difference of the ranges' widths.
func elsewhere(m robot.Motor, was, is MotorCalibration, same bool) float64 {
	turn := float64(m.Model.MaxRaw() + 1)
	degree := m.Model.Span / float64(m.Model.MaxRaw())
	if !same {
		return math.Abs(float64((was.RangeMax-was.RangeMin)-(is.RangeMax-is.RangeMin))) / 2 * degree
	}
	then, now := newScale(m, was), newScale(m, is)
	far := 0.
	for _, raw := range []int{was.RangeMin, was.RangeMax} {
		d := float64(shaft(m, is, now.raw(then.unclamped(raw))) - shaft(m, was, raw))
		far = max(far, math.Abs(d-turn*math.Round(d/turn)))
	}
	return far * degree
}

// shaft returns the motor's own position, without its homing offset.
func shaft(m robot.Motor, c MotorCalibration, raw int) int {
	return raw - m.Model.Offset*c.HomingOffset
}
