package servo

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// ArmConfig describes the arm to open.
type ArmConfig struct {
	Path        string      // serial device, such as /dev/ttyACM0; only a name in messages when Port is set
	Robot       robot.Robot // description that robot.ByName returns
	Calibration Calibration // calibration that LoadCalibration returns
	File        string      // path of the file that LoadCalibration read, for messages; empty: no file
	Clock       rt.Clock    // nil: the kernel's clock
	Port        Port        // nil: OpenArm opens Path with OpenPortAlone
	Cycle       *rt.Hist    // histogram for the durations of Read; nil: a new one
	// OpenArm adds to this set the joints whose motor has restarted, even if OpenArm fails afterwards; nil: OpenArm
	// does not report these joints
	Restarted *robot.Joints
	// true if this process has opened the arm before, so that a motor without its marker has restarted, see
	// Arm.Restarted
	Reopened bool
	// OpenArm and Measure end with ErrCanceled within 0.2 s after Canceled returns true, or, if a motor's settings are
	// being written, after the last of them; nil: they are never canceled
	Canceled func() bool
}

// Arm is the motors of one robot and the bus that connects them.
//
// Owner: one thread at a time; the tick thread while the tick runs. Any thread may call Stats and
// Extremes.
type Arm struct {
	armConst
	bus       *Bus
	positions *readGroup
	raws      []int        // newest known position per joint, raw
	sights    []sight      // per joint: state of its newest readings
	jumped    robot.Joints // joints whose position jumped in the newest Read
	faults    []Fault      // per joint: fault that came with its newest position
	lastRead  rt.Instant
	closed    bool

	goals   goals
	fast    fastMode
	arming  arming
	rescue  rescue
	markers markers
	health  *health
	counts  counts
}

// armConst holds the fields that are constant after OpenArm, except period, which SetPeriod sets.
type armConst struct {
	path         string
	robot        robot.Robot
	joints       []joint
	units        []unit // every servo: the first servo of each joint in the joints' order, then the shadows
	all          []ID   // ids of the units
	rows         rows
	wheels       robot.Joints // wheels of a base, which are the last joints
	base         robot.Kinematics
	clock        rt.Clock
	canceled     func() bool
	restartedOut *robot.Joints // ArmConfig.Restarted
	reopened     bool          // ArmConfig.Reopened
	period       time.Duration // time between ticks; 0: not known
	unconfigured []string
	stiff        robot.Joints // joints whose motors were under torque in OpenArm
	notes        []string
}

// goals are the goals of the joints, raw.
type goals struct {
	raw   []int // last goal per joint
	ids   []ID  // servos of this tick's sync write
	words []int // their goals, as register values
}

// unit is one servo.
type unit struct {
	id     ID
	name   string
	model  *table.Model
	joint  int // index of the joint whose goals it gets
	shadow bool
}

// joint is one axis with its calibration.
type joint struct {
	scale    scale
	min, max int // raw: the calibrated range, narrowed by the robot's own limits
	low, top int // raw: limits to which the servo itself restricts goals
	turn     int // counts of a turn, if the servo counts turns and forgets them at power-up; 0: it counts none
	shift    int // raw position minus register value: whole turns
}

// rows are the registers that the tick uses. They have the same address on all motors of a bus.
type rows struct{ position, goal, torque, velocity, spin table.Row }

// OpenArm opens the port, finds every motor, checks model and calibration, and writes the robot's
// settings where they differ. Torque stays as it is. After OpenArm every joint has a position.
//
// It fails with ErrPortAbsent, ErrPortBusy, ErrPortDenied, ErrPort, ErrMotorMissing, ErrWrongModel, ErrCalibration,
// ErrTorqueOn, ErrTorque, ErrTurn, ErrSetting, ErrLatched or ErrCanceled, or with the error of one exchange on the bus,
// such as ErrNoReply. It then closes the port.
func OpenArm(cfg ArmConfig) (*Arm, error) {
	if err := cfg.Calibration.Check(cfg.Robot); err != nil {
		return nil, cfg.nameFile(err)
	}
	if err := cfg.openPort(); err != nil {
		return nil, err
	}
	a := newArm(cfg)
	err := a.applyLimits()
	if err == nil {
		err = a.setUp(cfg.Calibration)
	}
	a.bus.canceled = nil // switching the arm off must never be canceled
	if err != nil {
		if a.bus.lost {
			err = fmt.Errorf("%w: %w; plug the adapter in again", ErrPortAbsent, err)
		}
		return nil, errors.Join(cfg.nameFile(err), cfg.Port.Close())
	}
	return a, nil
}

