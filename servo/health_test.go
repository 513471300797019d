package servo

import (
	"errors"
	"testing"
	"time"

	"edgert/servo/robot"
)

// reads makes n cycles, 10 ms apart.
func reads(a *Arm, l *line, n int) {
	dst := make([]float32, 6)
	for range n {
		a.Read(dst, l.deadline())
		l.clock.Advance(10 * time.Millisecond)
	}
}

// A complaint counts when it stays, and is forgotten when it goes.
func TestOverloadHoldsTheJoint(t *testing.T) {
	a, l := openLine(t)
	if err := a.TorqueOn(); err != nil {
		t.Fatal(err)
	}
	l.servos[6].err = byte(FaultOverload)
	reads(a, l, persistent-1)
	if a.Hold() != 0 {
		t.Errorf("Hold = %06b after %d reads, want a complaint to stay first", a.Hold(), persistent-1)
	}
	reads(a, l, 1)
	if a.Hold() != 1<<5 || a.Fatal() != nil {
		t.Errorf("Hold = %06b, Fatal %v, want the gripper held and no more", a.Hold(), a.Fatal())
	}
	l.servos[6].err = 0
	reads(a, l, 1)
	if a.Hold() != 0 {
		t.Errorf("Hold = %06b after the complaint has gone", a.Hold())
	}
}

func TestReactions(t *testing.T) {
	tests := []struct {
		name  string
		fault Fault
		set   func(*robot.Safety)
		hold  uint32
		stop  bool
		limp  bool
	}{
		{"overheat stops", FaultTemperature, func(*robot.Safety) {}, 0, true, false},
		{"voltage holds", FaultVoltage, func(*robot.Safety) {}, 4, false, false},
		{"encoder stops", FaultEncoder, func(*robot.Safety) {}, 0, true, false},
		{"the hardest of two wins", FaultVoltage | FaultTemperature, func(*robot.Safety) {}, 0, true, false},
		{"ignored", FaultOverload, func(s *robot.Safety) { s.Overload = robot.Ignore }, 0, false, false},
		{"limp", FaultOverload, func(s *robot.Safety) { s.Overload = robot.Limp }, 4, false, true},
	}
	for _, tt := range tests {
		a, l := openLine(t)
		if err := a.TorqueOn(); err != nil {
			t.Fatal(err)
		}
		tt.set(&a.robot.Safety)
		l.servos[3].err = byte(tt.fault)
		reads(a, l, persistent+1)
		if a.Hold() != tt.hold || (a.Fatal() != nil) != tt.stop {
			t.Errorf("%s: Hold %06b, Fatal %v, want %06b, %v", tt.name, a.Hold(), a.Fatal(), tt.hold, tt.stop)
		}
		if tt.stop && !errors.Is(a.Fatal(), tt.fault) {
			t.Errorf("%s: Fatal = %v, want the fault in it", tt.name, a.Fatal())
		}
		if limp := l.servos[3].mem[40] == 0; limp != tt.limp || l.servos[2].mem[40] == 0 {
			t.Errorf("%s: limp %v, want %v and the others under torque", tt.name, limp, tt.limp)
		}
		if tt.limp { // for good: it does not take the load up again by itself
			l.servos[3].err = 0
			reads(a, l, 200)
			if a.Hold() != tt.hold || a.TorqueGone() {
				t.Errorf("%s: Hold %06b, torque gone %v, want it to stay as it is", tt.name, a.Hold(), a.TorqueGone())
			}
		}
	}
}

// A motor that restarts is limp and silent about it.
func TestTorqueThatIsGoneIsNoticed(t *testing.T) {
	a, l := openLine(t)
	reads(a, l, 100)
	if a.TorqueGone() {
		t.Error("a limp arm that was never armed counts as restarted")
	}
	if err := a.TorqueOn(); err != nil {
		t.Fatal(err)
	}
	reads(a, l, 100)
	if a.TorqueGone() {
		t.Error("torque counts as gone, and is on")
	}
	l.servos[4].mem[40] = 0
	reads(a, l, 100) // a second
	if !a.TorqueGone() {
		t.Error("a motor without torque was not noticed in a second")
	}
	if err := a.TorqueOff(); err != nil {
		t.Fatal(err)
	}
	reads(a, l, 100)
	if a.TorqueGone() {
		t.Error("torque that was switched off counts as gone")
	}
}

func TestClimate(t *testing.T) {
	a, l := openLine(t)
	for id := 1; id <= 6; id++ {
		l.servos[id].mem[62], l.servos[id].mem[63] = byte(70+id), byte(30+id)
	}
	reads(a, l, 100)
	if hot, volts := a.Climate(); hot != 36 || volts != 7.1 {
		t.Errorf("Climate = %v, %v, want 36, 7.1", hot, volts)
	}
}
