package sim

import "math"

// The servos' encoders: 4096 counts, of which the calibration in
// testdata/demo/so101.json uses all for the five arm joints (degrees around the
// middle) and 1000..3000 for the gripper (0..100 percent).
const (
	countMax       = 4095
	countMiddle    = 2047.5
	countsPerDeg   = 4095.0 / 360.0
	gripper        = 5
	gripperZero    = 1000
	gripperPercent = 20 // counts
)

// toRaw returns the encoder's reading, rounded to the nearest count and held
// inside the encoder's range.
//
//rt:noalloc
func toRaw(joint int, q float64) int {
	count := q*countsPerDeg + countMiddle
	if joint == gripper {
		count = q*gripperPercent + gripperZero
	}
	return int(math.Round(min(max(count, 0), countMax)))
}

// countsPer returns how many counts a joint's unit has.
//
//rt:noalloc
func countsPer(joint int) float64 {
	if joint == gripper {
		return gripperPercent
	}
	return countsPerDeg
}

// fromRaw returns what an encoder count means in degrees, for the gripper in
// percent.
//
//rt:noalloc
func fromRaw(joint, raw int) float64 {
	if joint == gripper {
		return float64(raw-gripperZero) / gripperPercent
	}
	return (float64(raw) - countMiddle) * 360 / countMax
}
