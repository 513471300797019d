package sim

import "math"

// The joints that move the tip. A pose has values for the other joints, too, but the picture does
// not depend on them.
const (
	pan   = 0
	elbow = 2
)

// The arm: two links of equal length on a base at the near edge of the table.
const (
	linkLength = 0.28
	baseX      = 0.0
	baseY      = -0.35
)

// maxStep is the servos' speed limit per tick, which is 180 degrees a second, and 240 percent a
// second for the gripper.
var maxStep = [DOF]float64{3, 3, 3, 3, 3, 4}

// towards returns q moved towards goal by at most limit.
//
//rt:noalloc
func towards(q, goal, limit float64) float64 {
	return q + min(max(goal-q, -limit), limit)
}

// reach returns the places of the elbow and the tip. The angles are in degrees, counter-clockwise:
// pan is measured from +x, the elbow's angle from the direction of the first link.
//
//rt:noalloc
func reach(panDeg, elbowDeg float64) (e, tip Point) {
	a, b := radians(panDeg), radians(panDeg+elbowDeg)
	e.X = baseX + float64(linkLength*math.Cos(a))
	e.Y = baseY + float64(linkLength*math.Sin(a))
	tip.X = e.X + float64(linkLength*math.Cos(b))
	tip.Y = e.Y + float64(linkLength*math.Sin(b))
	return e, tip
}

// Gap returns the smallest distance, in metres, between the centre lines of two arms' links, for joints in degrees and
// links that do not cross. The parameter apart is the distance in metres from the left arm's base to the right arm's
// base.
func Gap(left, right [DOF]float64, apart float64) float64 {
	a, b := chain(left, 0), chain(right, apart)
	gap := math.Inf(1)
	for i := range 2 {
		for _, p := range a {
			gap = min(gap, away(p, b[i], b[i+1]))
		}
		for _, p := range b {
			gap = min(gap, away(p, a[i], a[i+1]))
		}
	}
	return gap
}

// chain returns an arm's base, elbow and tip.
func chain(q [DOF]float64, x float64) [3]Point {
	e, tip := reach(q[pan], q[elbow])
	return [3]Point{{baseX + x, baseY}, {e.X + x, e.Y}, {tip.X + x, tip.Y}}
}

// away returns the distance of p from the line segment from a to b.
func away(p, a, b Point) float64 {
	dx, dy := b.X-a.X, b.Y-a.Y
	t := min(max(((p.X-a.X)*dx+(p.Y-a.Y)*dy)/(dx*dx+dy*dy), 0), 1)
	return distance(p, Point{a.X + t*dx, a.Y + t*dy})
}

// poseAt returns the joints that put the tip at p, with the elbow to the right. The three joints
// that do not move the tip get values, too, so that a policy has six numbers to learn.
//
//rt:noalloc
func poseAt(p Point, grip float64) [DOF]float64 {
	l := float64(linkLength) // a variable, so that products are rounded to float64
	dx, dy := p.X-baseX, p.Y-baseY
	c := (float64(dx*dx) + float64(dy*dy) - float64(l*l) - float64(l*l)) / float64(float64(2*l)*l)
	q2 := math.Acos(min(max(c, -1), 1))
	q1 := math.Atan2(dy, dx) - math.Atan2(float64(l*math.Sin(q2)), l+float64(l*math.Cos(q2)))
	return [DOF]float64{degrees(q1), -30, degrees(q2), 0.25 * degrees(q1), -degrees(q1), grip}
}

// pi is rounded to float64 before the division, as in the radians() of every library.
const pi = float64(math.Pi)

//rt:noalloc
func radians(deg float64) float64 { return deg * (pi / 180) }

//rt:noalloc
func degrees(rad float64) float64 { return rad * (180 / pi) }

// The servos' encoders have 4096 counts. The calibration in testdata/demo/so101.json uses all of
// them for the five arm joints (degrees around the middle), and 1000..3000 for the gripper (0..100
// percent).
const (
	countMax       = 4095
	countMiddle    = 2047.5
	countsPerDeg   = 4095.0 / 360.0
	gripper        = 5
	gripperZero    = 1000
	gripperPercent = 20 // counts
)

// RawOf returns the encoder count nearest to a joint's value in degrees or percent, limited to the encoder's range.
//
//rt:noalloc
func RawOf(joint int, q float64) int {
	count := q*countsPerDeg + countMiddle
	if joint == gripper {
		count = q*gripperPercent + gripperZero
	}
	return int(math.Round(min(max(count, 0), countMax)))
}

//rt:noalloc
func countsPer(joint int) float64 {
	if joint == gripper {
		return gripperPercent
	}
	return countsPerDeg
}

// AngleOf returns a joint's value, in degrees or percent, at an encoder count.
//
//rt:noalloc
func AngleOf(joint, raw int) float64 {
	if joint == gripper {
		return float64(raw-gripperZero) / gripperPercent
	}
	return (float64(raw) - countMiddle) * 360 / countMax
}
