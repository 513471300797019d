package servosim

import (
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/motor"
)

// trial is one servo without a bus, with its own clock.
type trial struct {
	*servo
	*rttest.Clock
}

// one returns a servo of a model. Its shaft is in the middle of the range unless cfg has a plant.
func one(t *testing.T, name string, cfg Config) trial {
	t.Helper()
	s := trial{new(servo), rttest.NewClock(rt.Instant(time.Second))}
	cfg.Clock, cfg.Servos = s.Clock, []Servo{{1, name}}
	rttest.Do(t, cfg.check())
	cfg.fillPlant(s.Now())
	s.powerUp(&cfg, new(rail), 0, s.Now())
	return s
}

// The methods of a trial that a servo also has do the servo's work at the present time.

func (s trial) read(addr, size int) []byte { return s.servo.read(nil, addr, size, s.Now()) }

func (s trial) write(addr int, data []byte) uint8 { return s.servo.write(addr, data, s.Now()) }

func (s trial) supply(volts float64) { s.servo.supply(volts, s.Now()) }

func (s trial) refresh() { s.servo.refresh(s.Now()) }

func (s trial) monitor() { s.servo.monitor(s.Now()) }

func (s trial) restart() { s.servo.restart(s.Now()) }

func (s trial) setEncoderFault(f motor.EncoderFault) { s.servo.setEncoderFault(f, s.Now()) }

// block puts an obstacle at a position.
func (s trial) block(at int) { s.servo.block(at, false, false, s.Now()) }

// hears reports whether the servo receives requests.
func (s trial) hears() bool { return s.receives(1_000_000, s.Now()) }

// waits lets the servo work after d.
func (s trial) waits(d time.Duration) {
	s.Advance(d)
	s.monitor()
}

// set writes a value to a register as a client does, and returns the result code.
func (s trial) set(addr int, v int64) uint8 { return s.write(addr, le(v, int(s.row(addr).size))) }

// seen returns a register's value as a client reads it.
func (s trial) seen(addr int) int64 {
	s.refresh()
	return s.get(addr)
}

// speed returns the velocity of an STS as a client reads it.
func (s trial) speed() int { return magnitude(s.seen(58), signPosition) }

// place returns the position of the shaft.
func (s trial) place() int { return s.cfg.Plant.Present(s.Now(), s.joint) }

// passes advances the time while a client reads the servo every 10 ms, and returns the last
// position read.
func (s trial) passes(d time.Duration) (reads int) {
	for range d / (10 * time.Millisecond) {
		s.Advance(10 * time.Millisecond)
		s.refresh()
	}
	return s.present(s.encoderCount(s.Now()))
}

// swing drives the shaft to 2300 and returns by how many counts it passes its goal.
func (s trial) swing() (most int) {
	s.set(s.at.torque, 1)
	s.set(s.at.goal, 2300)
	for range 300 {
		s.Advance(5 * time.Millisecond)
		s.refresh()
		most = max(most, s.place()-2300)
	}
	return most
}

// drive writes a goal and switches the torque on.
func (s trial) drive(goal int) {
	s.set(s.at.goal, int64(goal))
	s.set(s.at.torque, 1)
}

// le encodes a value in n bytes, little endian.
func le(v int64, n int) (b []byte) {
	for i := range n {
		b = append(b, byte(v>>(8*i)))
	}
	return b
}

