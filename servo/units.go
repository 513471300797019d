package servo

import "fmt"

// NormMode says which unit a motor's position has outside this package.
type NormMode uint8

const (
	Degrees   NormMode = iota // 0 in the middle of the calibrated range
	Range0100                 // 0 at range_min, 100 at range_max
	RangeM100                 // -100 at range_min, 100 at range_max
)

func (m NormMode) String() string {
	switch m {
	case Degrees:
		return "degrees"
	case Range0100:
		return "range_0_100"
	case RangeM100:
		return "range_m100_100"
	}
	return fmt.Sprintf("NormMode(%d)", uint8(m))
}

// scale converts one motor's raw positions to its unit and back, bit for bit as
// LeRobot does, because datasets and policies were made with it: a turn has
// 4095 steps, not 4096, and the way back truncates toward zero.
//
// Products are wrapped in float64() where a sum follows: Go may otherwise fuse
// them into one operation on arm64, which rounds differently from Python.
//
// Source: LeRobot motors/motors_bus.py, _normalize and _unnormalize.
type scale struct {
	mode     NormMode
	min, max float64 // range_min and range_max, raw
	flip     bool    // drive_mode is set
}

func newScale(mode NormMode, c MotorCalibration) scale {
	return scale{mode: mode, min: float64(c.RangeMin), max: float64(c.RangeMax), flip: c.DriveMode != 0}
}

// value returns the position in the motor's unit. The range modes clamp raw to
// the calibrated range, degrees do not.
//
//rt:noalloc
func (s *scale) value(raw int) float64 {
	r := float64(raw)
	if s.mode == Degrees {
		return (r - (s.min+s.max)/2) * 360 / maxPositionRaw
	}
	share := (min(s.max, max(s.min, r)) - s.min) / (s.max - s.min)
	if s.mode == Range0100 {
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

// raw returns the position in encoder steps and whether the range modes had to
// clamp the value to the calibrated range; degrees are not clamped here. The
// value must be finite.
//
//rt:noalloc
func (s *scale) raw(v float64) (raw int, clamped bool) {
	switch s.mode {
	case Degrees:
		// 10^6 degrees is beyond any register and still exact as an integer.
		v = min(1e6, max(-1e6, v))
		return int(float64(v*maxPositionRaw/360) + (s.min+s.max)/2), false
	case Range0100:
		in := min(100, max(0, v))
		clamped = in != v
		if s.flip {
			in = 100 - in
		}
		return int(float64(in/100*(s.max-s.min)) + s.min), clamped
	default:
		in := min(100, max(-100, v))
		clamped = in != v
		if s.flip {
			in = -in
		}
		return int(float64((in+100)/200*(s.max-s.min)) + s.min), clamped
	}
}
