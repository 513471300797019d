package servo

import (
	"errors"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// Goal: when OpenArm fails after it has written the markers, the restarted motors are still
// reported.
func TestRestartSurvivesAFailedOpening(t *testing.T) {
	l := sixMotors()
	l.mustOpen(t)
	mark := l.servos[6].word(48)
	l.servos[6].put(48, 500) // power cycle of all motors
	for id := 1; id <= 5; id++ {
		l.servos[id].put(48, 1000)
	}
	cfg := l.config()
	cfg.Reopened, cfg.Restarted = true, new(robot.Joints)
	// OpenArm fails after the marker is written, as with a loose plug or a lost reply
	cfg.Canceled = func() bool { return l.servos[6].word(48) == mark }
	if _, err := OpenArm(cfg); err == nil {
		t.Fatal("opened")
	}
	cfg.Canceled = nil
	a := rttest.Must(OpenArm(cfg))(t)
	rttest.Want(t, a.Restarted()|*cfg.Restarted, 63, "restarted (all: they were power cycled)")
}

// Goal: motors that were under torque when the arm was opened get their goal before the marker,
// because the marker lets an AX that has shut down move again.
func TestGoalBeforeMarker(t *testing.T) {
	l := sixMotors()
	l.stiffen(1)
	a := l.mustOpen(t)
	l.forget()
	arm(t, a)
	goal := false
	for _, f := range l.log {
		if f[4] == 0x83 && f[5] == 42 {
			goal = true
		}
		if f[4] == 0x83 && f[5] == 48 && !goal {
			t.Error("the torque limit is written before goal := present")
		}
	}
}

// Goal: a marker that is lost on the line is sent again.
func TestLostMarker(t *testing.T) {
	l := sixMotors()
	for _, s := range l.servos {
		s.mem[40] = 1
		s.mem[41], s.mem[85] = 254, 254
	}
	a := l.mustOpen(t)
	t.Log("held", a.Unconfigured(), "unmarked", a.markers.units)
	armed, lost := false, false
	for n := 0; !armed && n < 200; n++ {
		l.tick(a)
		l.servos[3].mute = a.arming.stage == stageMarker && !lost // motor 3 does not get the first marker
		lost = lost || a.arming.stage == stageMarker
		var err error
		armed, err = a.ArmStep(l.deadline(), a.Joints())
		l.servos[3].mute = false
		rttest.Do(t, err)
	}
	has := false
	for _, k := range a.health.readings[2].expected {
		has = has || k.row.Register == table.TorqueLimit
	}
	if !has {
		t.Errorf("motor 3 has no mark after arming: kept %v, register %d", a.health.readings[2].expected,
			l.servos[3].word(48))
	}
}

// narrowElbow returns an arm whose third motor has a calibrated range of 1500 to 2500; if eeprom is true, the motor's
// EEPROM has this range, too. The parameter at is the motor's position; 0: the fake servo's own position.
func narrowElbow(t *testing.T, eeprom bool, at int) (*Arm, *line) {
	t.Helper()
	l := sixMotors()
	cfg := l.config()
	cfg.Calibration["elbow_flex"] = MotorCalibration{ID: 3, RangeMin: 1500, RangeMax: 2500}
	if eeprom {
		l.servos[3].put(9, 1500)
		l.servos[3].put(11, 2500)
	}
	if at != 0 {
		l.servos[3].put(56, at)
	}
	a := rttest.Must(OpenArm(cfg))(t)
	return a, l
}

// Goal: the arming fails when a joint leaves its range.
func TestLeavesItsRangeWhileArming(t *testing.T) {
	for _, eeprom := range []bool{false, true} {
		a, l := narrowElbow(t, eeprom, 0)
		if err := l.arming(a, func() {
			if a.arming.stage == stageMarker {
				l.servos[3].put(56, 2900) // a limp arm slumps
			}
		}); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("eeprom %v: 400 counts outside, and %v", eeprom, err)
		}
	}
}

// Goal: a joint under torque that sinks when its position becomes its goal is armed nevertheless; a limp
// joint that sinks is armed once it rests.
func TestArmsAJointThatSinks(t *testing.T) {
	for _, stiff := range []byte{0, 1} {
		l := sixMotors()
		l.servos[3].mem[40] = stiff
		a := rttest.Must(OpenArm(l.config()))(t)
		at, moved := l.servos[3].word(56), false
		err := l.arming(a, func() {
			at = max(at-10, 1500)
			l.servos[3].put(56, at)
			moved = moved || a.MovedWhileArming().Has(2)
		})
		if err != nil || moved != (stiff == 0) {
			t.Errorf("torque %d: %v, the motion stopped the arming %v", stiff, err, moved)
		}
	}
}

// Goal: a joint that rests 12 counts (less than RangeSlack) beyond the range in its servo's EEPROM
// is armed.
func TestRestsAgainstItsStop(t *testing.T) {
	a, l := narrowElbow(t, true, 2512)
	if err := l.arming(a, func() {}); err != nil {
		t.Errorf("%v, outside %b", err, a.OutOfRange())
	}
}

// Goal: a servo without a marker counts as restarted when it got no request for a second, as during a suspend.
func TestWithoutAMarkerAfterAPause(t *testing.T) {
	a, l := armedLine(t)
	for i := range a.health.readings {
		a.health.readings[i].expected = nil
	}
	l.read(a)
	l.Advance(time.Second)
	for range 5 {
		l.tick(a)
	}
	if a.Unchecked() != 0 || a.Restarted() != 63 {
		t.Errorf("doubted %06b and not taken for restarted after a second that nobody asked", a.Unchecked())
	}
}

// Goal: the effort of a motor without a load register is computed from its current.
func TestEffortOfAKochGripper(t *testing.T) {
	l := link(t, 16*time.Millisecond)
	a := l.arm
	a.health.readings[5].currentMax = 1750 // the fake servo lacks the register of this limit
	for i := range a.health.windows {
		w := &a.health.windows[i]
		m := a.units[w.unit].model
		if row := m.Row(table.PresentCurrent); w.unit == 5 && w.covers(row) {
			at := row.Addr - w.group.addr
			w.group.data[at], w.group.data[at+1] = 0xD6, 0x06 // 1750, an XL330's Current_Limit
			a.health.recordEffort(w, &a.health.readings[5])
		}
	}
	if a.Effort(5, 0) < 0.9 {
		t.Errorf("effort %v at the current limit: it never stalls", a.Effort(5, 0))
	}
}
