package servo

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

const (
	// largest number of torque-off frames to all motors while a motor has not confirmed
	offRounds      = 3
	offAttempts    = 2                    // attempts of each write to a single motor after that
	confirmTimeout = 5 * time.Millisecond // limit of one confirmation: six silent motors take 0.2 s
)

// TorqueOff makes every motor limp. It sends one frame to all motors, reads their torque back, and
// repeats this a few times; then it writes to the motors one by one. It ignores faults, continues
// after failures, and works after bus errors. The error, which wraps ErrTorque, names the motors
// that may still be under torque. With six silent motors TorqueOff takes 0.2 s, and up to a second
// on a line that never falls silent. It sends the first frame within 50 ms.
//
// Owner: the thread that owns the arm, after the tick has ended.
func (a *Arm) TorqueOff() error {
	if a.closed {
		return fmt.Errorf("%w: the port is closed", ErrTorque)
	}
	a.bus.lost = false // a line that was lost before is tried again
	a.health.expect(0)
	_ = stopWheels(a.bus, a.robot) // a wheel that misses the torque-off frame at least stops
	if bad := setAll(a.bus, a.rows.torque, a.all, make([]int, len(a.all))); len(bad) > 0 {
		return fmt.Errorf("%w: %s may still be under torque; switch off the motors' supply", ErrTorque, a.motors(bad))
	}
	_ = a.EndRescue() // if this fails, the next OpenArm restores the speeds
	return nil
}

// letGo makes a leader's motor limp if it has booted with torque or was left under torque, because a person moves a
// leader.
func (a *Arm) letGo(u unit) error {
	if err := a.write(u, a.rows.torque, 0); err != nil {
		return err
	}
	switch torque, err := a.read(u, table.TorqueEnable); {
	case err != nil:
		return err
	case torque != 0:
		return a.refuse(ErrTorque, u, ": it is under torque and does not let go; switch off its supply")
	case a.robot.Motors[u.joint].Trigger == nil:
		a.note(u, " of the leader was under torque and was let go")
	}
	return nil
}

// Triggers returns a leader's joints that are held with little torque for a person to pull.
func (a *Arm) Triggers() (joints []int) {
	for i, m := range a.robot.Motors {
		if m.Trigger != nil {
			joints = append(joints, i)
		}
	}
	return joints
}

// HoldTriggers switches on the torque of a leader's triggers, with their rest position as the goal and the
// current of their settings. No other joint of a leader that is not Actuated is ever under torque.
func (a *Arm) HoldTriggers() error {
	for _, i := range a.Triggers() {
		j := &a.joints[i]
		raw := min(j.max, max(j.min, j.scale.raw(*a.robot.Motors[i].Trigger)))
		for _, w := range []struct {
			row   table.Row
			value int
		}{{a.watchdogRow(), 0}, {a.rows.goal, raw - j.shift}, {a.rows.torque, 1}} {
			if w.row.Size == 0 {
				continue // the servo has no bus watchdog, which could have made it refuse the goal
			}
			if err := a.write(a.units[i], w.row, w.value); err != nil {
				return err
			}
		}
	}
	return nil
}

// readPositions fills a.positions with an answer of every motor, in up to maxAttempts attempts.
func (a *Arm) readPositions() error {
	missing, patience := a.positions.all, ackTimeout
	for attempt := range maxAttempts {
		if attempt > 0 {
			a.bus.retries.Add(1)
			patience *= 2 // the adapter may be slow
		}
		if a.bus.isCanceled() {
			return ErrCanceled
		}
		missing = a.bus.gather(a.positions, patience, a.clock.Now().Add(a.positions.wire+2*patience))
		if missing == 0 {
			return nil
		}
		a.bus.waitQuiet()
	}
	var bad []int
	for i := range a.joints { // the first units are the joints
		if missing>>i&1 != 0 {
			bad = append(bad, i)
		}
	}
	return fmt.Errorf("%w: %s gave no position; check its cable and power", ErrMotorMissing, a.motors(bad))
}

