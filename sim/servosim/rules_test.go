package servosim

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/motor"
)

// one returns a servo of a model without a bus, its shaft in the middle.
func one(t *testing.T, name string, cfg Config) (*servo, *rttest.Clock) {
	t.Helper()
	clock := rttest.NewClock(rt.Instant(time.Second))
	cfg.Clock, cfg.Servos = clock, []Servo{{1, name}}
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	if cfg.Fitted {
		cfg.motors = motor.NewFitted(cfg.joints, clock.Now())
		cfg.Plant = cfg.motors
	} else {
		cfg.Plant = motor.NewIdeal(cfg.joints)
	}
	s := new(servo)
	s.powerUp(&cfg, new(rail), 0, clock.Now())
	return s, clock
}

// le encodes a value in n bytes, little endian.
func le(v int64, n int) (b []byte) {
	for i := range n {
		b = append(b, byte(v>>(8*i)))
	}
	return b
}

func TestADynamixelRefusesAWholeWriteWithAReason(t *testing.T) {
	on := func(s *servo, now rt.Instant) { s.write(xTorque, []byte{1}, now) }
	tests := []struct {
		name, model string
		cfg         Config
		before      func(*servo, rt.Instant)
		addr        int
		data        []byte
		want        uint8
	}{
		{"a goal", "xl430-w250", Config{}, nil, xGoal, le(1000, 4), 0},
		{"a goal beyond the limits", "xl430-w250", Config{}, nil, xGoal, le(5000, 4), resultLimit},
		{"several turns in extended mode", "xl430-w250", Config{}, func(s *servo, now rt.Instant) {
			s.write(xMode, []byte{4}, now)
		}, xGoal, le(-5000, 4), 0},
		{"more turns than there are", "xl430-w250", Config{}, func(s *servo, now rt.Instant) {
			s.write(xMode, []byte{4}, now)
		}, xGoal, le(1<<21, 4), resultRange},
		{"half a goal", "xl430-w250", Config{}, nil, xGoal, le(1000, 2), resultLength},
		{"a position", "xl430-w250", Config{}, nil, xPresent, le(1000, 4), resultAccess},
		{"nothing that there is", "xl430-w250", Config{}, nil, 300, []byte{1}, resultAccess},
		{"EEPROM under torque", "xl430-w250", Config{}, on, xMode, []byte{4}, resultAccess},
		{"EEPROM without", "xl430-w250", Config{}, nil, xMode, []byte{4}, 0},
		{"current control without a sensor", "xl430-w250", Config{}, nil, xMode, []byte{5}, resultRange},
		{"current control with one", "xl330-m288", Config{}, nil, xMode, []byte{5}, 0},
		{"a current limit without a sensor", "xl430-w250", Config{}, nil, xLimitCurrent, le(100, 2), resultAccess},
		{"PWM beyond its limit", "xm430-w350", Config{}, func(s *servo, now rt.Instant) {
			s.write(xLimitPWM, le(500, 2), now)
		}, xGoalPWM, le(-600, 2), resultLimit},
		{"torque after a hardware error", "xl430-w250", Config{}, func(s *servo, now rt.Instant) {
			s.overload(now)
		}, xTorque, []byte{1}, resultFail},
		{"an AX goal out of range", "ax-12a", Config{}, nil, axGoal, le(1024, 2), axRange},
		{"an AX goal beyond its limits", "ax-12a", Config{}, func(s *servo, now rt.Instant) {
			s.write(8, le(600, 2), now)
		}, axGoal, le(601, 2), axAngle},
		{"an AX's EEPROM when locked", "ax-12a", Config{}, func(s *servo, now rt.Instant) {
			s.write(47, []byte{1}, now)
		}, 5, []byte{0}, axInstruction},
		{"an AX's lock opened", "ax-12a", Config{}, func(s *servo, now rt.Instant) {
			s.write(47, []byte{1}, now)
		}, 47, []byte{0}, axRange},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, clock := one(t, tt.model, tt.cfg)
			if tt.before != nil {
				tt.before(s, clock.Now())
			}
			mem := s.mem
			if got := s.write(tt.addr, tt.data, clock.Now()); got != tt.want {
				t.Errorf("write = code %d, want %d", got, tt.want)
			}
			if tt.want != 0 && s.mem != mem {
				t.Error("a refused write changed something")
			}
		})
	}
}