// openPort sets the clock and the port that the caller has not set.
func (cfg *ArmConfig) openPort() (err error) {
	if cfg.Clock == nil {
		cfg.Clock = rt.KernelClock()
	}
	if cfg.Port == nil {
		cfg.Port, err = OpenPortAlone(cfg.Path, cfg.Robot.Baud, cfg.Clock, cfg.Canceled)
	}
	return err
}

// nameFile adds the calibration file's path to an error about the calibration.
func (cfg *ArmConfig) nameFile(err error) error {
	if cfg.File == "" || !errors.Is(err, ErrCalibration) {
		return err
	}
	return fmt.Errorf("%w (the calibration file is %s)", err, cfg.File)
}

func newArm(cfg ArmConfig) *Arm {
	r := cfg.Robot
	n := len(r.Motors)
	model := r.Motors[0].Model
	a := &Arm{
		armConst: armConst{
			path:         cfg.Path,
			robot:        r,
			clock:        cfg.Clock,
			canceled:     cfg.Canceled,
			restartedOut: cfg.Restarted,
			reopened:     cfg.Reopened,
			wheels:       r.Wheels(),
			rows: rows{
				position: model.Row(table.PresentPosition),
				goal:     model.Row(table.GoalPosition),
				torque:   model.Row(table.TorqueEnable),
				velocity: model.Row(table.PresentVelocity),
				spin:     model.Row(table.GoalVelocity),
			},
		},
		bus:    NewBus(cfg.Port, r.Baud, r.Protocol(), cfg.Clock),
		faults: make([]Fault, n),
		raws:   make([]int, n),
		goals:  goals{raw: make([]int, n), ids: make([]ID, 0, n), words: make([]int, 0, n)},
		counts: counts{cycle: cfg.Cycle},
	}
	a.bus.canceled = cfg.Canceled
	if a.counts.cycle == nil {
		a.counts.cycle = rt.NewHist()
	}
	for i, m := range r.Motors {
		c := cfg.Calibration[m.Name]
		a.joints = append(a.joints, joint{
			scale: newScale(m, c),
			min:   c.RangeMin,
			max:   c.RangeMax,
			low:   -maxRaw,
			top:   maxRaw,
		})
		a.units = append(a.units, unit{m.ID, m.Name, m.Model, i, false})
	}
	for i, m := range r.Motors {
		if m.Shadow != 0 {
			a.units = append(a.units, unit{m.Shadow, m.Name + "_shadow", m.Model, i, true})
		}
	}
	for _, u := range a.units {
		a.all = append(a.all, u.id)
	}
	a.sights = newSights(r, a.joints)
	a.positions = a.bus.newGroup(a.rows.position.Addr, a.rows.position.Size, a.jointIDs())
	if r.Base != nil {
		a.base = r.Base.Kinematics(model.Resolution)
		a.positions = a.bus.newGroup(a.rows.position.Addr, a.velocityAt()+a.rows.velocity.Size, a.jointIDs())
	}
	a.health = newHealth(a)
	return a
}

// jointIDs returns the ids of the joints' first servos.
func (a *armConst) jointIDs() []ID { return a.all[:len(a.joints)] }

// applyLimits narrows the calibrated range to the robot's own limits.
func (a *Arm) applyLimits() error {
	for i := range a.joints {
		j := &a.joints[i]
		own := a.robot.Motors[i].Limits
		if own == [2]float64{} {
			continue
		}
		low, high := j.scale.raw(own[0]), j.scale.raw(own[1])
		from, to := max(j.min, min(low, high)), min(j.max, max(low, high))
		if from >= to {
			return a.refuse(ErrCalibration, a.units[i], ": limits %v of %s lie outside its calibrated range, %.1f to "+
				"%.1f; mend the description's limits, or calibrate again", own, a.robot.Name, j.scale.value(j.min),
				j.scale.value(j.max))
		}
		j.min, j.max = from, to
	}
	return nil
}