// checkMore is the number of bytes by which a readback is longer than its register, so that no read
// of the tick has the same length.
const checkMore = 4

// newReadback returns a group that reads more bytes than the register has, so that a late reply
// with a position is not taken for the register's value.
func (b *Bus) newReadback(r table.Row, ids []ID) *readGroup {
	return b.newGroup(r.Addr, r.Size+checkMore, ids)
}

// readBack reads the register of the motors of check, and returns the indices of the motors that do not answer or whose
// value differs from that in words.
func (b *Bus) readBack(check *readGroup, r table.Row, words []int, patience time.Duration,
	deadline rt.Instant) (bad []int) {
	missing := b.gather(check, patience, deadline)
	for i, want := range words {
		if missing>>i&1 != 0 || r.Decode(check.param(i)) != want {
			bad = append(bad, i)
		}
	}
	return bad
}

// setAll writes words into one register of all motors, at first with one frame for all. It returns
// the indices of the motors that have not confirmed their value.
func setAll(b *Bus, r table.Row, ids []ID, words []int) (bad []int) {
	if b.drainNext > 0 {
		b.quietTime = confirmTimeout
		b.waitQuiet()
		b.quietTime = quietTime
	}
	check := b.newReadback(r, ids)
	for range offRounds {
		if b.syncWrite(r, ids, words) != nil {
			break
		}
		if bad = b.readBack(check, r, words, confirmTimeout,
			b.clock.Now().Add(check.wire+2*confirmTimeout)); len(bad) == 0 {
			return nil
		}
	}
	return setSingly(b, r, ids, words)
}

// setSingly is the fallback of setAll. It writes to one motor after the other, with
// acknowledgements, and reads each back.
func setSingly(b *Bus, r table.Row, ids []ID, words []int) (bad []int) {
	b.SetRetry(offAttempts, confirmTimeout)
	defer b.ResetRetry()
	for i, id := range ids {
		if err := b.WriteRegister(id, r, words[i]); err != nil {
			bad = append(bad, i)
			continue
		}
		if got, _, err := b.ReadRegister(id, r); err != nil || got != words[i] {
			bad = append(bad, i)
		}
	}
	return bad
}

// Release makes every motor of a robot limp without opening an Arm. Other motors on the bus, such as the wheels of a
// base that the robot's description lacks, get the command too, but their confirmation is not requested. The error
// wraps ErrTorque and names the motors that did not confirm.
func Release(b *Bus, r robot.Robot) error {
	_ = stopWheels(b, r) // a wheel that misses the torque-off frame at least stops
	ids, row := r.IDs(), r.Motors[0].Model.Row(table.TorqueEnable)
	var names []string
	garbled := false
	for _, i := range setAll(b, row, ids, make([]int, len(ids))) {
		// Every reachable motor is limp by now, so there is time for slower attempts: the adapter
		// may be slow, or the motor may answer only pings.
		AnswerReads(b, r.ServosOf(ids[i]))
		_ = b.WriteRegister(ids[i], row, 0) // a motor may obey without an acknowledgement
		on, _, err := b.ReadRegister(ids[i], row)
		if err == nil && on == 0 {
			continue
		}
		garbled = garbled || errors.Is(err, ErrGarbled)
		names = append(names, fmt.Sprintf("motor %d (%s)", ids[i], r.ServosOf(ids[i])[0].Name))
	}
	b.tx = b.format.AppendWrite(b.tx[:0], Broadcast, row.Addr, make([]byte, row.Size))
	b.send(b.tx)
	cure := "switch off the motors' supply"
	switch len(names) {
	case 0:
		return nil
	case len(ids):
		cure += ", or repeat it with the arm's --robot where it is no " + r.Name
	}
	if garbled {
		cure += "; replies were garbled, so two motors may have the same id (edge-rt scan)"
	}
	return fmt.Errorf("%w: %s did not confirm; %s", ErrTorque, strings.Join(names, ", "), cure)
}

func (a *Arm) motors(index []int) string {
	names := make([]string, len(index))
	for k, i := range index {
		names[k] = fmt.Sprintf("%d (%s)", a.units[i].id, a.units[i].name)
	}
	return fmt.Sprintf("motor %s on %s", strings.Join(names, ", "), a.path)
}

