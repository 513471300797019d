package servosim

import (
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestWhichGoalsEnableTorque(t *testing.T) {
	for _, tt := range []struct {
		name, model string
		cfg         Config
		want        bool
	}{
		{"an STS's", "sts3215", Config{}, true},
		{"an SMS's", "sm8512bl", Config{}, true},
		{"an STS's, the other reading", "sts3215", Config{GoalLeavesTorque: true}, false},
		{"not an X's", "xl430-w250", Config{}, false},
		{"an AX's", "ax-12a", Config{}, true},
		{"an AX's, whatever a Feetech does", "ax-12a", Config{GoalLeavesTorque: true}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := one(t, tt.model, tt.cfg)
			middle := s.place()
			s.set(s.at.goal, int64(middle+200))
			on := s.seen(s.at.torque) == torqueOn
			s.Advance(time.Second)
			moved := s.place() == middle+200
			if on != tt.want || moved != tt.want {
				t.Errorf("after a goal torque reads %v and the shaft moves: %v, want %v", on, moved, tt.want)
			}
		})
	}
}

// A servo whose supply has sagged to half of its volts, or below 4 V, has lost every value that was written to RAM. The
// test writes to every register a value that differs from its value after a boot.
func TestASupplyThatGoesLosesAllOfRAM(t *testing.T) {
	for i := range models {
		name := models[i].name
		t.Run(name, func(t *testing.T) {
			s := one(t, name, Config{})
			fresh := one(t, name, Config{})
			s.Advance(time.Second)
			changed := 0
			for _, r := range s.rows {
				a := int(r.addr)
				if a < s.eeprom || r.fixed() || a == s.at.torque || a >= xIndirect && s.series == seriesX {
					continue
				}
				v := fresh.get(a) + 3
				if r.lo != r.hi && v > r.hi {
					v = fresh.get(a) - 1
				}
				s.put(a, v)
				changed++
			}
			if changed < 4 {
				t.Fatalf("%d registers of RAM to change", changed)
			}
			s.set(s.at.torque, 1)
			volts := s.health.volts
			s.supply(min(3.5, volts/2))
			s.Advance(time.Second)
			if s.hears() || s.driven {
				t.Error("it hears or holds without a supply")
			}
			s.supply(volts)
			s.waits(s.bootTime() - 1)
			if s.hears() {
				t.Error("it hears before its boot is over")
			}
			s.waits(1)
			if !s.hears() {
				t.Error("it does not hear after its boot")
			}
			place := s.present(s.place())
			for _, r := range s.rows {
				a := int(r.addr)
				want := fresh.get(a)
				if a == s.at.goal {
					want = int64(place)
				}
				if !r.fixed() && s.get(a) != want {
					t.Errorf("register %d = %d after the supply was gone, want %d", a, s.get(a), want)
				}
			}
		})
	}
}

// After a boot, the registers on which a driver relies most have the values of the data sheets.
func TestWhatAServoBootsWith(t *testing.T) {
	s := one(t, "sts3215", Config{})
	s.set(55, 0)
	s.set(stsMaxTorque, 400)
	s.set(stsAcceleration, 9)
	s.set(stsGoalTime, 70)
	s.set(stsGoalVelocity, 70)
	s.set(stsGoal, 2300)
	s.Advance(time.Second)
	s.restart()
	for reg, want := range map[int]int64{stsTorqueLimit: 400, stsAcceleration: 0, stsGoalTime: 0,
		stsGoalVelocity: speedMax, 55: 1, stsTorque: 0, stsGoal: 2300} {
		rttest.Want(t, s.get(reg), want, "register %d after a restart", reg)
	}
	x := one(t, "xl430-w250", Config{})
	x.set(xLimitPWM, 500)
	for reg, v := range map[int]int64{xWatchdog: 5, xProfile: 30, xPositionP: 100, 65: 1, xGoalPWM: 100} {
		x.set(reg, v)
	}
	x.restart()
	for reg, want := range map[int]int64{xGoalPWM: 500, xWatchdog: 0, xProfile: 0, xPositionP: 640, 65: 0, xTorque: 0} {
		rttest.Want(t, x.get(reg), want, "X: register %d after a restart", reg)
	}
}

