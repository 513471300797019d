package robot

import (
	"fmt"
	"math"

	"github.com/edge-rt/edge-rt/servo/table"
)

// Base is a mobile base on three omniwheels, like LeKiwi's. Its motors run in velocity mode, and in a state or an
// action the places of the wheels hold the velocities of the base. Its axes are x, forward, in metres per second; y, to
// the left, in metres per second; and theta, counter-clockwise, in degrees per second.
//
// Source: LeRobot robots/lekiwi/lekiwi.py, _body_to_wheel_raw and _wheel_raw_to_body.
type Base struct {
	WheelRadius  float64 // metres
	Radius       float64 // metres from the centre of rotation to each wheel
	MaxRaw       int     // counts per second; when a wheel would be faster, all wheels turn slower
	Speed        [Axes]float64
	Acceleration [Axes]float64 // largest acceleration, in the axis's unit per second
}

// Axes is the number of a base's axes, and of its wheels.
const Axes = 3

// axisNames and axisUnits are LeRobot's names and units of the axes. In a state, they take the places of the left, back
// and right wheel.
var (
	axisNames = [Axes]string{"x.vel", "y.vel", "theta.vel"}
	axisUnits = [Axes]string{"m/s", "m/s", "deg/s"}
)

// wheelAngles are the directions of the left, the back and the right wheel in degrees.
var wheelAngles = [Axes]float64{240 - 90, 0 - 90, 120 - 90}

// Kinematics converts a base's velocities. The zero value is not usable.
type Kinematics struct {
	toWheels     [Axes][Axes]float64 // each wheel's metres per second from m/s, m/s, rad/s
	toBody       [Axes][Axes]float64
	radius       float64
	maxRaw       float64
	rawPerDegree float64 // counts of one degree
}

const (
	perDegree = math.Pi / 180
	perRadian = 180 / math.Pi
)

// Kinematics returns the conversions of the base for servos with counts encoder counts in a turn.
func (b *Base) Kinematics(counts int) (k Kinematics) {
	k.radius = b.WheelRadius
	k.maxRaw = float64(b.MaxRaw)
	k.rawPerDegree = float64(counts) / 360
	for i, angle := range wheelAngles {
		a := angle * perDegree
		k.toWheels[i] = [Axes]float64{math.Cos(a), math.Sin(a), b.Radius}
	}
	k.toBody = inverse(k.toWheels)
	return k
}

// Wheels returns the goal velocities of the left, back and right wheel, in counts per second, for finite velocities of
// the base. limited is true if a wheel would exceed MaxRaw; all wheels are then slower.
//
//rt:noalloc
func (k *Kinematics) Wheels(body [Axes]float64) (raw [Axes]int, limited bool) {
	degrees, share := k.turn(body)
	for i, d := range degrees {
		raw[i] = int(math.RoundToEven(d * share * k.rawPerDegree))
	}
	return raw, share < 1
}

// Share returns the factor, at most 1, by which the base's velocities must shrink so that no wheel exceeds MaxRaw.
//
//rt:noalloc
func (k *Kinematics) Share(body [Axes]float64) float64 {
	_, share := k.turn(body)
	return share
}

// turn returns the velocities of the wheels, in degrees per second and without a limit, and the factor of Share.
//
//rt:noalloc
func (k *Kinematics) turn(body [Axes]float64) (degrees [Axes]float64, share float64) {
	body[2] *= perDegree
	most := 0.
	for i, row := range &k.toWheels {
		linear := float64(row[0]*body[0]) + float64(row[1]*body[1]) + float64(row[2]*body[2])
		degrees[i] = linear / k.radius * perRadian
		most = max(most, math.Abs(degrees[i])*k.rawPerDegree)
	}
	if most > k.maxRaw {
		return degrees, k.maxRaw / most
	}
	return degrees, 1
}

// Body returns the velocities of the base whose wheels turn at raw counts per second.
//
//rt:noalloc
func (k *Kinematics) Body(raw [Axes]int) (body [Axes]float64) {
	for i, row := range &k.toBody {
		for j, r := range raw {
			body[i] += float64(row[j] * (float64(r) / k.rawPerDegree * perDegree * k.radius))
		}
	}
	body[2] *= perRadian
	return body
}

