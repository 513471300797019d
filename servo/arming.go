package servo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// ErrOutOfRange means that arming would move a joint that is outside its range.
var ErrOutOfRange = errors.New("servo: joint outside its range")

// Limits of the repeated writes to a motor that does not confirm: at least armTries, and further ones until armFor is
// over, because ten tries take only 20 ms at 1 kHz.
const (
	armTries = 10
	armFor   = 500 * time.Millisecond
	armMost  = 100 // upper limit of the tries
)

// RangeSlack is the number of counts by which an armed joint may be outside its range: its gears
// have play, and it may rest against a stop.
const RangeSlack = 16

// stage is the progress of the arming.
type stage uint8

const (
	stageWatchdog stage = iota // clear a bus watchdog that has fired: motors refuse goals until then
	stageGoal
	stageGoalCheck
	stageSpin // the goal velocity of wheels := 0
	stageSpinCheck
	// write the markers of motors that were under torque when the arm was opened; this follows the
	// goals, since the marker lets an AX-12 that has shut down move again
	stageMarker
	stageMarkerCheck
	stageTorque
	stageTorqueCheck
	stageGuard // lock the EEPROM, set the bus watchdog
)

type arming struct {
	stage       stage
	joints      robot.Joints // joints to arm
	ids         []ID         // ids of the joints, then of their shadows
	units       []int        // the unit of each id
	goals       int          // number of leading ids, which take goal positions
	spins       int          // number of further ids, which take goal velocities
	cycle       uint64       // cycle of the last step; when a cycle has no step, arming starts anew
	tries       int
	since       rt.Instant // time of the first failed try
	row         table.Row
	first       int          // index of the first id of the last sync write
	words       []int        // values of that sync write
	unconfirmed []int        // indices of ids whose value is not read back yet
	bad         []int        // units with a wrong value or without an answer
	answered    bool         // at least one of the bad units has answered
	moving      robot.Joints // joints that have left their goal
}

// ArmStep takes one step towards an arm that holds its position. The first steps set each goal to the present position,
// because the old goal in the register would make the arm jump, and the goal velocity of a base's wheels to 0. Later
// steps switch the torque on. All values are read back. A step is one exchange on the bus. The arm is armed after about
// six steps, more where a tick is too short to read back all motors. The caller calls ArmStep after the tick's Read;
// BusWait includes the wait of both. ArmStep does not change joints outside the set joints, and starts anew when the
// set of joints differs from that of the call before.
//
// Errors: ErrOutOfRange when a joint is outside its range; ErrTorque when the named motors do not confirm: their torque
// may be on, and the caller must switch it off.
func (a *Arm) ArmStep(deadline rt.Instant, joints robot.Joints) (armed bool, err error) {
	m := &a.arming
	if cycle := a.counts.cycles.Load(); m.joints != joints || cycle-m.cycle > 1 {
		a.beginArming(joints)
	}
	m.cycle = a.counts.cycles.Load()
	switch m.stage {
	case stageWatchdog:
		m.stage = stageGoal
		if row := a.watchdogRow(); row.Size != 0 {
			return false, a.bus.syncWrite(row, a.all, make([]int, len(a.all)))
		}
		fallthrough
	case stageGoal:
		if a.unsettled()&joints != 0 {
			return false, nil // the position is not settled: wait for the next read
		}
		if err := a.checkRange(joints); err != nil {
			return false, err
		}
		return false, a.armPositions()
	case stageGoalCheck:
		if done, err := a.confirmed(deadline, stageGoal, "did not take its own position for a goal"); !done {
			return false, err
		}
		m.stage, m.tries = m.afterGoals(), 0
		return false, nil
	case stageSpin:
		return false, a.armWheels()
	case stageSpinCheck:
		if done, err := a.confirmed(deadline, stageSpin, "did not take 0 for a goal velocity"); !done {
			return false, err
		}
		m.stage, m.tries = stageMarker, 0
		return false, nil
	case stageMarker:
		if m.stage = stageTorque; len(a.markers.pending) > 0 {
			m.stage = stageMarkerCheck
			return false, a.sendMarkers()
		}
		fallthrough
	case stageTorque:
		if m.moving = a.moved(); m.moving != 0 {
			m.stage = stageGoal // a person has moved the limp arm, which would jump back to the old goals
			return false, nil
		}
		return false, a.sendArming(a.rows.torque, 0, ones(len(m.ids)), stageTorqueCheck)
	case stageMarkerCheck:
		if a.checkMarker(deadline) {
			m.stage = stageMarker
		}
		return false, nil
	case stageTorqueCheck:
		if done, err := a.confirmed(deadline, stageTorque, "did not switch on; check its cable and power"); !done {
			return false, err
		}
		m.stage = stageGuard
		if row := a.units[0].model.Row(table.Lock); row.Size != 0 {
			// LeRobot locks the EEPROM too, so that no write wears it while the arm moves.
			return false, a.bus.syncWrite(row, a.all, ones(len(a.all)))
		}
		fallthrough
	default:
		return true, a.guardArmed(joints)
	}
}