func TestAServoMayBootWithTorqueOn(t *testing.T) {
	for _, name := range []string{"sts3215", "xl430-w250", "ax-12a"} {
		s := one(t, name, Config{BootTorque: []uint8{1}})
		if s.mem[s.at.torque] != torqueOn || !s.driven {
			t.Errorf("%s: torque is off after power-up", name)
		}
		start := s.place()
		s.set(s.at.goal, int64(start+300))
		s.Advance(50 * time.Millisecond)
		s.supply(0)
		stood := s.place()
		s.supply(s.model.motor.Volts)
		if s.driven {
			t.Errorf("%s: the motor drives while it boots", name)
		}
		s.waits(s.bootTime())
		if s.mem[s.at.torque] != torqueOn || !s.driven {
			t.Errorf("%s: torque is off after a boot", name)
		}
		s.Advance(time.Second)
		if at := s.place(); at != stood || stood == start {
			t.Errorf("%s: went from %d to %d after the boot, want it to hold where it stood", name, stood, at)
		}
	}
	s := one(t, "sts3215", Config{BootTorque: []uint8{2}})
	if s.mem[stsTorque] != 0 || s.driven {
		t.Error("servo 1 boots with torque on, which only servo 2 is to do")
	}
}

// A servo with BootGoalZero moves to 0 when torque is switched on after a boot, unless its present
// position was written as the goal before. A servo that boots with torque holds its position.
func TestAServoMayBootWithAnEmptyGoal(t *testing.T) {
	s := one(t, "sts3215", Config{BootGoalZero: true})
	start := s.place()
	s.drive(start)
	s.Advance(time.Second)
	rttest.Want(t, s.place(), start, "with its goal written it goes to")
	s.restart()
	s.set(s.at.torque, 1)
	s.Advance(3 * time.Second)
	_, edge := s.goal()
	if at := s.place(); s.get(s.at.goal) != 0 || at != edge || at > 20 {
		t.Errorf("with torque on it stands at %d, its goal reads %d, want the end of its range and 0", at,
			s.get(s.at.goal))
	}
	s = one(t, "sts3215", Config{BootGoalZero: true, BootTorque: []uint8{1}})
	s.Advance(time.Second)
	rttest.Want(t, s.place(), start, "with torque from the start it goes to")
}

// When the supply fails again before the boot is over, the servo boots anew.
func TestASupplyThatGoesDuringTheBoot(t *testing.T) {
	s := one(t, "sts3215", Config{BootTorque: []uint8{1}})
	s.reboot(s.Now())
	s.Advance(feetechBoot / 2)
	s.supply(0)
	s.waits(feetechBoot)
	if s.driven || s.mem[stsTorque] != 0 || s.hears() {
		t.Error("it comes up without a supply")
	}
	s.supply(7.4)
	s.waits(feetechBoot)
	if !s.driven || !s.hears() {
		t.Error("it does not come up with one")
	}
}

// The effects of a call on the bus end in time, even when no client's request wakes the bus.
func TestACallWakesTheBus(t *testing.T) {
	b := open(t, Config{BootTime: 20 * time.Millisecond, BootTorque: []uint8{1, 2, 3, 4, 5, 6}})
	for range 3 { // the bus may still be awake at the first call
		b.PowerCycle()
		if on := b.TorqueEnabled(); slices.Contains(on, true) {
			t.Fatalf("torque %v at the beginning of the boot", on)
		}
		rttest.Eventually(t, "torque after the boot", func() bool { return !slices.Contains(b.TorqueEnabled(), false) })
	}
}

// The bus ends a boot on time without a request.
func TestTheBootEndsOnTime(t *testing.T) {
	clock := rttest.NewClock(rt.Instant(time.Second))
	b := open(t, Config{Clock: clock, BootTorque: []uint8{3}})
	b.PowerCycle()
	if on := b.TorqueEnabled(); slices.Contains(on, true) {
		t.Errorf("torque %v while the servos boot", on)
	}
	clock.Advance(feetechBoot - 1)
	if at := b.next(); at != clock.Now()+1 {
		t.Errorf("the bus wants to be woken in %v, want 1ns", at.Sub(clock.Now()))
	}
	clock.Advance(1)
	b.tick(clock.Now())
	rttest.Equal(t, b.TorqueEnabled(), []bool{false, false, true, false, false, false}, "torque after the boot")
}