func TestADynamixelRefusesAWholeWriteWithAReason(t *testing.T) {
	on := func(s trial) { s.set(xTorque, 1) }
	for _, tt := range []struct {
		name, model string
		before      func(trial)
		addr        int
		data        []byte
		want        uint8
	}{
		{"a goal", "xl430-w250", nil, xGoal, le(1000, 4), 0},
		{"a goal beyond the limits", "xl430-w250", nil, xGoal, le(5000, 4), resultLimit},
		{"several turns in extended mode", "xl430-w250", func(s trial) {
			s.set(xMode, 4)
		}, xGoal, le(-5000, 4), 0},
		{"more turns than there are", "xl430-w250", func(s trial) {
			s.set(xMode, 4)
		}, xGoal, le(1<<21, 4), resultRange},
		{"half a goal", "xl430-w250", nil, xGoal, le(1000, 2), resultLength},
		{"a position", "xl430-w250", nil, xPresent, le(1000, 4), resultAccess},
		{"nothing that there is", "xl430-w250", nil, 300, []byte{1}, resultAccess},
		{"EEPROM under torque", "xl430-w250", on, xMode, []byte{4}, resultAccess},
		{"EEPROM without", "xl430-w250", nil, xMode, []byte{4}, 0},
		{"current control without a sensor", "xl430-w250", nil, xMode, []byte{5}, resultRange},
		{"current control with one", "xl330-m288", nil, xMode, []byte{5}, 0},
		{"a current limit without a sensor", "xl430-w250", nil, xLimitCurrent, le(100, 2), resultAccess},
		{"PWM beyond its limit", "xm430-w350", func(s trial) {
			s.set(xLimitPWM, 500)
		}, xGoalPWM, le(-600, 2), resultLimit},
		{"torque after a hardware error", "xl430-w250", func(s trial) {
			s.overload(s.Now())
		}, xTorque, []byte{1}, resultFail},
		{"an AX goal out of range", "ax-12a", nil, axGoal, le(1024, 2), axRange},
		{"an AX goal beyond its limits", "ax-12a", func(s trial) {
			s.set(8, 600)
		}, axGoal, le(601, 2), axAngle},
		{"an AX's EEPROM when locked", "ax-12a", func(s trial) {
			s.set(47, 1)
		}, 5, []byte{0}, axInstruction},
		{"an AX's lock opened", "ax-12a", func(s trial) {
			s.set(47, 1)
		}, 47, []byte{0}, axRange},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := one(t, tt.model, Config{})
			if tt.before != nil {
				tt.before(s)
			}
			mem := s.mem
			rttest.Want(t, s.write(tt.addr, tt.data), tt.want, "code of a write")
			if tt.want != 0 && s.mem != mem {
				t.Error("a refused write changed something")
			}
		})
	}
}

func TestTheBusWatchdogStopsAndHolds(t *testing.T) {
	s := one(t, "xl430-w250", Config{})
	s.set(xTorque, 1)
	s.set(xWatchdog, 5)
	s.set(xGoal, 4000)
	s.waits(99 * time.Millisecond)
	if s.mem[xWatchdog] != 5 {
		t.Fatal("it fired early")
	}
	s.waits(2 * time.Millisecond)
	stopped := s.place()
	s.Advance(time.Second)
	if at := s.place(); s.mem[xWatchdog] != watchdogFired || at != stopped ||
		s.mem[xTorque] != 1 {
		t.Errorf("fired %v, moved from %d to %d, torque %d", s.mem[xWatchdog], stopped, at, s.mem[xTorque])
	}
	if s.seen(122) != 0 {
		t.Error("it says that it moves, although it was stopped")
	}
	rttest.Want(t, s.set(xGoal, 2000), resultRange, "code of a goal after it fired")
	s.set(xWatchdog, 0)
	rttest.Want(t, s.set(xGoal, 2000), 0, "code of a goal after it was cleared")
}

func TestAHardwareErrorCutsTorqueUntilAReboot(t *testing.T) {
	s := one(t, "xl330-m288", Config{})
	s.set(xTorque, 1)
	s.supply(3.2) // 3.2 V is below 3.5 V, and the servo's shutdown mask includes the voltage
	s.monitor()
	if s.mem[xTorque] != 0 || s.error(0) != alert {
		t.Fatalf("torque %d, error %#x after a dip of the supply", s.mem[xTorque], s.error(0))
	}
	s.supply(5)
	s.monitor()
	if s.error(0) != alert {
		t.Error("the error is forgotten when the supply is back")
	}
	s.obey(&request{id: 1, inst: instReboot}, nil, s.Now())
	if s.hears() {
		t.Error("it hears while it boots")
	}
	s.waits(xBoot)
	if !s.hears() || s.error(0) != 0 || s.set(xTorque, 1) != 0 {
		t.Error("not well after a reboot")
	}
}

