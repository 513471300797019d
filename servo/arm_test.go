package servo

import (
	"errors"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/table"
)

func TestOpenConfiguresOnce(t *testing.T) {
	l := sixMotors()
	l.servos[2].mem[18] = 12 | 0x10
	l.mustOpen(t)
	for id, s := range l.servos {
		gripper := [4]int{1000, 0, 0, 999} // the last is the marker
		if id == 6 {
			gripper = [4]int{500, 250, 25, 499}
		}
		rttest.Want(t, [4]int{s.word(16), s.word(28), int(s.mem[36]), s.word(48)}, gripper,
			"motor %d: torque limit, current, overload, limit now", id)
		if s.mem[21] != 16 || s.mem[22] != 32 || s.mem[41] != 254 || s.mem[85] != 254 || s.mem[18] != 12 {
			t.Errorf("motor %d: P %d D %d acceleration %d maximum %d phase %d, want 16 32 254 254 12", id, s.mem[21],
				s.mem[22], s.mem[41], s.mem[85], s.mem[18])
		}
		if s.mem[55] != 1 || s.unlocked == 0 {
			t.Errorf("motor %d: lock %d, %d writes while unlocked, want 1 and some", id, s.mem[55], s.unlocked)
		}
	}
	l.forget()
	l.mustOpen(t)
	for _, req := range l.log {
		if req[4] == 3 || req[4] == 0x83 {
			t.Errorf("the second OpenArm wrote % X, want it to compare only: EEPROM wears", req)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(*line)
		want error
		text string
	}{
		{"one motor missing", func(l *line) { delete(l.servos, 3) }, ErrMotorMissing,
			"no reply from motor 3 (elbow_flex) on fake: answered 1 2 4 5 6; check its cable, power and id, and its " +
				"baud rate"},
		{"the chain broken", func(l *line) {
			delete(l.servos, 5)
			delete(l.servos, 6)
		}, ErrMotorMissing,
			"no reply from motor 5 (wrist_roll), 6 (gripper) on fake: answered 1 2 3 4; check the cable after motor " +
				"4 (wrist_flex)"},
		{"no motor", func(l *line) {
			clear(l.servos)
		}, ErrMotorMissing, "no motor answered at 1000000 baud; check the motors' power, the cable to the " +
			"first one, the baud rate and --robot"},
		{"two motors of one id", func(l *line) {
			l.tamper = onlyFor(2, func(r []byte) []byte { r[3] ^= 0x60; return r })
		}, ErrMotorMissing, "answered 1 3 4 5 6; the replies of id 2 were garbled, so two motors may have the same id"},
		{"two motors of one id, which another lacks", func(l *line) {
			delete(l.servos, 6)
			l.tamper = onlyFor(2, func(r []byte) []byte { r[3] ^= 0x60; return r })
		}, ErrMotorMissing, "answered 1 3 4 5; the replies of id 2 were garbled, so two motors may have the same id"},
		{"new motors, all of id 1", func(l *line) {
			l.servos = map[int]*fakeServo{1: l.servos[1]}
			l.tamper = func(r []byte) []byte { r[3] ^= 0x60; return r }
		}, ErrMotorMissing, "no motor answered at 1000000 baud; the replies of id 1 were garbled"},
		{"noise for every reply", func(l *line) {
			l.tamper = func(r []byte) []byte { r[3] ^= 0x60; return r }
		}, ErrMotorMissing, "no motor answered at 1000000 baud; check the motors' power"},
		{"two motors of one id whose answers to a ping are equal", func(l *line) {
			l.tamper = onlyFor(2, func(r []byte) []byte {
				if len(r) > 6 {
					r[5] ^= 0x60
				}
				return r
			})
		}, ErrGarbled, "motor 2 (shoulder_lift) on fake: read Model_Number of id 2: servo: garbled reply; check its " +
			"plugs, and whether two motors have the same id"},
		{"another model", func(l *line) {
			l.servos[4].put(3, 2825)
		}, ErrWrongModel, "motor 4 (wrist_flex) on fake: got model number 2825 (sts3250), want 777"},
		{"another homing offset", func(l *line) { l.servos[2].put(31, 0x0864) }, ErrCalibration,
			"motor 2 (shoulder_lift) on fake: the servo has homing offset -100 and range 0 to 4095, the file has 0 " +
				"and 0 to 4095"},
		{"other limits", func(l *line) {
			l.servos[2].put(9, 800)
			l.servos[2].put(11, 3000)
		}, ErrCalibration, "range 800 to 3000"},
		{"another joint's limits", func(l *line) {
			l.servos[2].put(9, 1000)
			l.servos[2].put(11, 3000)
		}, ErrCalibration, "that is gripper's in the file: the ids of the two may be exchanged"},
		{"a calibration with a name", func(l *line) {
			l.servos[2].put(9, 800)
		}, ErrCalibration, "(the calibration file is black.json)"},
		{"wheel mode under torque", func(l *line) {
			l.servos[1].mem[33], l.servos[1].mem[40] = 1, 1
		}, ErrTorqueOn, "motor 1 (shoulder_pan) on fake: wants Operating_Mode = 0"},
		{"a plug that was pulled", func(l *line) { l.dead = true }, ErrPortAbsent, "plug the adapter in again"},
		{"a plug that is pulled meanwhile", func(l *line) {
			l.tamper = onlyFor(4, func(r []byte) []byte { l.dead = true; return r })
		}, ErrPortAbsent, "motor 4 (wrist_flex) on fake: ping id 4: servo: port lost; plug the adapter in again"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := sixMotors()
			tt.set(l)
			a, err := l.open()
			if a != nil || !errors.Is(err, tt.want) || !rttest.Says(err, tt.text) {
				t.Errorf("OpenArm = %v, %v, want %v with %q", a, err, tt.want, tt.text)
			}
			for _, req := range l.log {
				if tt.want != ErrTorqueOn && (req[4] == 3 || req[4] == 0x83) {
					t.Errorf("OpenArm wrote % X to an arm it then refused", req)
				}
			}
		})
	}
}

