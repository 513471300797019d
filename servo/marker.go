package servo

import (
	"slices"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// A restart marker is a value that we write into a register in RAM. At power-up the servo replaces
// the marker by the value in its EEPROM. Torque_Enable alone does not reveal a restart: a goal
// write switches some servos' torque on again, and some boot with torque. The marker lowers the
// limit of the torque by one or two thousandths.
//
// Source: Feetech STS3215 memory table, registers 16 and 48; ROBOTIS e-manual, Goal PWM(100),
// Torque Limit(34).
var markerRegisters = map[table.Protocol]struct{ ram, boot table.Register }{
	table.Feetech:    {table.TorqueLimit, table.MaxTorqueLimit},
	table.Dynamixel1: {table.TorqueLimit, table.MaxTorqueLimit},
	table.Dynamixel2: {table.GoalPWM, table.PWMLimit},
}

// markers holds the markers of motors that were under torque when the arm was opened. They are
// written during the arming.
type markers struct {
	pending []expectedRegister
	units   []int // the unit of each pending register
	next    int   // index in pending of the register to check next
	rounds  int
}

// expectedRegister is the value that a register in RAM holds until the servo restarts.
type expectedRegister struct {
	row   table.Row
	value int
}

// markerOf returns the marker of a unit. ok is false for a leader that gets no torque and counts no
// turns, and for models without a marker register.
func (a *Arm) markerOf(u unit) (s robot.Setting, ok bool, err error) {
	r, known := markerRegisters[a.bus.protocol]
	needs := !a.robot.Leader || a.robot.Actuated || a.bus.protocol == table.Dynamixel2
	if !known || !needs || !u.model.Has(r.ram) || !u.model.Has(r.boot) {
		return s, false, nil
	}
	boot, err := a.setting(u, r.boot) // where the robot's settings have a value, the EEPROM will hold it
	if err != nil {
		return s, false, err
	}
	value := boot
	if v, given := a.robot.Motors[u.joint].Setting(r.ram); given {
		value = v
	}
	if value--; value == boot {
		value--
	}
	return robot.Setting{Register: r.ram, Value: value}, value > 0, nil
}

// wanted returns the settings that a motor runs with, including its marker.
func (a *Arm) wanted(u unit) (want []robot.Setting, err error) {
	m := a.robot.Motors[u.joint]
	want = slices.Clone(m.Settings)
	if u.shadow {
		want = append([]robot.Setting{{Register: table.SecondaryID, Value: int(m.ID)}}, want...)
	}
	marker, ok, err := a.markerOf(u)
	if err != nil || !ok {
		return want, err
	}
	want = slices.DeleteFunc(want, func(s robot.Setting) bool { return s.Register == marker.Register })
	return append(want, marker), nil
}

// expectSettings notes which values the unit's registers in RAM must hold from now on. It leaves
// out registers outside all health windows, and deferred changes.
func (a *Arm) expectSettings(u int, want, deferred []robot.Setting) {
	h, model := a.health, a.units[u].model
	for _, s := range want {
		row := model.Row(s.Register)
		if row.Area != table.RAM || slices.Contains(deferred, s) ||
			!slices.ContainsFunc(h.windows, func(w window) bool {
				return w.unit == u && w.covers(row)
			}) {
			continue
		}
		h.readings[u].expected = append(h.readings[u].expected, expectedRegister{row, s.Value})
	}
}

// deferMarker moves the marker from the changes of a motor that is under torque to markers.pending,
// and returns the other changes.
func (a *Arm) deferMarker(i int, changes []robot.Setting) (others []robot.Setting) {
	marker := markerRegisters[a.bus.protocol].ram
	for _, s := range changes {
		if s.Register != marker {
			others = append(others, s)
			continue
		}
		a.markers.pending = append(a.markers.pending, expectedRegister{a.units[i].model.Row(marker), s.Value})
		a.markers.units = append(a.markers.units, i)
	}
	return others
}

func (a *Arm) sendMarkers() error {
	ids, words := make([]ID, 0, len(a.markers.pending)), make([]int, 0, len(a.markers.pending))
	for k, i := range a.markers.units {
		ids, words = append(ids, a.units[i].id), append(words, a.markers.pending[k].value)
	}
	return a.bus.syncWrite(a.markers.pending[0].row, ids, words)
}

const markerTries = 10

// checkMarker reads back one marker per call, and reports whether all pending markers were read in this round. ArmStep
// then writes the missing markers again. After markerTries rounds checkMarker gives up on a missing marker; a restart
// of that motor is then detected less reliably.
func (a *Arm) checkMarker(deadline rt.Instant) (done bool) {
	m := &a.markers
	k, i := m.pending[m.next], m.units[m.next]
	check := a.bus.newReadback(k.row, []ID{a.units[i].id})
	least := a.clock.Now().Add(check.wire + a.bus.replyDelay + lossWait)
	bad := a.bus.readBack(check, k.row, []int{k.value}, confirmTimeout, max(deadline, least))
	switch u := &a.health.readings[i]; {
	case len(bad) == 0:
		u.expected = append(u.expected, k)
		fallthrough
	case m.rounds >= markerTries:
		m.pending, m.units = slices.Delete(m.pending, m.next, m.next+1), slices.Delete(m.units, m.next, m.next+1)
	default:
		m.next++
	}
	if m.next < len(m.pending) {
		return false
	}
	m.next = 0
	m.rounds++
	return true
}

// checkRestarted notes the joint of a motor as restarted when the motor, which this process has opened before, has lost
// its marker or cannot have one.
func (a *Arm) checkRestarted(i int) error {
	u := a.units[i]
	marker, ok, err := a.markerOf(u)
	if err != nil {
		return err
	}
	if ok {
		got, err := a.read(u, marker.Register)
		if err != nil {
			return err
		}
		ok = got == marker.Value
	}
	if !ok {
		a.health.restarted |= 1 << u.joint
		if a.restartedOut != nil {
			// OpenArm now writes the settings anew, so a later check cannot find the restart
			*a.restartedOut |= 1 << u.joint
		}
	}
	return nil
}

// Restarted returns the joints with a motor that has restarted since it got its marker, and forgets them: the
// motor has lost the settings that are not in its EEPROM, and may have moved or slumped. With
// ArmConfig.Reopened, the first call also returns the joints whose motor had restarted before OpenArm.
//
//rt:noalloc
func (a *Arm) Restarted() (joints robot.Joints) {
	joints, a.health.restarted = a.health.restarted, 0
	return joints
}
