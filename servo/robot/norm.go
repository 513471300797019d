package robot

import "fmt"

// NormMode is the unit of a motor's position outside the bus.
type NormMode uint8

const (
	Degrees   NormMode = iota // 0 in the middle of the calibrated range
	Range0100                 // 0 at range_min, 100 at range_max
	RangeM100                 // -100 at range_min, 100 at range_max
	Velocity                  // a wheel of the robot's base, which turns at a velocity
)

// norms maps LeRobot's names.
var norms = map[string]NormMode{
	"degrees": Degrees, "range_0_100": Range0100, "range_m100_100": RangeM100, "velocity": Velocity,
}

func (m NormMode) String() string {
	for name, mode := range norms {
		if mode == m {
			return name
		}
	}
	return fmt.Sprintf("NormMode(%d)", uint8(m))
}