func TestOpenAcceptsItsCalibration(t *testing.T) {
	l := sixMotors()
	l.servos[6].put(9, 1000) // position limits as edge-rt calibrate writes them
	l.servos[6].put(11, 3000)
	if _, err := l.open(); err != nil {
		t.Errorf("OpenArm with the file's limits in the servo = %v, want nil", err)
	}
}

func TestOpenRetriesALostReply(t *testing.T) {
	l := sixMotors()
	for _, s := range l.servos {
		s.muteTimes = 2
	}
	a := l.mustOpen(t)
	rttest.Want(t, a.Stats().Retries, 12, "counted retries")
}

// ReadRegister returns the value in the answer to the repeated request, although the reply to the first request comes
// after its time limit and has the same form.
func TestLateReplyIsNotTakenForTheNext(t *testing.T) {
	a, l := openLine(t)
	s := l.servos[2]
	s.put(48, 111)
	l.tamper = func(r []byte) []byte {
		if s.lateBy = 0; s.word(48) == 111 {
			s.lateBy = ackTimeout + time.Millisecond
			s.put(48, 222) // value in the second reply
		}
		return r
	}
	if got, _, err := a.bus.ReadRegister(2, so101().Motors[0].Model.Row(table.TorqueLimit)); got != 222 || err != nil {
		t.Errorf("ReadRegister = %d, %v, want 222: the first reply came too late", got, err)
	}
}

// Goal: when OpenArm clears a bit of Phase and one reading of Phase is damaged, the damaged value
// is never written into the EEPROM.
func TestPhaseIsReadTwice(t *testing.T) {
	const phase, wrong = 0x4C, 0x5D // with the wrong value a servo counts turns and drives in the other direction
	refused := false
	for nth := range 4 {
		l := sixMotors()
		l.servos[3].mem[18] = phase
		n := 0
		l.tamper = onlyFor(3, func(r []byte) []byte {
			if len(r) == 7 && r[5] == phase {
				if n == nth {
					r[5], r[6] = wrong, r[6]-(wrong-phase) // the checksum fits
				}
				n++
			}
			return r
		})
		a, err := OpenArm(l.config())
		if err == nil {
			a.Close()
		}
		refused = refused || rttest.Says(err, "Phase is 93, and then 76")
		rttest.Want(t, l.servos[3].mem[18], phase, "reading %d: Phase is after opening", nth)
	}
	if !refused {
		t.Error("no wrong reading was named")
	}
}

// The reasons of a refusal have a fixed order, so that the error has one text.
func TestARefusalHasOneText(t *testing.T) {
	for range 20 {
		got := refusal{table.Dynamixel1, 1<<1 | 1<<3 | 1<<6}.Error()
		rttest.Want(t, got, "refused: beyond the angle limits: value out of range: unknown instruction", "refusal")
	}
}