func TestAFactoryResetKeepsWhatItIsTold(t *testing.T) {
	for _, tt := range []struct {
		name, model      string
		id               uint8
		data             []byte
		code             uint8
		wantID, wantBaud uint8
		kept             bool // the servo keeps the earlier settings
	}{
		{"all but id and baud rate", "xl430-w250", 5, []byte{2}, 0, 5, 3, false},
		{"all but the id", "xl430-w250", 5, []byte{1}, 0, 5, 1, false},
		{"all", "xl430-w250", 5, []byte{0xFF}, 0, 1, 1, false},
		{"all of all servos", "xl430-w250", broadcast, []byte{0xFF}, resultFail, 5, 3, true},
		{"all but the ids, of all servos", "xl430-w250", broadcast, []byte{1}, 0, 5, 1, false},
		{"no such range", "xl430-w250", 5, []byte{3}, resultRange, 5, 3, true},
		{"nothing said", "xl430-w250", 5, nil, resultLength, 5, 3, true},
		{"an AX forgets all", "ax-12a", 5, nil, 0, 1, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := one(t, tt.model, Config{})
			at := &s.at
			s.set(at.id, 5)
			s.set(at.maxTemperature, 50)
			s.set(at.torque, 1)
			_, code, answers := s.obey(&request{id: tt.id, inst: instFactoryReset, data: tt.data}, nil, s.Now())
			if code != tt.code || !answers || s.mem[at.id] != tt.wantID || s.mem[at.baud] != tt.wantBaud {
				t.Errorf("code %d, answers %v, id %d, baud code %d; want %d, true, %d, %d", code, answers, s.mem[at.id],
					s.mem[at.baud], tt.code, tt.wantID, tt.wantBaud)
			}
			if kept := s.mem[at.maxTemperature] == 50 && s.flash[at.maxTemperature] == 50; kept != tt.kept ||
				s.driven != tt.kept {
				t.Errorf("settings kept %v, driven %v; want %v", kept, s.driven, tt.kept)
			}
		})
	}
}

// A fitted motor also moves in the modes that have no goal position.
func TestOtherModesMoveAFittedMotor(t *testing.T) {
	const velocity, load = 1, 2 // the quantity that the test reads at the end
	type write struct {
		addr  int
		value int64
	}
	free, stops := motor.Load{}, motor.Load{StopMin: 1900, StopMax: 2200}
	for _, tt := range []struct {
		name, model string
		load        motor.Load
		writes      []write
		reads       int
		want, off   int
		turns       int // sign of the shaft's motion
	}{
		{"an STS's wheel mode", "sts3215", free,
			[]write{{33, modeVelocity}, {stsTorque, 1}, {stsGoalVelocity, 1000}}, velocity, 1000, 100, 1},
		{"and backwards", "sts3215", free, []write{{33, modeVelocity}, {stsTorque, 1},
			{stsGoalVelocity, signed(-1000, signPosition)}}, velocity, -1000, 100, -1},
		{"an STS's PWM mode", "sts3215", free,
			[]write{{33, modePWM}, {stsTorque, 1}, {stsGoalTime, 500}}, load, 500, 1, 1},
		{"and backwards", "sts3215", free, []write{{33, modePWM}, {stsTorque, 1},
			{stsGoalTime, signed(-500, signLoad)}}, load, -500, 1, -1},
		{"an X's velocity mode", "xl430-w250", free,
			[]write{{xMode, xModeVelocity}, {xTorque, 1}, {xGoalVelocity, 100}}, velocity, 100, 10, 1},
		{"with its drive mode reversed", "xl430-w250", free,
			[]write{{xMode, xModeVelocity}, {xDriveMode, 1}, {xTorque, 1}, {xGoalVelocity, 100}}, velocity,
			100, 10, -1},
		// The PWM register counts in 1/885 of the full duty, and the load register in 1/1000.
		{"an X's PWM mode", "xl430-w250", free,
			[]write{{xMode, xModePWM}, {xTorque, 1}, {xGoalPWM, -400}}, load, -450, 5, -1},
		{"an X's current mode", "xm430-w350", free,
			[]write{{xMode, xModeCurrent}, {xTorque, 1}, {xGoalCurrent, 35}}, load, 35, 2, 1},
		{"against a stop", "xm430-w350", stops, []write{{xMode, xModeCurrent}, {xTorque, 1},
			{xGoalCurrent, 150}}, load, 150, 2, 1},
		{"and backwards", "xm430-w350", stops, []write{{xMode, xModeCurrent}, {xTorque, 1},
			{xGoalCurrent, -150}}, load, -150, 2, -1},
	} {
		t.Run(tt.model+", "+tt.name, func(t *testing.T) {
			s := one(t, tt.model, Config{Fitted: true, Loads: []motor.Load{tt.load}})
			for _, w := range tt.writes {
				if code := s.set(w.addr, w.value); code != 0 {
					t.Fatalf("%d at %d is refused with %d", w.value, w.addr, code)
				}
			}
			s.passes(time.Second)
			at, sign := s.at.velocity, uint16(signPosition)
			if tt.reads == load {
				at, sign = s.at.load, signLoad
			}
			got := int(s.get(at))
			if s.feetech() {
				got = magnitude(s.get(at), sign)
			}
			if got < tt.want-tt.off || got > tt.want+tt.off {
				t.Errorf("it reads %d, want %d", got, tt.want)
			}
			if gone := s.place() - 2048; gone*tt.turns < 100 {
				t.Errorf("it has gone %d counts, want some way in direction %d", gone, tt.turns)
			}
		})
	}
}

