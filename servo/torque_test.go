package servo

import (
	"errors"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestTorqueOnHoldsThePresentPosition(t *testing.T) {
	a, l := openLine(t)
	l.servos[2].put(56, 0x8005) // a position five steps below zero, as the register encodes it
	start := l.Now()
	arm(t, a)
	took := l.Now().Sub(start)
	goal, torque := -1, -1
	for i, req := range l.log {
		switch {
		case req[4] == 0x83 && req[5] == 42 && goal < 0:
			goal = i
		case (req[4] == 0x83 || req[4] == 3) && req[5] == 40 && torque < 0:
			torque = i
		}
	}
	if goal < 0 || torque < goal {
		t.Errorf("goal was request %d, torque %d, want goal first: % X", goal, torque, l.log)
	}
	for id, s := range l.servos {
		at := s.word(56)
		if id == 2 {
			at = 0 // the nearest goal that the joint may get
		}
		if s.mem[40] != 1 || s.word(42) != at || s.mem[55] != 1 {
			t.Errorf("motor %d: torque %d, goal %d at %d, lock %d, want 1, %d, 1", id, s.mem[40], s.word(42),
				s.word(56), s.mem[55], at)
		}
	}
	if took > 6*time.Millisecond {
		t.Errorf("TorqueOn took %v, want at most 6ms: it happens within a tick", took)
	}
}

func TestTorqueOnFailsWhole(t *testing.T) {
	a, l := openLine(t)
	for id := range 6 {
		l.servos[id+1].mem[40] = 0
	}
	l.servos[4].mute = true
	rttest.FailsAs(t, a.TorqueOn(), ErrMotorMissing, "4 (wrist_flex)")
	for id, s := range l.servos {
		if s.mem[40] != 0 {
			t.Errorf("motor %d is under torque, want none", id)
		}
	}
}

func TestTorqueOff(t *testing.T) {
	for _, tt := range []struct {
		name     string
		set      func(*line)
		wantErr  string
		wantLeft []int // ids of the motors that may still be under torque
	}{
		{"all answer", func(*line) {}, "", nil},
		{"a fault is no failure", func(l *line) { l.servos[6].err = 0x20 }, "", nil},
		{"the frame is lost twice", func(l *line) { l.servos[3].muteTimes = 2 }, "", nil},
		{"replies are lost in the group and alone", func(l *line) { l.servos[3].muteTimes = 4 }, "", nil},
		{"one motor is silent", func(l *line) {
			l.servos[2].mute = true
		}, "motor 2 (shoulder_lift) on fake may still be under torque", []int{2}},
		{"two motors are silent", func(l *line) {
			l.servos[2].mute, l.servos[6].mute = true, true
		}, "motor 2 (shoulder_lift), 6 (gripper)", []int{2, 6}},
		{"after noise", func(l *line) { l.noise(0xFF, 0xFF, 1, 3, 0, 0, 0xFB) }, "", nil},
		{"all silent", func(l *line) {
			for _, s := range l.servos {
				s.mute = true
			}
		}, "1 (shoulder_pan), 2 (shoulder_lift), 3 (elbow_flex)", []int{1, 2, 3, 4, 5, 6}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, l := armedLine(t)
			a.bus.drainNext, a.bus.lost = drainCount, true // the state after an error
			tt.set(l)
			start := l.Now()
			err := a.TorqueOff()
			took := l.Now().Sub(start)
			if tt.wantErr == "" && err != nil || tt.wantErr != "" &&
				(!errors.Is(err, ErrTorque) || !rttest.Says(err, tt.wantErr)) {
				t.Errorf("TorqueOff = %v, want %q", err, tt.wantErr)
			}
			left := map[int]bool{}
			for _, id := range tt.wantLeft {
				left[id] = true
			}
			for id, s := range l.servos {
				rttest.Want(t, s.mem[40] != 0, left[id], "motor %d under torque", id)
			}
			if took > 200*time.Millisecond {
				t.Errorf("took %v, want at most 200ms", took)
			}
		})
	}
}

func TestTorqueOffOnADeadPort(t *testing.T) {
	a, l := openLine(t)
	l.dead = true
	rttest.FailsAs(t, a.TorqueOff(), ErrTorque, "6 (gripper)")
}

// Goal: OpenArm leaves torque as it is, so that an arm under torque does not fall.
func TestOpenLeavesTorqueAlone(t *testing.T) {
	for _, torque := range []byte{0, 1} {
		l := sixMotors()
		l.stiffen(torque)
		a := l.mustOpen(t)
		for _, req := range l.log {
			writes := req[4] == 3 || req[4] == 0x83
			if writes && (req[5] == 40 || req[5] == 42) {
				t.Errorf("torque %d: OpenArm sent % X, which touches torque or goal", torque, req)
			}
			if writes && torque == 1 {
				t.Errorf("OpenArm sent % X to a motor under torque, want no write", req)
			}
		}
		if want := 6 * int(torque); len(a.Unconfigured()) != want {
			t.Errorf("torque %d: Held() = %v, want %d motors", torque, a.Unconfigured(), want)
		}
	}
}

// Goal: a motor that acknowledges no write, as other software may have left it, and that missed the frame for all
// motors counts as limp once its Torque_Enable reads back as 0.
func TestReleaseNeedsNoAcknowledgement(t *testing.T) {
	l := sixMotors()
	l.stiffen(1)
	l.servos[3].muteTimes = 2 * offRounds
	l.tamper = func(reply []byte) []byte {
		if reply[2] == 3 && len(reply) == 6 {
			return nil
		}
		return reply
	}
	rttest.Do(t, Release(l.bus(), so101()))
}

// Release makes two motors with the same id limp, too. They cannot confirm it, and the error names the cause.
func TestReleaseOfTwoMotorsOfOneID(t *testing.T) {
	l := sixMotors()
	l.stiffen(1)
	l.tamper = onlyFor(3, func(r []byte) []byte { r[len(r)-1]++; return r })
	err := Release(l.bus(), so101())
	rttest.FailsAs(t, err, ErrTorque, "motor 3 (elbow_flex) did not confirm", "two motors may have the same id")
	for id, s := range l.servos {
		rttest.Want(t, s.mem[40], 0, "torque of motor %d", id)
	}
}