// armPositions is the step that sets the goal positions to the present positions.
func (a *Arm) armPositions() error {
	m := &a.arming
	words := make([]int, m.goals)
	for k := range words {
		i := a.units[m.units[k]].joint
		a.goals.raw[i] = a.inside(i, a.raws[i])
		words[k] = a.goals.raw[i] - a.joints[i].shift
	}
	if len(words) > 0 {
		return a.sendArming(a.rows.goal, 0, words, stageGoalCheck)
	}
	m.stage = m.afterGoals()
	return nil
}

// afterGoals returns the stage after the goal positions.
func (m *arming) afterGoals() stage {
	if m.spins > 0 {
		return stageSpin
	}
	return stageMarker
}

// guardArmed ends the arming and sets the bus watchdog. From now on health expects the joints' torque to be on.
func (a *Arm) guardArmed(joints robot.Joints) error {
	a.arming = arming{}
	a.health.expect(a.health.torque | joints)
	if err := a.restoreSpeeds(); err != nil {
		return err
	}
	row := a.watchdogRow()
	if row.Size == 0 || a.robot.Safety.BusWatchdog <= 0 {
		return nil
	}
	patience := max(a.robot.Safety.BusWatchdog, watchdogPeriods*a.period)
	if patience > watchdogMost*watchdogStep {
		return nil // the longest timeout is shorter than three ticks and would stop the arm between two ticks
	}
	ticks := int(min(watchdogMost, max(watchdogLeast, (patience+watchdogStep-1)/watchdogStep)))
	a.health.watchdogTimeout = time.Duration(ticks)*watchdogStep - watchdogMargin
	return a.bus.syncWrite(row, a.all, slices.Repeat([]int{ticks}, len(a.all)))
}

func (a *Arm) beginArming(joints robot.Joints) {
	m := &a.arming
	*m = arming{joints: joints}
	for i, u := range a.units { // in the order of units: first the joints, then their shadows
		if joints&(1<<u.joint) == 0 {
			continue
		}
		m.ids, m.units = append(m.ids, u.id), append(m.units, i)
		switch {
		case a.wheels.Has(u.joint):
			m.spins++
		case !u.shadow:
			m.goals++
		}
	}
}

// movedMost is the number of counts that a limp joint may move after its goal was set and before it
// gets torque.
const movedMost = 8

// moved returns the joints being armed that have no torque yet and have left their goals. A joint
// under torque does not count: it sinks a little when its position becomes its goal, and would sink
// further with each new goal.
func (a *Arm) moved() (joints robot.Joints) {
	for _, u := range a.arming.units[:a.arming.goals] {
		i := a.units[u].joint
		if a.stiff.Has(i) {
			continue
		}
		if d := a.inside(i, a.raws[i]) - a.goals.raw[i]; d > movedMost || d < -movedMost {
			joints |= 1 << i
		}
	}
	return joints
}

// MovedWhileArming returns the limp joints that have moved, so that their arming went back to the step of the goals.
//
//rt:noalloc
func (a *Arm) MovedWhileArming() robot.Joints { return a.arming.moving }

// OutOfRange returns the joints that are outside their range, or outside the limits of their servo,
// by more than RangeSlack.
//
//rt:noalloc
func (a *Arm) OutOfRange() (joints robot.Joints) {
	for i := range a.joints {
		j, at := &a.joints[i], a.raws[i]
		if a.wheels.Has(i) {
			continue
		}
		if at < max(j.min, j.low)-RangeSlack || at > min(j.max, j.top)+RangeSlack {
			joints |= 1 << i
		}
	}
	return joints
}

// Outside returns the joints that are outside their calibrated range by more counts than the limit slack.
//
//rt:noalloc
func (a *Arm) Outside(slack int) (joints robot.Joints) {
	for i := range a.joints {
		if j := &a.joints[i]; !a.wheels.Has(i) && outside(a.raws[i], j.min, j.max) > slack {
			joints |= 1 << i
		}
	}
	return joints
}