// In step mode an STS moves by a number of counts from its position. Its position register holds
// the remaining counts.
func TestStepsAddUp(t *testing.T) {
	s := one(t, "sts3215", Config{Fitted: true})
	s.set(33, modeStep)
	s.set(stsTorque, 1)
	want := 2048
	for _, step := range []int{0, 5000, -500} { // 5000 counts are more than a turn
		if step != 0 { // without a step, torque alone moves nothing
			s.set(stsGoal, signed(step, signPosition))
		}
		s.refresh()
		if left := magnitude(s.get(stsPresent), signPosition); left < step-60 || left > step+60 {
			t.Errorf("%d counts are left at first, want %d", left, step)
		}
		s.passes(4 * time.Second)
		want += step
		if at := s.place(); at < want-60 || at > want+60 {
			t.Errorf("a step of %d ends at %d, want about %d", step, at, want)
		}
	}
}

// The bus watchdog also stops a wheel.
func TestTheWatchdogStopsAWheel(t *testing.T) {
	s := one(t, "xl430-w250", Config{Fitted: true})
	s.set(xMode, xModeVelocity)
	s.set(xTorque, 1)
	s.set(xGoalVelocity, 100)
	s.set(xWatchdog, 5)
	s.passes(time.Second)
	if v := s.get(s.at.velocity); s.mem[xWatchdog] != watchdogFired || v != 0 {
		t.Errorf("velocity %d after the watchdog, which reads %#x", v, s.mem[xWatchdog])
	}
}

// Shorted windings brake a limp motor.
func TestADampedMotorSinksSlowly(t *testing.T) {
	sunk := func(torque int64) int {
		s := one(t, "sts3215", Config{Fitted: true, Loads: []motor.Load{{Gravity: 0.5, Level: 2048}}})
		s.set(stsTorque, torque)
		s.passes(300 * time.Millisecond)
		return 2048 - s.place()
	}
	if limp, damped := sunk(0), sunk(torqueDamp); damped < 5 || damped > limp/2 {
		t.Errorf("damped it sinks by %d counts, limp by %d; want some, less than half", damped, limp)
	}
}

func TestASecondaryIDObeysInSilence(t *testing.T) {
	s := one(t, "xl430-w250", Config{})
	s.set(xSecondID, 7)
	if obeys, answers := s.addressed(7); !obeys || answers {
		t.Errorf("named(7) = %v, %v, want obedience without an answer", obeys, answers)
	}
	if obeys, _ := s.addressed(8); obeys {
		t.Error("it obeys an id that it does not have")
	}
}

func TestIndirectAddressesPackAWindow(t *testing.T) {
	for model, data := range map[string]int{"xl430-w250": 224, "xl330-m288": 208} {
		s := one(t, model, Config{})
		for i, to := range []int{xTorque, xPresent, xPresent + 1} {
			s.set(xIndirect+2*i, int64(to))
		}
		s.set(data, 1)
		if got := s.read(data, 3); s.mem[xTorque] != 1 || int(got[1])|int(got[2])<<8 != 2048 {
			t.Errorf("%s: torque %d, window %v, want 1 and 2048 behind it", model, s.mem[xTorque], got)
		}
		if torque, present := s.set(data, 2),
			s.set(data+1, 0); torque != resultRange || present != resultAccess {
			t.Errorf("%s: a torque of 2 is answered with %d, a present position with %d, want %d and %d", model, torque,
				present, resultRange, resultAccess)
		}
	}
}