// inverse returns the inverse of a matrix, computed from its adjugate. The wheels' directions
// differ, so the determinant is not 0.
func inverse(m [Axes][Axes]float64) (inv [Axes][Axes]float64) {
	minor := func(r, c int) float64 {
		r1, r2 := (r+1)%Axes, (r+2)%Axes
		c1, c2 := (c+1)%Axes, (c+2)%Axes
		return m[r1][c1]*m[r2][c2] - m[r1][c2]*m[r2][c1]
	}
	det := m[0][0]*minor(0, 0) + m[0][1]*minor(0, 1) + m[0][2]*minor(0, 2)
	for r := range Axes {
		for c := range Axes {
			inv[r][c] = minor(c, r) / det
		}
	}
	return inv
}

// Wheels returns the joints that are wheels of the base. In a state or an action, their elements
// hold the velocities of the base's axes.
func (r Robot) Wheels() (joints Joints) {
	for j, m := range r.Motors {
		if m.Norm == Velocity {
			joints |= 1 << j
		}
	}
	return joints
}

// axis returns the index of the base's axis that is in joint j's place in a state; ok is false for
// a joint of an arm.
func (r Robot) axis(j int) (axis int, ok bool) {
	wheels := r.Wheels()
	if !wheels.Has(j) {
		return 0, false
	}
	return j - wheels.First(), true
}

// baseFile is the base block of a description.
type baseFile struct {
	WheelRadius  float64   `yaml:"wheel_radius"`
	BaseRadius   float64   `yaml:"base_radius"`
	MaxRaw       int       `yaml:"max_raw"`
	Speed        []float64 `yaml:"max_speed"`
	Acceleration []float64 `yaml:"max_acceleration"`
}

func (f *baseFile) base() (*Base, error) {
	b := &Base{WheelRadius: f.WheelRadius, Radius: f.BaseRadius, MaxRaw: f.MaxRaw}
	for _, l := range []struct {
		key   string
		given []float64
		to    *[Axes]float64
	}{{"max_speed", f.Speed, &b.Speed}, {"max_acceleration", f.Acceleration, &b.Acceleration}} {
		if len(l.given) != Axes {
			return nil, fmt.Errorf("base: %s: got %v, want [x, y, theta]", l.key, l.given)
		}
		copy(l.to[:], l.given)
		for _, v := range l.given {
			if !positive(v) {
				return nil, fmt.Errorf("base: %s: got %v, want three numbers above 0", l.key, l.given)
			}
		}
	}
	switch {
	case !positive(b.WheelRadius) || !positive(b.Radius):
		return nil, fmt.Errorf("base: got wheel_radius %v and base_radius %v, want metres above 0", b.WheelRadius,
			b.Radius)
	case b.MaxRaw < 1 || b.MaxRaw > maxWheelRaw:
		return nil, fmt.Errorf("base: max_raw: got %d, want 1 to %d counts per second", b.MaxRaw, maxWheelRaw)
	}
	return b, nil
}

// maxWheelRaw is the largest magnitude of Feetech's Goal_Velocity.
const maxWheelRaw = 1<<15 - 1

func positive(v float64) bool { return v > 0 && !math.IsInf(v, 0) }

// checkWheel fails when the motor cannot be a wheel, or has a value that only a joint of an arm has.
func (m Motor) checkWheel() error {
	mode, given := m.Setting(table.OperatingMode)
	switch {
	case m.Model.Protocol != table.Feetech:
		return fmt.Errorf("norm: velocity: got a %s, want a Feetech STS or SMS", m.Model.Name)
	case !given || mode != table.ModeVelocity:
		return fmt.Errorf("norm: velocity: want Operating_Mode: %d under settings", table.ModeVelocity)
	case !m.FullTurn:
		return fmt.Errorf("norm: velocity: want full_turn: true: a wheel has no end stops")
	case m.MaxVelocity != 0 || m.MaxStep != 0 || m.Limits != [2]float64{} || m.Shadow != 0 || m.Trigger != nil:
		return fmt.Errorf("norm: velocity: max_velocity, max_step, limits, shadow and trigger are of joints: the " +
			"base's " +
			"max_speed and max_acceleration limit its wheels")
	}
	return nil
}

// checkBase refuses wheels without a base, and a base without its three wheels in their order.
func (r *Robot) checkBase() error {
	wheels := r.Wheels()
	switch {
	case r.Base == nil && wheels == 0:
		return nil
	case r.Base == nil:
		return fmt.Errorf("base is missing: motor %q is a wheel (norm: velocity)", r.Motors[wheels.First()].Name)
	case r.Leader:
		return fmt.Errorf("base: a leader has none")
	case len(r.Motors) < Axes || wheels != (1<<Axes-1)<<(len(r.Motors)-Axes):
		return fmt.Errorf("base: want its left, back and right wheel (norm: velocity), in this order, as the last " +
			"motors")
	}
	return nil
}
