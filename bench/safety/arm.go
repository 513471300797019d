package safety

import (
	"path/filepath"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/motor"
	"github.com/edge-rt/edge-rt/sim/referee"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// The rate of every run, and its tick.
const (
	fps    = 60
	period = time.Second / fps
)

const (
	robotName = "so101"
	gripper   = 6 // the gripper's id
	countsMax = 4095
	arc       = 360. // degrees of these counts, as in LeRobot
)

// The calibration of every run, in counts: narrower than the encoders' range, so that a goal can be
// out of range.
var (
	jointRange   = [2]int{800, 3300}
	gripperRange = [2]int{1000, 3000}
)

// loads are the loads on the six joints of a small arm whose upper arm is level, from its base to
// its gripper. A released arm falls.
var loads = []motor.Load{
	{Backlash: 8},
	{Backlash: 8, Gravity: 0.9, Level: 2048, StopMin: 1000, StopMax: 3100},
	{Backlash: 8, Gravity: 0.45, Level: 2048, StopMin: 1000, StopMax: 3100},
	{Backlash: 8, Gravity: 0.12, Level: 2048, StopMin: 1000, StopMax: 3100},
	{Backlash: 8},
	{Backlash: 8},
}

// arm is a simulated arm with its referee and its history.
type arm struct {
	bus     *servosim.Bus
	referee *referee.Referee
	history history
	robot   robot.Robot
	dir     string
}

// openArm puts an arm at dir/arm, with its calibration at dir/calibration.json.
func openArm(dir string, change func(*servosim.Config)) (*arm, error) {
	r, err := robot.ByName(robotName)
	if err != nil {
		return nil, err
	}
	a := &arm{robot: r, dir: dir}
	if err := a.writeCalibration(); err != nil {
		return nil, err
	}
	cfg := servosim.Config{
		Baud:   r.Baud,
		Clock:  rt.KernelClock(),
		Link:   a.port(),
		Fitted: true,
		Loads:  loads,
		Noise:  1,
	}
	judged := referee.Config{Period: period}
	for _, m := range r.Motors {
		cfg.Servos = append(cfg.Servos, servosim.Servo{ID: m.ID, Model: m.Model.Name})
		ends := rangeOf(m.ID)
		unit := countsMax / arc // counts per unit of the robot
		if m.Norm == robot.Range0100 {
			unit = float64(ends[1]-ends[0]) / 100
		}
		if own := m.Limits; own != [2]float64{} {
			ends = [2]int{max(ends[0], toRaw(m.ID, own[0])), min(ends[1], toRaw(m.ID, own[1]))}
		}
		judged.Joints = append(judged.Joints, referee.Joint{
			ID:       m.ID,
			Name:     m.Name,
			Min:      ends[0],
			Max:      ends[1],
			Velocity: m.MaxVelocity * unit,
			Degree:   (countsMax + 1) / arc,
		})
	}
	a.referee = referee.New(judged)
	a.history.open(r)
	cfg.Watch = func(e *servosim.Event) {
		a.referee.Watch(e)
		a.history.record(e)
	}
	if change != nil {
		change(&cfg)
	}
	a.bus, err = servosim.Open(cfg)
	return a, err
}

func (a *arm) port() string            { return filepath.Join(a.dir, "arm") }
func (a *arm) calibrationPath() string { return filepath.Join(a.dir, "calibration.json") }

func (a *arm) writeCalibration() error {
	c := servo.Calibration{}
	for _, m := range a.robot.Motors {
		ends := rangeOf(m.ID)
		c[m.Name] = servo.MotorCalibration{ID: int(m.ID), RangeMin: ends[0], RangeMax: ends[1]}
	}
	return c.Save(a.calibrationPath())
}

func rangeOf(id uint8) [2]int {
	if id == gripper {
		return gripperRange
	}
	return jointRange
}

// toRaw turns degrees, or percent of the gripper, into counts.
func toRaw(id uint8, v float64) int {
	ends := rangeOf(id)
	if id == gripper {
		return ends[0] + int(v/100*float64(ends[1]-ends[0]))
	}
	return int(v*countsMax/arc + float64(ends[0]+ends[1])/2)
}

func (a *arm) armed() bool {
	for _, on := range a.bus.TorqueEnabled() {
		if !on {
			return false
		}
	}
	return true
}
