package servo

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

func (l *line) openRobot(t *testing.T, name string) (*Arm, error) {
	t.Helper()
	r := rttest.Must(robot.ByName(name))(t)
	c := Calibration{}
	for _, m := range r.Motors {
		c[m.Name] = MotorCalibration{ID: int(m.ID), RangeMax: 4095}
	}
	return OpenArm(ArmConfig{Path: "fake", Robot: r, Calibration: c, Clock: l.Clock, Port: l})
}

// Goal: values in RAM that other software left and that make a follower slow are corrected and
// reported, in a limp motor at once and in a motor under torque after the arming.
func TestLimitsThatWereLeft(t *testing.T) {
	for _, tt := range []struct {
		name           string
		at, left, want int
		robot          string
		phase          byte
		reported       bool
	}{
		{"a speed of 0 that is a stop", 46, 0, 3400, "so101", 4, true},
		{"a speed of 0 that is the highest", 46, 0, 0, "so101", 12, false},
		{"a low speed", 46, 300, 3400, "so101", 12, true},
		{"the speed of a rescue", 46, 113, 3400, "so101", 12, true},
		{"a low speed in coarse steps", 46, 5, 68, "so101", 8, true},
		{"a speed that is enough", 46, 2400, 2400, "so101", 12, false},
		{"a goal time", 44, 5000, 0, "so101", 12, true},
		{"an acceleration", 41, 3, 0, "generic", 12, true},
		{"an acceleration that is enough", 41, 200, 200, "generic", 12, false},
		{"a speed that an actuated leader cannot lift itself with", 46, 0, 3400, "so101_leader", 4, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, stiff := range []bool{false, true} {
				l := sixMotors()
				for _, s := range l.servos {
					s.put(46, 3400)
					s.mem[18] = tt.phase
				}
				s := l.servos[2]
				if s.mem[tt.at] = byte(tt.left); tt.at != 41 {
					s.put(tt.at, tt.left)
				}
				if stiff {
					s.mem[40] = 1
				}
				a := rttest.Must(l.openRobot(t, tt.robot))(t)
				register := func() int {
					if tt.at == 41 {
						return int(s.mem[41])
					}
					return s.word(tt.at)
				}
				want := tt.want
				if stiff && !a.robot.Leader {
					want = tt.left
				}
				rttest.Want(t, register(), want, "stiff %v: after the opening", stiff)
				notes := strings.Join(a.Notes(), "\n")
				if strings.Contains(notes, "motor 2 (") != tt.reported && !(stiff && a.robot.Leader) {
					t.Errorf("stiff %v: it reports %q", stiff, notes)
				}
				arm(t, a)
				rttest.Want(t, register(), tt.want, "stiff %v: when it is armed", stiff)
			}
		})
	}
}

// Goal: when the correction of a limit that other software left in a motor under torque is not acknowledged at the end
// of the arming, the next arming corrects it.
func TestALimitThatWasLeftIsNotForgotten(t *testing.T) {
	l := sixMotors()
	l.stiffen(1)
	for _, s := range l.servos {
		s.put(46, 3400)
	}
	l.servos[2].put(46, 300)
	a := l.mustOpen(t)
	l.tamper = func(r []byte) []byte {
		if q := l.log[len(l.log)-1]; q[4] == 3 && q[5] == 46 {
			l.servos[2].put(46, 300)
			return nil
		}
		return r
	}
	rttest.Fails(t, a.TorqueOn(), "Goal_Velocity")
	l.tamper = nil
	l.stiffen(1)
	arm(t, a)
	rttest.Want(t, l.servos[2].word(46), 3400, "the velocity after the second arming")
}

// Goal: OpenArm makes a leader limp that boots with torque or was left under torque, and writes all
// of its settings. A follower keeps its torque.
func TestStiffLeaderIsLetGo(t *testing.T) {
	for _, name := range []string{"so101_leader", "so101"} {
		for _, torque := range []byte{1, 2} { // 2 is damping
			l := sixMotors()
			l.stiffen(torque)
			a := rttest.Must(l.openRobot(t, name))(t)
			leader := name != "so101"
			for id, s := range l.servos {
				rttest.Want(t, s.mem[40] == 0, leader, "%s, motor %d: limp", name, id)
			}
			if told := strings.Contains(strings.Join(a.Notes(), "\n"),
				"motor 6 (gripper) of the leader was under torque"); told != leader || leader &&
				len(a.Unconfigured()) > 0 {
				t.Errorf("%s: notes %q, unconfigured %v", name, a.Notes(), a.Unconfigured())
			}
		}
	}
}

// Goal: OpenArm reports a motor with little torque, and refuses a motor whose goals are not positions in counts.
func TestMotorsThatAreHardlyDriven(t *testing.T) {
	for _, tt := range []struct {
		name    string
		at, v   int
		words   string
		refused bool
	}{
		{"little torque", 16, 100, "motor 2 (shoulder_lift) has Max_Torque_Limit 100", false},
		{"half of it", 16, 500, "", false},
		{"coarse positions", 30, 3, "Angular_Resolution 3", true},
		{"factory", 30, 1, "", false},
	} {
		l := sixMotors()
		for _, s := range l.servos {
			s.put(46, 3400)
		}
		l.servos[2].put(tt.at, tt.v)
		a, err := l.openRobot(t, "so101")
		switch {
		case errors.Is(err, ErrSetting) != tt.refused:
			t.Errorf("%s: %v", tt.name, err)
		case tt.refused && !rttest.Says(err, tt.words):
			t.Errorf("%s: %v", tt.name, err)
		case !tt.refused && (tt.words == "") != (len(a.Notes()) == 0), !tt.refused &&
			!strings.Contains(strings.Join(a.Notes(), "\n"), tt.words):
			t.Errorf("%s: notes %q", tt.name, a.Notes())
		}
	}
	for v, refused := range map[int]bool{0: true, 1: true, 3: false, 4: false, 5: false, 16: true} {
		i := slices.IndexFunc(doubts, func(d doubt) bool { return d.register == table.OperatingMode })
		m, _ := table.ByName("xl330-m288")
		if doubts[i].is(m, v) != refused {
			t.Errorf("Operating_Mode %d of an X servo: refused %v, want %v", v, !refused, refused)
		}
	}
}

// Goal: OpenArm does not write the EEPROM of a Feetech, which contains the status return level,
// before it has read the model. A Feetech that answers pings but not reads has a bad cable.
func TestFeetechThatAnswersPingsOnlyIsLeftAlone(t *testing.T) {
	l := sixMotors()
	l.tamper = func(reply []byte) []byte {
		if reply[2] == 3 && len(reply) > 6 {
			return nil
		}
		return reply
	}
	_, err := l.openRobot(t, "so101")
	rttest.FailsAs(t, err, ErrNoReply, "motor 3")
	for _, request := range l.log {
		if request[2] == 3 && request[4] == 3 {
			t.Errorf("% x was written to it", request)
		}
	}
}