func (a *Arm) setUp(calibration Calibration) error {
	a.bus.DetectEcho(a.unusedID())
	if err := a.findMotors(); err != nil {
		return err
	}
	checkCalibration := func(u int) error { return a.checkCalibration(a.units[u], calibration) }
	if err := a.eachUnit(a.checkModel, a.checkLatched, checkCalibration); err != nil {
		return err
	}
	a.noteCalibration(calibration)
	// Only now is it certain that this is the right arm, so nothing was written to it before.
	steps := []func(int) error{a.answer, a.checkDriveable, a.configure, a.readCurrentLimit}
	if a.reopened {
		steps = slices.Insert(steps, 0, a.checkRestarted)
	}
	if err := a.eachUnit(steps...); err != nil {
		return err
	}
	if err := a.findPlaces(); err != nil {
		return err
	}
	if err := a.findTurns(); err != nil {
		return err
	}
	for i := range a.joints {
		a.storePosition(i) // stored again, now that the joint's turn is known
		a.sights[i].reading = a.raws[i]
	}
	a.probeFast()
	a.health.due = a.clock.Now().Add(healthEvery)
	return nil
}

// eachUnit runs all steps for one unit, then for the next one. It ends at the first error, or with ErrCanceled.
func (a *Arm) eachUnit(steps ...func(u int) error) error {
	for u := range a.units {
		if a.bus.isCanceled() {
			return ErrCanceled
		}
		for _, step := range steps {
			if err := step(u); err != nil {
				return err
			}
		}
	}
	return nil
}

// unusedID returns an id that no motor of the robot has.
func (a *Arm) unusedID() ID {
	id := MaxID
	for ; slices.Contains(a.all, id); id-- {
	}
	return id
}