// checkRange fails when a joint is outside its range, since arming would move it. Joints that Rescue permits pass.
func (a *Arm) checkRange(joints robot.Joints) error {
	joints &= a.OutOfRange() &^ a.rescue.joints
	if joints == 0 {
		return nil
	}
	if err := a.checkSide(joints); err != nil {
		return err
	}
	var names []string
	for i := range a.joints {
		if !joints.Has(i) {
			continue
		}
		j := &a.joints[i]
		low, high := a.Range(i)
		names = append(names, fmt.Sprintf("%s is at %.1f, its range is %.1f to %.1f %s", a.units[i].name,
			j.scale.unclamped(a.raws[i]), low, high, a.robot.Motors[i].Norm))
	}
	return fmt.Errorf("%w: %s; move it inside by hand, or slowly under power: edge-rt move %s TO with the --bus, "+
		"--robot and --id of this run, or --rescue",
		ErrOutOfRange, strings.Join(names, "; "), a.units[joints.First()].name)
}

// watchdogRow returns the register of Dynamixel's bus watchdog; its Size is 0 on other servos. Any
// instruction on the bus resets it; when it fires, the motor stops and keeps its torque.
func (a *Arm) watchdogRow() table.Row { return a.units[0].model.Row(table.BusWatchdog) }

const (
	watchdogStep    = 20 * time.Millisecond
	watchdogMargin  = 5 * time.Millisecond // deviation of a servo's clock, and transmission time
	watchdogPeriods = 3                    // ticks without a write that the motor's watchdog tolerates
	watchdogLeast   = 2                    // steps
	watchdogMost    = 127                  // steps
)

// SetPeriod sets the time between ticks. ArmStep sets the bus watchdog to at least three ticks, and
// Read judges by the travel of a tick whether a position is plausible.
//
// Owner: the thread that owns the arm, before it is armed.
func (a *Arm) SetPeriod(period time.Duration) { a.period = period }

// rawPosition returns the newest reading of joint i: its position, or the velocity of a wheel.
//
//rt:noalloc
func (a *Arm) rawPosition(i int) int {
	if a.wheels.Has(i) {
		return a.rows.velocity.Decode(a.positions.param(i)[a.velocityAt():])
	}
	return a.rows.position.Decode(a.positions.param(i))
}

// Joints returns all joints.
//
//rt:noalloc
func (a *Arm) Joints() robot.Joints { return robot.Joints(a.positions.all) }

func ones(n int) []int { return slices.Repeat([]int{1}, n) }

// sendArming writes words into the register r of motors to arm, one word for each id from ids[first] on, and sets the
// stage to next.
func (a *Arm) sendArming(r table.Row, first int, words []int, next stage) error {
	m := &a.arming
	m.first, m.words = first, words
	m.stage = next
	m.row = r
	m.bad = nil
	m.answered = false
	m.unconfirmed = m.unconfirmed[:0]
	for k := range words {
		m.unconfirmed = append(m.unconfirmed, first+k)
	}
	return a.bus.syncWrite(r, m.ids[first:first+len(words)], words)
}

// confirmed reads back the last sync write, from as many motors as the deadline allows, at least one. The result done
// is true when all motors have their values. When all were read and one has another value, the arming goes to the stage
// in the parameter back. After too many tries it fails, with why at the error's end.
func (a *Arm) confirmed(deadline rt.Instant, back stage, why string) (done bool, err error) {
	m := &a.arming
	n := len(m.unconfirmed)
	room := deadline.Sub(a.clock.Now()) - a.bus.replyDelay - healthLoss
	for ; n > 1 && a.bus.wireTime(maxRequest, n, m.row.Size+checkMore) > room; n-- {
	}
	ids, words := make([]ID, n), make([]int, n)
	for k, i := range m.unconfirmed[:n] {
		ids[k], words[k] = m.ids[i], m.words[i-m.first]
	}
	check := a.bus.newReadback(m.row, ids)
	least := a.clock.Now().Add(check.wire + a.bus.replyDelay + lossWait)
	for _, k := range a.bus.readBack(check, m.row, words, confirmTimeout, max(deadline, least)) {
		m.bad = append(m.bad, m.units[m.unconfirmed[k]])
		m.answered = m.answered || check.missing()>>k&1 == 0
	}
	m.unconfirmed = m.unconfirmed[n:]
	switch {
	case len(m.unconfirmed) > 0:
		return false, nil
	case len(m.bad) == 0:
		return true, nil
	}
	if !m.answered {
		why = "did not answer; check its cable and power"
	}
	return false, a.retryStage(back, m.bad, why)
}

// maxRequest is the approximate size of a sync read's request for all motors of an arm.
const maxRequest = 24

func (a *Arm) retryStage(to stage, bad []int, why string) error {
	m := &a.arming
	now := a.clock.Now()
	if m.tries == 0 {
		m.since = now
	}
	if m.tries++; m.tries < armTries || now.Sub(m.since) < armFor && m.tries < armMost {
		a.bus.retries.Add(1)
		m.stage = to
		return nil
	}
	a.arming = arming{}
	return fmt.Errorf("%w: %s %s", ErrTorque, a.motors(bad), why)
}
