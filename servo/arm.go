package servo

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"edgert/rt"
)

// ArmConfig says which arm to open.
type ArmConfig struct {
	Path        string      // serial device, such as /dev/ttyACM0; with Port only a name for messages
	Robot       Robot       // from RobotByName
	Calibration Calibration // from LoadCalibration
	Clock       rt.Clock    // nil: the kernel's
	Port        Port        // nil: OpenPort(Path, Robot.Baud)
}

// Arm is a robot's motors on their bus.
//
// Owner: one thread at a time; the tick thread while it runs. Stats may be
// called by any thread.
type Arm struct {
	// Constant after OpenArm.
	path   string
	robot  Robot
	joints []joint
	ids    []ID
	clock  rt.Clock
	held   []string

	// Owner: tick thread.
	bus       *Bus
	positions *group
	present   []float32 // newest known position per joint, in its unit
	goals     []uint16  // last goal per joint, as the register has it
	frame     []byte
	arming    arming

	// Atomic.
	cycles, losses, alerts, clipped, refused atomic.Uint64
	cycle                                    *rt.Hist
}

// joint is one motor with its calibration.
type joint struct {
	id       ID
	name     string
	model    int // Model_Number
	scale    scale
	min, max int // raw
}

// OpenArm opens the port, finds every motor, checks model and calibration, and
// writes the robot's settings where they differ. Torque stays as it is. After
// OpenArm every joint has a position.
//
// It fails with ErrPortAbsent, ErrPortBusy, ErrPortDenied, ErrMotorMissing,
// ErrWrongModel, ErrCalibration or ErrHeld, and leaves the port closed then.
func OpenArm(cfg ArmConfig) (*Arm, error) {
	joints, err := newJoints(cfg)
	if err != nil {
		return nil, err
	}
	clock := cfg.Clock
	if clock == nil {
		clock = rt.KernelClock()
	}
	port := cfg.Port
	if port == nil {
		if port, err = OpenPort(cfg.Path, cfg.Robot.Baud); err != nil {
			return nil, err
		}
	}
	a := &Arm{
		path:    cfg.Path,
		robot:   cfg.Robot,
		joints:  joints,
		clock:   clock,
		bus:     NewBus(port, cfg.Robot.Baud, clock),
		present: make([]float32, len(joints)),
		goals:   make([]uint16, len(joints)),
		cycle:   rt.NewHist(),
	}
	for _, j := range joints {
		a.ids = append(a.ids, j.id)
	}
	a.positions = a.bus.newGroup(PresentPosition.Addr(), PresentPosition.Width(), a.ids)
	a.frame = make([]byte, 0, len(AppendSyncWrite(nil, GoalPosition, a.ids, a.goals)))
	if err := a.bringUp(cfg.Calibration); err != nil {
		if a.bus.lost {
			err = fmt.Errorf("%w: %w; plug the adapter in again", ErrPortAbsent, err)
		}
		return nil, errors.Join(err, port.Close())
	}
	return a, nil
}

func newJoints(cfg ArmConfig) ([]joint, error) {
	r := cfg.Robot
	if len(r.Motors) == 0 || len(r.Motors) > maxSyncMotors || r.Baud <= 0 {
		return nil, fmt.Errorf("servo: robot %q has %d motors at %d baud, want 1 to %d motors and a baud rate", r.Name, len(r.Motors), r.Baud, maxSyncMotors)
	}
	if err := cfg.Calibration.Check(r); err != nil {
		return nil, err
	}
	seen := make(map[ID]string, len(r.Motors))
	joints := make([]joint, len(r.Motors))
	for i, m := range r.Motors {
		model, ok := models[m.Model]
		if !ok {
			return nil, fmt.Errorf("%w: robot %s, motor %s: got %q, want sts3215, sts3250 or sm8512bl", ErrWrongModel, r.Name, m.Name, m.Model)
		}
		if other, ok := seen[m.ID]; ok || m.ID > MaxID {
			return nil, fmt.Errorf("servo: robot %s, motor %s: got id %d, want one of 0 to %d that %q has not", r.Name, m.Name, m.ID, MaxID, other)
		}
		seen[m.ID] = m.Name
		c := cfg.Calibration[m.Name]
		joints[i] = joint{id: m.ID, name: m.Name, model: model, scale: newScale(m.Norm, c), min: c.RangeMin, max: c.RangeMax}
	}
	return joints, nil
}

// bringUp does what OpenArm does on the bus.
func (a *Arm) bringUp(calibration Calibration) error {
	if err := a.find(); err != nil {
		return err
	}
	for i := range a.joints {
		j := &a.joints[i]
		if err := a.checkModel(j); err != nil {
			return err
		}
		if err := a.checkCalibration(j, calibration[j.name]); err != nil {
			return err
		}
	}
	// Only now is it known that this is the arm: nothing was written before.
	for i := range a.joints {
		if err := a.configure(&a.joints[i]); err != nil {
			return err
		}
	}
	if err := a.readPositions(); err != nil {
		return err
	}
	for i := range a.joints {
		a.take(i)
	}
	return nil
}

// find pings every motor and names those that do not answer.
func (a *Arm) find() error {
	var here, missing []string
	var cause error
	last := -1
	for i, j := range a.joints {
		_, err := a.bus.Ping(j.id)
		switch {
		case err == nil:
			here = append(here, fmt.Sprint(j.id))
			last = i
		case errors.Is(err, ErrPortLost):
			return a.wrap(&j, err)
		default:
			missing = append(missing, fmt.Sprintf("%d (%s)", j.id, j.name))
			cause = err
		}
	}
	if len(missing) == 0 {
		return nil
	}
	what := fmt.Sprintf("no reply from motor %s on %s", strings.Join(missing, ", "), a.path)
	switch {
	case len(here) == 0:
		return fmt.Errorf("%w: %s: nobody answered at %d baud; check the motors' power, the cable to the first one and the baud rate", ErrMotorMissing, what, a.robot.Baud)
	case errors.Is(cause, ErrGarbled):
		return fmt.Errorf("%w: %s: answered %s; the reply was garbled, so two motors may have the same id", ErrMotorMissing, what, strings.Join(here, " "))
	case len(missing) > 1 && len(missing) == len(a.joints)-1-last:
		return fmt.Errorf("%w: %s: answered %s; check the cable behind motor %d (%s)", ErrMotorMissing, what, strings.Join(here, " "), a.joints[last].id, a.joints[last].name)
	}
	return fmt.Errorf("%w: %s: answered %s; check its cable, power and id", ErrMotorMissing, what, strings.Join(here, " "))
}

func (a *Arm) checkModel(j *joint) error {
	got, _, err := a.bus.ReadRegister(j.id, ModelNumber)
	if err != nil {
		return a.wrap(j, err)
	}
	if got != j.model {
		return fmt.Errorf("%w: motor %d (%s) on %s: got model number %d, want %d; is this a %s?", ErrWrongModel, j.id, j.name, a.path, got, j.model, a.robot.Name)
	}
	return nil
}

// wrap says which motor an error came from.
func (a *Arm) wrap(j *joint, err error) error {
	return fmt.Errorf("servo: motor %d (%s) on %s: %w", j.id, j.name, a.path, err)
}

// Close closes the port. It leaves torque as it is, so that a caller may choose
// to hold the arm.
func (a *Arm) Close() error { return a.bus.port.Close() }