// An X330's memory is smaller, and so is the range of its indirect addresses.
func TestIndirectAddressesOfAnX330EndEarlier(t *testing.T) {
	for _, tt := range []struct {
		model    string
		addr, to int
		want     uint8
	}{
		{"xl330-m288", xIndirect, 227, 0},
		{"xl330-m288", xIndirect, 228, resultRange},
		{"xl330-m288", xIndirect, 63, resultRange},
		{"xl330-m288", xIndirect + 2*19, xPresent, 0},
		{"xl330-m288", 228, xPresent, resultAccess},
		{"xl330-m288", 578, xPresent, resultAccess},
		{"xc330-t181", xIndirect, 228, resultRange},
		{"xl430-w250", xIndirect, 228, 0},
		{"xl430-w250", xIndirect, 662, resultRange},
		{"xl430-w250", 578, 661, 0},
	} {
		s := one(t, tt.model, Config{})
		rttest.Want(t, s.write(tt.addr, le(int64(tt.to), 2)), tt.want,
			"%s: the answer to %d at %d", tt.model, tt.to, tt.addr)
	}
}

// With noise an encoder deviates by a count at times. The same seed gives the same deviations. The
// noise changes neither the present velocity nor the moving flag.
func TestEncoderNoise(t *testing.T) {
	for _, model := range []string{"sts3215", "xl330-m288", "ax-12a"} {
		trace := func(cfg Config) (offs []int) {
			s := one(t, model, cfg)
			exact := s.present(s.place())
			at := s.at
			for range 200 {
				s.Advance(time.Millisecond)
				s.refresh()
				offs = append(offs, int(s.get(at.present))-exact)
				if s.get(at.velocity) != 0 || s.get(at.moving) != 0 {
					t.Fatalf("%s: velocity %d, moving %d of a shaft that stands", model, s.get(at.velocity),
						s.get(at.moving))
				}
			}
			return offs
		}
		noisy := trace(Config{Noise: 1})
		again := trace(Config{Noise: 1})
		other := trace(Config{Noise: 1, Faults: Script{Seed: 9}})
		if slices.Min(noisy) != -1 || slices.Max(noisy) != 1 || !slices.Contains(noisy, 0) {
			t.Errorf("%s: off by %d to %d, want -1 to 1", model, slices.Min(noisy), slices.Max(noisy))
		}
		if !slices.Equal(noisy, again) || slices.Equal(noisy, other) {
			t.Errorf("%s: the same seed must give the same, another something else", model)
		}
		if quiet := trace(Config{}); slices.Min(quiet) != 0 || slices.Max(quiet) != 0 {
			t.Errorf("%s: off by %d to %d without noise", model, slices.Min(quiet), slices.Max(quiet))
		}
	}
}

func TestAFeetechHoldsValuesInTheirRange(t *testing.T) {
	s := one(t, "sts3215", Config{})
	if code := s.set(stsTorqueLimit, 5000); code != 0 || s.get(stsTorqueLimit) != 1000 {
		t.Errorf("torque limit 5000 = code %d, %d in the register, want 0, 1000", code, s.get(stsTorqueLimit))
	}
}

// settled drives a fitted servo towards a goal and returns the shaft's position after the time wait.
func (s trial) settled(goal int, wait time.Duration) int {
	s.drive(goal)
	s.passes(wait)
	return s.place()
}

func TestAFittedMotorGoesToItsGoal(t *testing.T) {
	for _, model := range []string{"sts3215", "sts3250", "sm8512bl", "xl430-w250", "xl330-m288", "xm430-w350",
		"xm540-w270", "xc330-t288"} {
		s := one(t, model, Config{Fitted: true})
		if at := s.settled(2600, 3*time.Second); at < 2560 || at > 2620 {
			t.Errorf("%s stands at %d, want about 2600", model, at)
		}
	}
	s := one(t, "ax-12a", Config{Fitted: true})
	if at := s.settled(600, 2*time.Second); at < 570 || at > 610 {
		t.Errorf("an AX-12A stands at %d, want about 600", at)
	}
}