func TestTheBusWatchdogStopsAndHolds(t *testing.T) {
	s, clock := one(t, "xl430-w250", Config{})
	s.write(xTorque, []byte{1}, clock.Now())
	s.write(xWatchdog, []byte{5}, clock.Now())
	s.write(xGoal, le(4000, 4), clock.Now())
	clock.Advance(99 * time.Millisecond)
	s.monitor(clock.Now())
	if s.mem[xWatchdog] != 5 {
		t.Fatal("it fired early")
	}
	clock.Advance(2 * time.Millisecond)
	s.monitor(clock.Now())
	stopped := s.cfg.Plant.Present(clock.Now(), 0)
	clock.Advance(time.Second)
	if at := s.cfg.Plant.Present(clock.Now(), 0); s.mem[xWatchdog] != watchdogFired || at != stopped ||
		s.mem[xTorque] != 1 {
		t.Errorf("fired %v, moved from %d to %d, torque %d", s.mem[xWatchdog], stopped, at, s.mem[xTorque])
	}
	if moving := s.read(nil, 122, 1, clock.Now())[0]; moving != 0 {
		t.Error("it says that it moves, although it was stopped")
	}
	if code := s.write(xGoal, le(2000, 4), clock.Now()); code != resultRange {
		t.Errorf("a goal after it fired = code %d, want %d", code, resultRange)
	}
	s.write(xWatchdog, []byte{0}, clock.Now())
	if code := s.write(xGoal, le(2000, 4), clock.Now()); code != 0 {
		t.Errorf("a goal after it was cleared = code %d", code)
	}
}

