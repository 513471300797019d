package stage

import (
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

// ArmName is the robot of an Arm, ArmFPS the rate, in ticks per second, by which its referee judges.
const ArmName, ArmFPS = "so101", 60

const (
	armGripper = 6    // the gripper's id
	armCounts  = 4095 // the encoder's last count
	armArc     = 360. // degrees of these counts, as in LeRobot
)

// The calibration of an Arm, in counts: narrower than the encoders' range, so that a goal can be out
// of range.
var jointRange, gripperRange = [2]int{800, 3300}, [2]int{1000, 3000}

// armLoads are the loads on the six joints of a small arm whose upper arm is level, from its base to
// its gripper. A released arm falls.
var armLoads = []motor.Load{
	{Backlash: 8},
	{Backlash: 8, Gravity: 0.9, Level: 2048, StopMin: 1000, StopMax: 3100},
	{Backlash: 8, Gravity: 0.45, Level: 2048, StopMin: 1000, StopMax: 3100},
	{Backlash: 8, Gravity: 0.12, Level: 2048, StopMin: 1000, StopMax: 3100},
	{Backlash: 8},
	{Backlash: 8},
}

// Arm is a simulated SO-101 in this process, with its calibration and its referee.
type Arm struct {
	*servosim.Bus
	Referee     *referee.Referee
	Port        string // its device, DIR/arm
	Calibration string // file of its calibration, DIR/calibration.json
}

// OpenArm opens an arm in the folder dir. The referee and watch get each event of its servos; change
// may change its bus, nil: no change.
func OpenArm(dir string, watch func(*servosim.Event), change func(*servosim.Config)) (*Arm, error) {
	r, err := robot.ByName(ArmName)
	if err != nil {
		return nil, err
	}
	a := &Arm{Port: filepath.Join(dir, "arm"), Calibration: filepath.Join(dir, "calibration.json")}
	cfg := servosim.Config{
		Baud:   r.Baud,
		Clock:  rt.KernelClock(),
		Link:   a.Port,
		Fitted: true,
		Loads:  armLoads,
		Noise:  1,
	}
	judged := referee.Config{Period: time.Second / ArmFPS}
	calibration := servo.Calibration{}
	for _, m := range r.Motors {
		ends := rangeOf(m.ID)
		calibration[m.Name] = servo.MotorCalibration{ID: int(m.ID), RangeMin: ends[0], RangeMax: ends[1]}
		cfg.Servos = append(cfg.Servos, servosim.Servo{ID: m.ID, Model: m.Model.Name})
		unit := armCounts / armArc // counts per unit of the robot
		if m.Norm == robot.Range0100 {
			unit = float64(ends[1]-ends[0]) / 100
		}
		if own := m.Limits; own != [2]float64{} {
			ends = [2]int{max(ends[0], ToRaw(m.ID, own[0])), min(ends[1], ToRaw(m.ID, own[1]))}
		}
		judged.Joints = append(judged.Joints, referee.Joint{
			ID:       m.ID,
			Name:     m.Name,
			Min:      ends[0],
			Max:      ends[1],
			Velocity: m.MaxVelocity * unit,
			Degree:   (armCounts + 1) / armArc,
		})
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
	a.Bus, err = servosim.Open(cfg)
	return a, err
}

func rangeOf(id uint8) [2]int {
	if id == armGripper {
		return gripperRange
	}
	return jointRange
}

// ToRaw turns degrees, or percent of the gripper, into an Arm's counts.
func ToRaw(id uint8, v float64) int {
	ends := rangeOf(id)
	if id == armGripper {
		return ends[0] + int(v/100*float64(ends[1]-ends[0]))
	}
	return int(v*armCounts/armArc + float64(ends[0]+ends[1])/2)
}

// Armed reports whether all motors are under torque.
func (a *Arm) Armed() bool { return !slices.Contains(a.TorqueEnabled(), false) }