// checkDriveable fails when a motor's goals would not be positions in counts. It notes a weak
// motor, but does not change the limit in its EEPROM, which may be on purpose.
func (a *Arm) checkDriveable(i int) error {
	u := a.units[i]
	m := a.robot.Motors[u.joint]
	if a.robot.Leader && !a.robot.Actuated && m.Trigger == nil {
		return nil // a motor that a person moves gets no goals
	}
	for _, d := range doubts {
		if _, given := m.Setting(d.register); !u.model.Has(d.register) || given {
			continue
		}
		got, err := a.read(u, d.register)
		switch {
		case err != nil:
			return err
		case !d.is(u.model, got):
		case d.refused:
			return a.refuse(ErrSetting, u, " has %s %d: %s", d.register, got, d.why)
		default:
			a.note(u, " has %s %d: %s", d.register, got, d.why)
		}
	}
	return nil
}

// doubt is a register value with which a motor cannot be driven, or only badly.
type doubt struct {
	register table.Register
	is       func(m *table.Model, v int) bool
	refused  bool
	why      string
}

var doubts = []doubt{
	{table.OperatingMode, func(m *table.Model, v int) bool {
		if m.Protocol == table.Dynamixel2 {
			return v != table.ModePosition && v != table.ModeExtendedPosition && v != table.ModeCurrentPosition
		}
		return v != 0
	}, true, "it does not go to positions; put Operating_Mode under settings in the robot's description"},
	{table.AngularResolution, func(_ *table.Model, v int) bool {
		return v > 1
	}, true, "its positions are no counts of 4096 to a turn; write 1 to it"},
	{table.MaxTorqueLimit, func(_ *table.Model, v int) bool {
		return v < fullLoad/2
	}, false, "it has less than half of its torque; other software may have left that"},
	{table.PWMLimit, func(_ *table.Model, v int) bool {
		return v < fullPWM/2
	}, false, "it has less than half of its torque; other software may have left that"},
	{table.CurrentLimit, func(m *table.Model, v int) bool {
		return float64(v)*m.CurrentMA < weakMA
	}, false, "it has hardly any torque; other software may have left that"},
	{table.PCoefficient, func(_ *table.Model, v int) bool {
		return v == 0
	}, false, "it does not go to its goals; factory motors have 32"},
	{table.PositionPGain, func(_ *table.Model, v int) bool {
		return v == 0
	}, false, "it does not go to its goals; switch its supply off and on"},
}

const (
	fullPWM = 885   // largest PWM_Limit of an X servo
	weakMA  = 200.0 // milliamperes with which an arm's joint hardly moves
)

// armWheels is the step of arming that sets the wheels' goal velocities to 0.
func (a *Arm) armWheels() error {
	m := &a.arming
	for _, u := range m.units[m.goals : m.goals+m.spins] {
		a.goals.raw[a.units[u].joint] = 0
	}
	return a.sendArming(a.rows.spin, m.goals, make([]int, m.spins), stageSpinCheck)
}

// stopLeft stops a wheel that a killed run or other software has left turning under torque. It writes no goal
// to a limp wheel, since a goal may switch its torque on; arming sets that goal to 0.
func (a *Arm) stopLeft(u unit, stiff bool) error {
	if !stiff {
		return nil
	}
	got, err := a.read(u, table.GoalVelocity)
	if err != nil || got == 0 {
		return err
	}
	a.note(u, " was left turning with Goal_Velocity %d; it is stopped", got)
	return a.write(u, a.rows.spin, 0)
}

// stopWheels sends a goal velocity of 0 to all wheels of a robot. No servo acknowledges it.
func stopWheels(b *Bus, r robot.Robot) error {
	var ids []ID
	for _, m := range r.Motors {
		if m.Norm == robot.Velocity {
			ids = append(ids, m.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return b.syncWrite(r.Motors[0].Model.Row(table.GoalVelocity), ids, make([]int, len(ids)))
}