func (a *Arm) findMotors() error {
	var here, missing, garbled []string
	last := -1
	for i, u := range a.units {
		id := fmt.Sprint(u.id)
		switch err := a.bus.Ping(u.id); {
		case err == nil:
			here = append(here, id)
			last = i
		case errors.Is(err, ErrPortLost), errors.Is(err, ErrCanceled):
			return a.wrap(u, err)
		default:
			missing = append(missing, fmt.Sprintf("%s (%s)", id, u.name))
			if errors.Is(err, ErrGarbled) {
				garbled = append(garbled, id)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	answered := "answered " + strings.Join(here, " ")
	cure := "check its cable, power and id, and its baud rate (edge-rt scan)"
	switch {
	case len(here) == 0:
		answered = fmt.Sprintf("no motor answered at %d baud", a.robot.Baud)
		cure = "check the motors' power, the cable to the first one, the baud rate and --robot: edge-rt scan without " +
			"it names the arm of any motors"
	case len(missing) > 1 && len(missing) == len(a.units)-1-last:
		cure = fmt.Sprintf("check the cable after motor %d (%s)", a.units[last].id, a.units[last].name)
	}
	if len(garbled) > 0 && len(garbled) < len(a.units) {
		cure = fmt.Sprintf("the replies of id %s were garbled, so two motors may have the same id: edge-rt "+
			"setup-motors gives each its own", strings.Join(garbled, ", "))
	}
	return fmt.Errorf("%w: no reply from motor %s on %s: %s; %s", ErrMotorMissing, strings.Join(missing, ", "), a.path,
		answered, cure)
}

// answer sets the status return level of a motor so that it answers every instruction.
func (a *Arm) answer(i int) error {
	u := a.units[i]
	changed, err := enableReplies(a.bus, robot.Motor{ID: u.id, Model: u.model})
	if changed {
		a.note(u, " did not answer every instruction (status return level), as other software left it; it does now")
	}
	return a.wrap(u, err)
}

func (a *Arm) checkModel(i int) error {
	u := a.units[i]
	got, err := a.read(u, table.ModelNumber)
	if errors.Is(err, ErrNoReply) && a.bus.protocol == table.Dynamixel2 { // the motor has answered a ping
		if err = a.answer(i); err == nil {
			got, err = a.read(u, table.ModelNumber)
		}
	}
	if err != nil || got == u.model.Number {
		return err
	}
	found := fmt.Sprintf("model number %d", got)
	if m := table.ByNumber(got, a.bus.protocol); m != nil {
		found += " (" + m.Name + ")"
	}
	return a.refuse(ErrWrongModel, u, ": got %s, want %d (%s); is this a %s?", found, u.model.Number, u.model.Name,
		a.robot.Name)
}

// wrap adds the motor's name to an error; nil stays nil.
func (a *Arm) wrap(u unit, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("servo: motor %d (%s) on %s: %w", u.id, u.name, a.path, err)
}

// refuse returns an error of a kind, such as ErrTurn, about one motor.
func (a *Arm) refuse(kind error, u unit, format string, args ...any) error {
	return fmt.Errorf("%w: motor %d (%s) on %s%w", kind, u.id, u.name, a.path, fmt.Errorf(format, args...))
}

// note adds a sentence about a motor to Notes.
func (a *Arm) note(u unit, format string, args ...any) {
	a.notes = append(a.notes, fmt.Sprintf("motor %d (%s)", u.id, u.name)+fmt.Sprintf(format, args...))
}

// read returns the value of a motor's register. Its error names the motor.
func (a *Arm) read(u unit, r table.Register) (int, error) {
	v, _, err := a.bus.ReadRegister(u.id, u.model.Row(r))
	if errors.Is(err, ErrGarbled) { // two servos with one id send equal answers to a ping, which hides them
		err = fmt.Errorf("%w; check its plugs, and whether two motors have the same id", err)
	}
	return v, a.wrap(u, err)
}

// write sets a motor's register. Its error names the motor.
func (a *Arm) write(u unit, row table.Row, value int) error {
	return a.wrap(u, a.bus.WriteRegister(u.id, row, value))
}

// setting returns the value with which a motor runs: the value in the robot's description, or the
// value in the motor's register when the description has none.
func (a *Arm) setting(u unit, r table.Register) (int, error) {
	if v, given := a.robot.Motors[u.joint].Setting(r); given {
		return v, nil
	}
	return a.read(u, r)
}

// SetPause makes the arm's bus call pause for every wait. With nil the bus itself waits.
func (a *Arm) SetPause(pause rt.Pause) { a.bus.pause = pause }

// Robot returns the name of the arm's description.
func (a *Arm) Robot() string { return a.robot.Name }

// Notes returns sentences for the user: the corrections that OpenArm has made, and findings that it
// has left as they are.
func (a *Arm) Notes() []string { return a.notes }

// Limits returns, for each joint and in its unit, by how much a new goal may differ from the last goal (step)
// and from the measured position (fromPresent); infinity where the joint has no such limit.
func (a *Arm) Limits(period float64) (step, fromPresent []float32) {
	for i, m := range a.robot.Motors {
		most := m.MaxVelocity
		if a.wheels.Has(i) {
			most = a.robot.Base.Acceleration[i-a.wheels.First()] // the goal of a wheel is a velocity
		}
		step = append(step, float32(most*period))
		fromPresent = append(fromPresent, float32(cmp.Or(m.MaxStep, math.Inf(1))))
	}
	return step, fromPresent
}

// Close closes the port. It leaves torque as it is, but stops wheels and switches the bus watchdog
// off.
func (a *Arm) Close() error {
	if a.health.torque&a.wheels != 0 && !a.bus.lost {
		_ = stopWheels(a.bus, a.robot)
	}
	if row := a.watchdogRow(); row.Size != 0 && a.health.torque != 0 && !a.bus.lost {
		_ = a.bus.syncWrite(row, a.all, make([]int, len(a.all))) // the motors keep their torque even if this fails
	}
	a.bus.lost, a.closed = true, true
	return a.bus.port.Close()
}

// Closed reports whether Close was called.
func (a *Arm) Closed() bool { return a.closed }