// With a P gain of 16 an arm sags by tens of counts, because such a low gain makes it soft.
func TestAFittedMotorSagsUnderALoad(t *testing.T) {
	load := []motor.Load{{Gravity: 0.9, Level: 2048}}
	soft := one(t, "sts3215", Config{Fitted: true, Loads: load})
	soft.set(55, 0)
	soft.set(stsP, 16)
	sag := 2048 - soft.settled(2048, 2*time.Second)
	if sag < 10 || sag > 150 {
		t.Errorf("P 16 under 0.9 N m sags by %d counts, want tens", sag)
	}
	if load := magnitude(soft.get(60), signLoad); load <= 100 || load > 800 {
		t.Errorf("load register %d while holding, want an effort upwards", load)
	}
	if soft.get(66) != 0 {
		t.Error("it says that it moves while it holds short of its goal")
	}
	soft.set(stsTorque, 0)
	held := soft.place()
	soft.Advance(time.Second)
	if fell := held - soft.place(); fell < 300 {
		t.Errorf("without torque it falls by %d counts in a second", fell)
	}
}

// A Dynamixel's I gain removes the sag that the P gain alone leaves. Its D gain damps the
// oscillation after a step.
func TestTheOtherGainsOfADynamixel(t *testing.T) {
	load := []motor.Load{{Gravity: 0.5, Level: 2048}}
	sag := func(i int64) int {
		s := one(t, "xl430-w250", Config{Fitted: true, Loads: load})
		s.set(xPositionI, i)
		return 2048 - s.settled(2048, 4*time.Second)
	}
	if soft, stiff := sag(0), sag(800); soft < 5 || stiff > soft/3 || stiff < -3 {
		t.Errorf("it sags by %d counts without an I gain and by %d with one; want some, next to none", soft, stiff)
	}
	swing := func(d int64) int {
		s := one(t, "xl430-w250", Config{Fitted: true, Loads: []motor.Load{{Inertia: 0.02}}})
		s.set(xPositionD, d)
		return s.swing()
	}
	if free, damped := swing(0), swing(4000); free < 5 || damped > free/2 {
		t.Errorf("it swings over by %d counts with D 0 and by %d with D 4000, want much less", free, damped)
	}
}

// A Feetech's I and D gains have the same effects, in assumed units. The integral limit bounds the
// effect of I, and D counts from the factory's value, with which the motor was measured.
func TestTheOtherGainsOfAFeetech(t *testing.T) {
	sag := func(model string, i, limit int64) int {
		s := one(t, model, Config{Fitted: true, Loads: []motor.Load{{Gravity: 0.9, Level: 2048}}})
		s.set(stsP, 16)
		s.set(stsI, i)
		s.set(stsSumLimit, limit)
		return 2048 - s.settled(2048, 5*time.Second)
	}
	for _, model := range []string{"sts3215", "sts3250"} {
		soft := sag(model, 0, 0)
		half := sag(model, 32, 10)
		stiff := sag(model, 32, 0)
		if soft < 10 || stiff > 3 || stiff < -3 || half > soft-3 || half < stiff+3 {
			t.Errorf("%s sags by %d counts without an I gain, by %d with one that is limited and by %d with one; "+
				"want some, less, next to none", model, soft, half, stiff)
		}
	}
	swing := func(model string, d int64) int {
		s := one(t, model, Config{Fitted: true, Loads: []motor.Load{{Inertia: 0.05}}})
		s.set(stsD, d)
		return s.swing()
	}
	for _, model := range []string{"sts3215", "sts3250"} {
		none := swing(model, 0)
		factory := swing(model, stsFactoryD)
		damped := swing(model, 200)
		if none <= factory || factory < 5 || damped > 2*factory/3 {
			t.Errorf("%s swings over by %d counts with D 0, by %d with the factory's 32 and by %d with 200; want "+
				"less each time, and in the end much", model, none, factory, damped)
		}
	}
	if s := one(t, "sts3215", Config{Fitted: true}); s.get(stsD) != stsFactoryD {
		t.Errorf("the factory's D is %d at %v, want %d", s.get(stsD), s.Now(), stsFactoryD)
	}
}

func TestHalfDutyWarmsByFifteenDegreesInTenMinutes(t *testing.T) {
	s := one(t, "sts3215", Config{Fitted: true, Loads: []motor.Load{{StopMin: 1000, StopMax: 2100}}})
	s.set(55, 0)
	s.set(stsOverload, 100)
	s.set(stsTorqueLimit, 500)
	cold := s.health.heat.Celsius
	s.settled(4000, time.Second)
	for range 599 {
		s.Advance(time.Second)
		s.refresh()
	}
	if warmer := s.health.heat.Celsius - cold; warmer < 13 || warmer > 17 {
		t.Errorf("%.1f degrees warmer, want 15", warmer)
	}
}
