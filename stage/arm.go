package stage

import (
	"cmp"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/motor"
	"github.com/edge-rt/edge-rt/sim/referee"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// ArmFPS is the rate, in ticks per second, that an Arm's referee assumes.
const ArmFPS = 60

const (
	armGripper = 6    // the gripper's id
	armCounts  = 4095 // the encoder's last count
	armArc     = 360. // angle of armCounts counts in degrees, as in LeRobot
)

// The calibration of an Arm, in counts: narrower than the encoders' range, so that a goal can be out
// of range.
var jointRange, gripperRange = [2]int{800, 3300}, [2]int{1000, 3000}

// armLoads are the loads on the six joints, from the base to the gripper, of a small arm whose upper
// arm is level. Such an arm falls when it is released.
var armLoads = []motor.Load{
	{Backlash: 8},
	{Backlash: 8, Gravity: 0.9, Level: 2048, StopMin: 1000, StopMax: 3100},
	{Backlash: 8, Gravity: 0.45, Level: 2048, StopMin: 1000, StopMax: 3100},
	{Backlash: 8, Gravity: 0.12, Level: 2048, StopMin: 1000, StopMax: 3100},
	{Backlash: 8},
	{Backlash: 8},
}

// Arm is the simulated bus of a robot's part in this process, with its calibration and its referee. The arm is an
// SO-101, which may be on LeKiwi's base.
type Arm struct {
	*servosim.Bus
	Referee     *referee.Referee
	Part        robot.Part
	Port        string // device of the arm: DIR/PART, or DIR/arm for a robot of one part
	Calibration string // file of the arm's calibration, DIR/PART.json
}

// OpenArm opens the arm of a part, with its port in the folder dir. It passes each event of the servos to the referee
// and to the function watch. The function change may change the configuration of the bus; nil: no change.
func OpenArm(dir string, p robot.Part, watch func(*servosim.Event), change func(*servosim.Config)) (*Arm, error) {
	a := &Arm{Part: p, Port: filepath.Join(dir, cmp.Or(p.Name, "arm"))}
	a.Calibration = a.Port + ".json"
	cfg := servosim.Config{
		Baud:   p.Robot.Baud,
		Clock:  rt.KernelClock(),
		Link:   a.Port,
		Fitted: true,
		Wheels: p.Robot.Wheels().Len(),
		Loads:  armLoads,
		Noise:  1,
	}
	judged := referee.Config{Period: time.Second / ArmFPS}
	calibration := servo.Calibration{}
	for j, m := range p.Robot.Motors {
		wheel := p.Robot.Wheels().Has(j)
		ends := rangeOf(m.ID)
		if wheel {
			ends = [2]int{0, armCounts}
		}
		calibration[m.Name] = servo.MotorCalibration{ID: int(m.ID), RangeMin: ends[0], RangeMax: ends[1]}
		cfg.Servos = append(cfg.Servos, servosim.Servo{ID: m.ID, Model: m.Model.Name})
		unit := armCounts / armArc // counts per unit of the robot
		if m.Norm == robot.Range0100 {
			unit = float64(ends[1]-ends[0]) / 100
		}
		if own := m.Limits; own != [2]float64{} {
			ends = [2]int{max(ends[0], ToRaw(m.ID, own[0])), min(ends[1], ToRaw(m.ID, own[1]))}
		}
		joint := referee.Joint{
			ID:       m.ID,
			Name:     p.Prefix() + m.Name,
			Min:      ends[0],
			Max:      ends[1],
			Velocity: m.MaxVelocity * unit,
			Degree:   (armCounts + 1) / armArc,
			Wheel:    wheel,
		}
		if wheel {
			joint.Velocity = float64(p.Robot.Base.MaxRaw)
			joint.Acceleration = wheelAcceleration(p.Robot.Base)
		}
		judged.Joints = append(judged.Joints, joint)
	}
	if err := calibration.Save(a.Calibration); err != nil {
		return nil, err
	}
	a.Referee = referee.New(judged)
	cfg.Watch = func(e *servosim.Event) {
		a.Referee.Watch(e)
		watch(e)
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	a.Bus, err = servosim.Open(cfg)
	return a, err
}

// wheelAcceleration returns the largest acceleration of a wheel, in counts per second, per second, when
// all axes of the base accelerate at their limits. The base's wheels are 120 degrees apart, and its x
// axis points between two of them.
func wheelAcceleration(b *robot.Base) float64 {
	x := b.Acceleration[0]
	y := b.Acceleration[1]
	turn := b.Acceleration[2] * math.Pi / 180 * b.Radius
	along := max(y, x*math.Cos(math.Pi/6)+y*math.Sin(math.Pi/6)) + turn
	return along / b.WheelRadius * (armCounts + 1) / (2 * math.Pi)
}

func rangeOf(id uint8) [2]int {
	if id == armGripper {
		return gripperRange
	}
	return jointRange
}

// ToRaw turns the position of motor id, in degrees or for the gripper in percent, into an Arm's counts.
func ToRaw(id uint8, v float64) int {
	ends := rangeOf(id)
	if id == armGripper {
		return ends[0] + int(v/100*float64(ends[1]-ends[0]))
	}
	return int(v*armCounts/armArc + float64(ends[0]+ends[1])/2)
}

// Armed reports whether all motors are under torque.
func (a *Arm) Armed() bool { return !slices.Contains(a.TorqueEnabled(), false) }