func TestAHardwareErrorCutsTorqueUntilAReboot(t *testing.T) {
	s, clock := one(t, "xl330-m288", Config{})
	s.write(xTorque, []byte{1}, clock.Now())
	s.supply(3.2, clock.Now()) // below 3.5 V; its shutdown mask includes the voltage
	s.monitor(clock.Now())
	if s.mem[xTorque] != 0 || s.error(0) != alert {
		t.Fatalf("torque %d, error %#x after a dip of the supply", s.mem[xTorque], s.error(0))
	}
	s.supply(5, clock.Now())
	s.monitor(clock.Now())
	if s.error(0) != alert {
		t.Error("the error is forgotten when the supply is back")
	}
	s.obey(&request{id: 1, inst: instReboot}, nil, clock.Now())
	if s.receives(1_000_000, clock.Now()) {
		t.Error("it hears while it boots")
	}
	clock.Advance(xBoot)
	s.monitor(clock.Now())
	if !s.receives(1_000_000, clock.Now()) || s.error(0) != 0 || s.write(xTorque, []byte{1}, clock.Now()) != 0 {
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
		kept             bool // the earlier settings are kept
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
			s, clock := one(t, tt.model, Config{})
			at := &s.t.at
			s.write(at.id, []byte{5}, clock.Now())
			s.write(at.maxTemperature, []byte{50}, clock.Now())
			s.write(at.torque, []byte{1}, clock.Now())
			_, code, answers := s.obey(&request{id: tt.id, inst: instFactoryReset, data: tt.data}, nil, clock.Now())
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

// The motion of a fitted motor in a mode without goal positions.
func TestOtherModesMoveAFittedMotor(t *testing.T) {
	const velocity, load = 1, 2 // quantity that the test reads in the end
	type write struct {
		addr, size int
		value      int64
	}
	stops := motor.Load{StopMin: 1900, StopMax: 2200}
	for _, tt := range []struct {
		name, model string
		load        motor.Load
		writes      []write
		reads       int
		want, off   int
		turns       int // sign of the shaft's motion
	}{
		{"an STS's wheel mode", "sts3215", motor.Load{},
			[]write{{33, 1, modeVelocity}, {stsTorque, 1, 1}, {stsGoalVelocity, 2, 1000}}, velocity, 1000, 100, 1},
		{"and backwards", "sts3215", motor.Load{}, []write{{33, 1, modeVelocity}, {stsTorque, 1, 1},
			{stsGoalVelocity, 2, signed(-1000, signPosition)}}, velocity, -1000, 100, -1},
		{"an STS's PWM mode", "sts3215", motor.Load{},
			[]write{{33, 1, modePWM}, {stsTorque, 1, 1}, {stsGoalTime, 2, 500}}, load, 500, 1, 1},
		{"and backwards", "sts3215", motor.Load{}, []write{{33, 1, modePWM}, {stsTorque, 1, 1},
			{stsGoalTime, 2, signed(-500, signLoad)}}, load, -500, 1, -1},
		{"an X's velocity mode", "xl430-w250", motor.Load{},
			[]write{{xMode, 1, xModeVelocity}, {xTorque, 1, 1}, {xGoalVelocity, 4, 100}}, velocity, 100, 10, 1},
		{"with its drive mode reversed", "xl430-w250", motor.Load{},
			[]write{{xMode, 1, xModeVelocity}, {xDriveMode, 1, 1}, {xTorque, 1, 1}, {xGoalVelocity, 4, 100}}, velocity,
			100, 10, -1},
		// a share of 1000, not of 885
		{"an X's PWM mode", "xl430-w250", motor.Load{},
			[]write{{xMode, 1, xModePWM}, {xTorque, 1, 1}, {xGoalPWM, 2, -400}}, load, -450, 5, -1},
		{"an X's current mode", "xm430-w350", motor.Load{},
			[]write{{xMode, 1, xModeCurrent}, {xTorque, 1, 1}, {xGoalCurrent, 2, 35}}, load, 35, 2, 1},
		{"against a stop", "xm430-w350", stops, []write{{xMode, 1, xModeCurrent}, {xTorque, 1, 1},
			{xGoalCurrent, 2, 150}}, load, 150, 2, 1},
		{"and backwards", "xm430-w350", stops, []write{{xMode, 1, xModeCurrent}, {xTorque, 1, 1},
			{xGoalCurrent, 2, -150}}, load, -150, 2, -1},
	} {
		t.Run(tt.model+", "+tt.name, func(t *testing.T) {
			s, clock := one(t, tt.model, Config{Fitted: true, Loads: []motor.Load{tt.load}})
			for _, w := range tt.writes {
				if code := s.write(w.addr, le(w.value, w.size), clock.Now()); code != 0 {
					t.Fatalf("%d at %d is refused with %d", w.value, w.addr, code)
				}
			}
			for range 100 {
				clock.Advance(10 * time.Millisecond)
				s.refresh(clock.Now())
			}
			at, sign := s.t.at.velocity, uint16(signPosition)
			if tt.reads == load {
				at, sign = s.t.at.load, signLoad
			}
			got := int(s.get(at))
			if s.t.series == seriesSTS {
				got = magnitude(s.get(at), sign)
			}
			if got < tt.want-tt.off || got > tt.want+tt.off {
				t.Errorf("it reads %d, want %d", got, tt.want)
			}
			if gone := s.cfg.Plant.Present(clock.Now(), 0) - 2048; gone*tt.turns < 100 {
				t.Errorf("it has gone %d counts, want some way in direction %d", gone, tt.turns)
			}
		})
	}
}

// In step mode an STS moves by a number of counts from its position, and its position register
// holds the rest.
func TestStepsAddUp(t *testing.T) {
	s, clock := one(t, "sts3215", Config{Fitted: true})
	s.write(33, []byte{modeStep}, clock.Now())
	s.write(stsTorque, []byte{1}, clock.Now())
	want := 2048
	for _, step := range []int{0, 5000, -500} { // beyond the turn
		if step != 0 { // torque alone moves nothing
			s.write(stsGoal, le(signed(step, signPosition), 2), clock.Now())
		}
		s.refresh(clock.Now())
		if left := magnitude(s.get(stsPresent), signPosition); left < step-60 || left > step+60 {
			t.Errorf("%d counts are left at first, want %d", left, step)
		}
		for range 400 {
			clock.Advance(10 * time.Millisecond)
			s.refresh(clock.Now())
		}
		want += step
		if at := s.cfg.Plant.Present(clock.Now(), 0); at < want-60 || at > want+60 {
			t.Errorf("a step of %d ends at %d, want about %d", step, at, want)
		}
	}
}

// The bus watchdog stops a wheel too.
func TestTheWatchdogStopsAWheel(t *testing.T) {
	s, clock := one(t, "xl430-w250", Config{Fitted: true})
	s.write(xMode, []byte{xModeVelocity}, clock.Now())
	s.write(xTorque, []byte{1}, clock.Now())
	s.write(xGoalVelocity, le(100, 4), clock.Now())
	s.write(xWatchdog, []byte{5}, clock.Now())
	for range 100 {
		clock.Advance(10 * time.Millisecond)
		s.refresh(clock.Now())
	}
	if v := s.get(s.t.at.velocity); s.mem[xWatchdog] != watchdogFired || v != 0 {
		t.Errorf("velocity %d after the watchdog, which reads %#x", v, s.mem[xWatchdog])
	}
}

// Shorted windings brake a limp motor.
func TestADampedMotorSinksSlowly(t *testing.T) {
	sunk := func(torque byte) int {
		s, clock := one(t, "sts3215", Config{Fitted: true, Loads: []motor.Load{{Gravity: 0.5, Level: 2048}}})
		s.write(stsTorque, []byte{torque}, clock.Now())
		for range 30 {
			clock.Advance(10 * time.Millisecond)
			s.refresh(clock.Now())
		}
		return 2048 - s.cfg.Plant.Present(clock.Now(), 0)
	}
	if limp, damped := sunk(0), sunk(torqueDamp); damped < 5 || damped > limp/2 {
		t.Errorf("damped it sinks by %d counts, limp by %d; want some, less than half", damped, limp)
	}
}

func TestABrownOutRestartsAServo(t *testing.T) {
	s, clock := one(t, "sts3215", Config{})
	s.write(stsTorque, []byte{1}, clock.Now())
	s.write(stsTorqueLimit, le(300, 2), clock.Now())
	s.supply(3.5, clock.Now())
	if s.receives(1_000_000, clock.Now()) {
		t.Error("it hears without a supply")
	}
	s.supply(7.4, clock.Now())
	clock.Advance(feetechBoot)
	if !s.receives(1_000_000, clock.Now()) || s.mem[stsTorque] != 0 || s.get(stsTorqueLimit) != 1000 {
		t.Errorf("after the boot: torque %d, torque limit %d, want 0, 1000", s.mem[stsTorque], s.get(stsTorqueLimit))
	}
}

func TestASecondaryIDObeysInSilence(t *testing.T) {
	s, clock := one(t, "xl430-w250", Config{})
	s.write(xSecondID, []byte{7}, clock.Now())
	if obeys, answers := s.addressed(7); !obeys || answers {
		t.Errorf("named(7) = %v, %v, want obedience without an answer", obeys, answers)
	}
	if obeys, _ := s.addressed(8); obeys {
		t.Error("it obeys an id that it does not have")
	}
}

func TestIndirectAddressesPackAWindow(t *testing.T) {
	for model, data := range map[string]int{"xl430-w250": 224, "xl330-m288": 208} {
		s, clock := one(t, model, Config{})
		for i, to := range []int{xTorque, xPresent, xPresent + 1} {
			s.write(xIndirect+2*i, le(int64(to), 2), clock.Now())
		}
		s.write(data, []byte{1}, clock.Now())
		if got := s.read(nil, data, 3, clock.Now()); s.mem[xTorque] != 1 || int(got[1])|int(got[2])<<8 != 2048 {
			t.Errorf("%s: torque %d, window %v, want 1 and 2048 behind it", model, s.mem[xTorque], got)
		}
		if torque, present := s.write(data, []byte{2}, clock.Now()),
			s.write(data+1, []byte{0}, clock.Now()); torque != resultRange || present != resultAccess {
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
		s, clock := one(t, tt.model, Config{})
		if code := s.write(tt.addr, le(int64(tt.to), 2), clock.Now()); code != tt.want {
			t.Errorf("%s: %d at %d is answered with %d, want %d", tt.model, tt.to, tt.addr, code, tt.want)
		}
	}
}

// An encoder deviates by a count at times, in the same way for the same seed; neither the present
// velocity nor the moving flag change with it.
func TestEncoderNoise(t *testing.T) {
	for _, model := range []string{"sts3215", "scs0009", "xl330-m288", "ax-12a"} {
		trace := func(cfg Config) (offs []int) {
			s, clock := one(t, model, cfg)
			exact := s.present(s.cfg.Plant.Present(clock.Now(), 0))
			at := s.t.at
			for range 200 {
				clock.Advance(time.Millisecond)
				s.refresh(clock.Now())
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
	s, clock := one(t, "sts3215", Config{})
	if code := s.write(stsTorqueLimit, le(5000, 2), clock.Now()); code != 0 || s.get(stsTorqueLimit) != 1000 {
		t.Errorf("torque limit 5000 = code %d, %d in the register, want 0, 1000", code, s.get(stsTorqueLimit))
	}
}

// settled runs a fitted servo towards a goal and returns its position after wait.
func settled(s *servo, clock *rttest.Clock, goal int64, wait time.Duration) int {
	s.write(s.t.at.torque, []byte{1}, clock.Now())
	s.write(s.t.at.goal, le(goal, int(s.t.row(s.t.at.goal).size)), clock.Now())
	for range int(wait / (10 * time.Millisecond)) {
		clock.Advance(10 * time.Millisecond)
		s.refresh(clock.Now())
	}
	return s.cfg.Plant.Present(clock.Now(), 0)
}

func TestAFittedMotorGoesToItsGoal(t *testing.T) {
	for _, model := range []string{"sts3215", "sts3250", "sm8512bl", "xl430-w250", "xl330-m288", "xm430-w350",
		"xm540-w270", "xc330-t288"} {
		s, clock := one(t, model, Config{Fitted: true})
		if at := settled(s, clock, 2600, 3*time.Second); at < 2560 || at > 2620 {
			t.Errorf("%s stands at %d, want about 2600", model, at)
		}
	}
	for _, model := range []string{"scs0009", "ax-12a"} {
		s, clock := one(t, model, Config{Fitted: true})
		goal := []byte{600 & 0xFF, 600 >> 8}
		if s.t.bigEndian {
			goal[0], goal[1] = goal[1], goal[0]
		}
		s.write(s.t.at.torque, []byte{1}, clock.Now())
		s.write(s.t.at.goal, goal, clock.Now())
		clock.Advance(2 * time.Second)
		if at := s.cfg.Plant.Present(clock.Now(), 0); at < 570 || at > 610 {
			t.Errorf("%s stands at %d, want about 600", model, at)
		}
	}
}

// A P of 16 lets an arm sag by tens of counts: it is soft by design.
func TestAFittedMotorSagsUnderALoad(t *testing.T) {
	load := []motor.Load{{Gravity: 0.9, Level: 2048}}
	soft, clock := one(t, "sts3215", Config{Fitted: true, Loads: load})
	soft.write(55, []byte{0}, clock.Now())
	soft.write(stsP, []byte{16}, clock.Now())
	sag := 2048 - settled(soft, clock, 2048, 2*time.Second)
	if sag < 10 || sag > 150 {
		t.Errorf("P 16 under 0.9 N m sags by %d counts, want tens", sag)
	}
	if load := magnitude(soft.get(60), signLoad); load <= 100 || load > 800 {
		t.Errorf("load register %d while holding, want an effort upwards", load)
	}
	if soft.get(66) != 0 {
		t.Error("it says that it moves while it holds short of its goal")
	}
	soft.write(stsTorque, []byte{0}, clock.Now())
	held := soft.cfg.Plant.Present(clock.Now(), 0)
	clock.Advance(time.Second)
	if fell := held - soft.cfg.Plant.Present(clock.Now(), 0); fell < 300 {
		t.Errorf("without torque it falls by %d counts in a second", fell)
	}
}

// A Dynamixel's I gain removes the sag that P alone leaves; its D gain damps the swing after a
// step.
func TestTheOtherGainsOfADynamixel(t *testing.T) {
	load := []motor.Load{{Gravity: 0.5, Level: 2048}}
	sag := func(i int64) int {
		s, clock := one(t, "xl430-w250", Config{Fitted: true, Loads: load})
		s.write(xPositionI, le(i, 2), clock.Now())
		return 2048 - settled(s, clock, 2048, 4*time.Second)
	}
	if soft, stiff := sag(0), sag(800); soft < 5 || stiff > soft/3 || stiff < -3 {
		t.Errorf("it sags by %d counts without an I gain and by %d with one; want some, next to none", soft, stiff)
	}
	swing := func(d int64) (most int) {
		s, clock := one(t, "xl430-w250", Config{Fitted: true, Loads: []motor.Load{{Inertia: 0.02}}})
		s.write(xPositionD, le(d, 2), clock.Now())
		s.write(xTorque, []byte{1}, clock.Now())
		s.write(xGoal, le(2300, 4), clock.Now())
		for range 300 {
			clock.Advance(5 * time.Millisecond)
			s.refresh(clock.Now())
			most = max(most, s.cfg.Plant.Present(clock.Now(), 0)-2300)
		}
		return most
	}
	if free, damped := swing(0), swing(4000); free < 5 || damped > free/2 {
		t.Errorf("it swings over by %d counts with D 0 and by %d with D 4000, want much less", free, damped)
	}
}

// So do a Feetech's gains, in assumed units: the integral limit bounds the effect of I, and D is
// counted from the factory's value, at which the motor was measured.
func TestTheOtherGainsOfAFeetech(t *testing.T) {
	sag := func(model string, i, limit byte) int {
		s, clock := one(t, model, Config{Fitted: true, Loads: []motor.Load{{Gravity: 0.9, Level: 2048}}})
		s.write(stsP, []byte{16}, clock.Now())
		s.write(stsI, []byte{i}, clock.Now())
		s.write(stsSumLimit, []byte{limit}, clock.Now())
		return 2048 - settled(s, clock, 2048, 5*time.Second)
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
	swing := func(model string, d byte) (most int) {
		s, clock := one(t, model, Config{Fitted: true, Loads: []motor.Load{{Inertia: 0.05}}})
		s.write(stsD, []byte{d}, clock.Now())
		s.write(stsTorque, []byte{1}, clock.Now())
		s.write(stsGoal, le(2300, 2), clock.Now())
		for range 300 {
			clock.Advance(5 * time.Millisecond)
			s.refresh(clock.Now())
			most = max(most, s.cfg.Plant.Present(clock.Now(), 0)-2300)
		}
		return most
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
	if s, clock := one(t, "sts3215", Config{Fitted: true}); s.get(stsD) != stsFactoryD {
		t.Errorf("the factory's D is %d at %v, want %d", s.get(stsD), clock.Now(), stsFactoryD)
	}
}

// Two seconds against a stop trip the overload protection: the flag is set, and a fifth of the
// torque is left, until torque is switched.
func TestABlockedJointTripsItsProtection(t *testing.T) {
	s, clock := one(t, "sts3215", Config{Fitted: true, Loads: []motor.Load{{StopMin: 1000, StopMax: 2200}}})
	settled(s, clock, 3500, 4*time.Second)
	if s.alarm&faultOverload == 0 || math.Abs(s.health.duty) > 0.21 {
		t.Errorf("alarm %#x, duty %.2f after four seconds against a stop", s.alarm, s.health.duty)
	}
	s.write(stsTorque, []byte{0}, clock.Now())
	if s.error(0) != 0 {
		t.Errorf("error %#x after torque off", s.error(0))
	}
}

func TestHalfDutyWarmsByFifteenDegreesInTenMinutes(t *testing.T) {
	s, clock := one(t, "sts3215", Config{Fitted: true, Loads: []motor.Load{{StopMin: 1000, StopMax: 2100}}})
	s.write(55, []byte{0}, clock.Now())
	s.write(stsOverload, []byte{100}, clock.Now())
	s.write(stsTorqueLimit, le(500, 2), clock.Now())
	cold := s.health.heat.Celsius
	settled(s, clock, 4000, time.Second)
	for range 599 {
		clock.Advance(time.Second)
		s.refresh(clock.Now())
	}
	if warmer := s.health.heat.Celsius - cold; warmer < 13 || warmer > 17 {
		t.Errorf("%.1f degrees warmer, want 15", warmer)
	}
}
