package servosim

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/motor"
)

// passes advances the time of a servo while a client reads it every 10 ms, and returns the last
// position read.
func passes(s *servo, clock *rttest.Clock, d time.Duration) (reads int) {
	for range d / (10 * time.Millisecond) {
		clock.Advance(10 * time.Millisecond)
		s.refresh(clock.Now())
	}
	return s.present(s.encoderCount(clock.Now()))
}

func shaftPlace(s *servo, clock *rttest.Clock) int { return s.cfg.Plant.Present(clock.Now(), s.joint) }

// drive writes a goal to a servo and switches its torque on.
func drive(s *servo, clock *rttest.Clock, goal int) {
	s.write(s.t.at.goal, goalBytes(s, int64(goal)), clock.Now())
	s.write(s.t.at.torque, []byte{1}, clock.Now())
}

// The servo's loop follows its encoder: it drives the shaft until the wrong reading equals the
// goal, and back when the encoder reads correctly again.
func TestAFaultyEncoder(t *testing.T) {
	for _, fitted := range []bool{false, true} {
		for _, tt := range []struct {
			name         string
			fault        motor.EncoderFault
			reads, place int // after two seconds with the goal at 2148
			bits         uint8
		}{
			{"it reads too much", motor.EncoderFault{Offset: 683}, 2148, 2148 - 683, faultEncoder},
			{"it reads too little", motor.EncoderFault{Offset: -200}, 2148, 2348, faultEncoder},
			{"it drifts", motor.EncoderFault{Drift: 100}, 2148, 2148 - 200, faultEncoder},
			{"it says nothing of it", motor.EncoderFault{Offset: 50, Silent: true}, 2148, 2098, 0},
		} {
			t.Run(fmt.Sprintf("%s, fitted %v", tt.name, fitted), func(t *testing.T) {
				s, clock := one(t, "sts3215", Config{Fitted: fitted})
				drive(s, clock, 2148)
				passes(s, clock, 2*time.Second)
				before := shaftPlace(s, clock)
				if before < 2140 || before > 2156 {
					t.Fatalf("it stands at %d, want 2148", before)
				}
				s.setEncoderFault(tt.fault, clock.Now())
				reads := passes(s, clock, 2*time.Second)
				if at := shaftPlace(s, clock); reads < tt.reads-12 || reads > tt.reads+12 || at < tt.place-12 ||
					at > tt.place+12 {
					t.Errorf("it reads %d and stands at %d, want %d and %d", reads, at, tt.reads, tt.place)
				}
				if got := s.read(nil, stsStatus, 1, clock.Now())[0]; got != tt.bits || s.error(0) != tt.bits {
					t.Errorf("status %#x, want %#x", got, tt.bits)
				}
				s.setEncoderFault(motor.EncoderFault{}, clock.Now())
				passes(s, clock, 2*time.Second)
				if at := shaftPlace(s, clock); at < before-12 || at > before+12 || s.error(0) != 0 {
					t.Errorf("well again it stands at %d with status %#x, want %d and 0", at, s.error(0), before)
				}
			})
		}
	}
}

// The loop of a servo with a stuck encoder never reads that the shaft arrives: the shaft runs to
// the end of its range, which no reading shows. With the stuck reading as its goal it stays.
func TestAnEncoderThatIsStuck(t *testing.T) {
	s, clock := one(t, "sts3215", Config{})
	drive(s, clock, 2048)
	s.setEncoderFault(motor.EncoderFault{Stuck: true}, clock.Now())
	if reads := passes(s, clock, time.Second); reads != 2048 || shaftPlace(s, clock) != 2048 {
		t.Errorf("it reads %d and stands at %d, want 2048", reads, shaftPlace(s, clock))
	}
	drive(s, clock, 2050)
	if reads := passes(s, clock, 2*time.Second); reads != 2048 || shaftPlace(s, clock) != 4095 {
		t.Errorf("it reads %d and stands at %d, want 2048 and 4095", reads, shaftPlace(s, clock))
	}
}

// An X servo keeps the bit until a reboot; its factory's shutdown mask lacks the bit, so that
// torque stays.
func TestAnXServoKeepsItsEncoderError(t *testing.T) {
	s, clock := one(t, "xl430-w250", Config{})
	drive(s, clock, 2048)
	s.setEncoderFault(motor.EncoderFault{Offset: 5}, clock.Now())
	s.setEncoderFault(motor.EncoderFault{}, clock.Now())
	if s.refresh(clock.Now()); s.mem[xHardwareError] != 0 {
		t.Error("a bit of a lie that nobody looked at")
	}
	s.setEncoderFault(motor.EncoderFault{Offset: 5}, clock.Now())
	s.refresh(clock.Now())
	s.setEncoderFault(motor.EncoderFault{}, clock.Now())
	if s.refresh(clock.Now()); s.mem[xHardwareError] != xFaultEncoder || s.error(0) != alert || s.mem[xTorque] != 1 {
		t.Errorf("hardware error %#x, error %#x, torque %d, want 8, an alert, 1", s.mem[xHardwareError], s.error(0),
			s.mem[xTorque])
	}
}

func TestALowSupplyThatAServoComplainsOf(t *testing.T) {
	s, clock := one(t, "sts3215", Config{})
	drive(s, clock, 2100)
	s.health.low = true
	s.supply(5.5, clock.Now())
	b := s.read(nil, 62, 1, clock.Now())
	if b[0] != 55 || s.error(0) != faultVoltage || s.mem[stsTorque] != 1 || !s.receives(1_000_000, clock.Now()) {
		t.Errorf("%d tenths of a volt, status %#x, torque %d, want 55, 1, 1", b[0], s.error(0), s.mem[stsTorque])
	}
	s.health.low = false
	s.supply(7.4, clock.Now())
	if s.read(nil, 62, 1, clock.Now()); s.error(0) != 0 {
		t.Errorf("status %#x with a whole supply", s.error(0))
	}
}

// A shaft presses against an obstacle: load and current rise, the protection trips by itself and
// leaves Protective_Torque, and it stays tripped until the load has been gone for a second.
func TestABlockedJointOfAnyPlantTripsItsProtection(t *testing.T) {
	for _, fitted := range []bool{false, true} {
		t.Run(fmt.Sprint("fitted ", fitted), func(t *testing.T) {
			s, clock := one(t, "sts3215", Config{Fitted: fitted})
			s.block(2200, false, false, clock.Now())
			drive(s, clock, 2600)
			passes(s, clock, time.Second)
			load, amps := magnitude(s.get(60), signLoad), magnitude(s.get(stsCurrent), signPosition)
			if at := shaftPlace(s, clock); at < 2199 || at > 2201 || load < 900 || amps < 150 || s.error(0) != 0 {
				t.Errorf("at %d, load %d, current %d, status %#x, want 2200, near 1000, much, 0 yet", at, load, amps,
					s.error(0))
			}
			passes(s, clock, 2*time.Second)
			if load := magnitude(s.get(60), signLoad); s.error(0) != faultOverload || load != 200 ||
				s.mem[stsTorque] != 1 {
				t.Errorf("status %#x, load %d, torque %d, want an overload with a fifth of the torque", s.error(0),
					load, s.mem[stsTorque])
			}
			drive(s, clock, 2230) // it still presses
			if passes(s, clock, 5*time.Second); s.error(0) != faultOverload {
				t.Error("the overload is forgotten while the goal lies beyond the obstacle")
			}
			drive(s, clock, 2600)
			if passes(s, clock, 5*time.Second); s.error(0) != faultOverload {
				t.Error("the overload is forgotten under load")
			}
			drive(s, clock, 2100)
			if passes(s, clock, 500*time.Millisecond); s.error(0) != faultOverload {
				t.Error("the overload is forgotten at once")
			}
			if at := passes(s, clock, 2*time.Second); at < 2090 || at > 2110 || s.error(0) != 0 {
				t.Errorf("two seconds after the relief at %d with status %#x, want 2100 and 0", at, s.error(0))
			}
		})
	}
}

func TestTorqueOffOrAGoalMayEndAnOverload(t *testing.T) {
	trip := func(cfg Config) (*servo, *rttest.Clock) {
		s, clock := one(t, "sts3215", cfg)
		s.block(2200, false, false, clock.Now())
		drive(s, clock, 2600)
		if passes(s, clock, 4*time.Second); s.error(0) != faultOverload {
			t.Fatalf("status %#x after four seconds against an obstacle", s.error(0))
		}
		return s, clock
	}
	s, clock := trip(Config{})
	s.write(stsTorque, []byte{0}, clock.Now())
	if s.error(0) != 0 {
		t.Error("torque off leaves the overload")
	}
	s, clock = trip(Config{OverloadYields: true})
	s.write(stsGoal, le(2500, 2), clock.Now())
	if s.error(0) != faultOverload {
		t.Error("a goal that still presses ends the overload")
	}
	s.write(stsGoal, le(2150, 2), clock.Now())
	if s.error(0) != 0 {
		t.Error("OverloadYields: a goal that relieves leaves the overload")
	}
	s, clock = trip(Config{})
	if s.write(stsGoal, le(2150, 2), clock.Now()); s.error(0) != faultOverload {
		t.Error("a goal that relieves ends the overload at once")
	}
}

// A servo that a script has tripped has no load that could go.
func TestAScriptedOverloadStaysUntilTorqueIsOff(t *testing.T) {
	s, clock := one(t, "sts3215", Config{})
	drive(s, clock, 2100)
	s.overload(clock.Now())
	if passes(s, clock, 5*time.Second); s.error(0) != faultOverload {
		t.Error("it is forgotten")
	}
	s.write(stsTorque, []byte{0}, clock.Now())
	drive(s, clock, 2100)
	if passes(s, clock, time.Second); s.error(0) != 0 {
		t.Error("it comes back")
	}
}

// The other series trip in their own ways.
func TestOtherBlockedJoints(t *testing.T) {
	for name, bit := range map[string]uint8{"scs0009": faultOverload, "xl430-w250": faultOverload,
		"ax-12a": axOverload} {
		s, clock := one(t, name, Config{})
		at := shaftPlace(s, clock)
		s.block(at+50, false, false, clock.Now())
		drive(s, clock, at+400)
		passes(s, clock, 3*time.Second)
		if s.alarm&bit == 0 || shaftPlace(s, clock) > at+50 {
			t.Errorf("%s: alarm %#x at %d of %d", name, s.alarm, shaftPlace(s, clock), at+50)
		}
		if load := math.Abs(s.health.duty); s.t.series == seriesSCS && (load < 0.19 || load > 0.21) {
			t.Errorf("%s: presses with %.2f of its torque, want register 37's fifth", name, load)
		}
		if held := s.mem[s.t.at.torque] == torqueOn; held != s.t.series.feetech() {
			t.Errorf("%s: torque on %v after an overload", name, held)
		}
	}
}

// An obstacle is at the position that a client reads, also for an X servo that counts in reverse,
// or with an offset.
func TestAnObstacleStandsWhereAClientReadsIt(t *testing.T) {
	for _, tt := range []struct {
		name, model string
		reg         int
		data        []byte
	}{
		{"an STS with an offset", "sts3215", stsOffset, le(100, 2)},
		{"an X with an offset", "xl430-w250", xOffset, le(-100, 4)},
		{"an X turned round", "xl430-w250", xDriveMode, []byte{1}},
	} {
		s, clock := one(t, tt.model, Config{})
		s.write(tt.reg, tt.data, clock.Now())
		at := s.present(shaftPlace(s, clock))
		s.block(at+50, false, false, clock.Now())
		drive(s, clock, at+300)
		if reads := passes(s, clock, time.Second); reads != at+50 || s.pressing(clock.Now()) == 0 {
			t.Errorf("%s: it comes to rest at %d from %d, want %d and that it presses", tt.name, reads, at, at+50)
		}
	}
}

func TestAWedgedShaftLeavesNeitherWay(t *testing.T) {
	for _, fitted := range []bool{false, true} {
		for _, goal := range []int{1500, 2600} {
			s, clock := one(t, "sts3215", Config{Fitted: fitted})
			s.block(0, true, false, clock.Now())
			drive(s, clock, goal)
			passes(s, clock, time.Second)
			if at := shaftPlace(s, clock); at != 2048 || math.Abs(s.health.duty) < 0.9 {
				t.Errorf("fitted %v: on its way to %d it stands at %d with %.2f of its duty, want 2048 and all of it",
					fitted, goal, at, s.health.duty)
			}
		}
	}
}

// An object stays in the gripper as long as the gripper presses, even with a fifth of its torque.
// It falls when the goal is the gripper's position, or when torque or the supply is off.
func TestWhatAGripperHolds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		do    func(*servo, rt.Instant)
		falls bool
	}{
		{"the goal stays", func(*servo, rt.Instant) {}, false},
		{"the goal goes a little back", func(s *servo, now rt.Instant) { s.write(stsGoal, le(1600, 2), now) }, false},
		{"goal := present", func(s *servo, now rt.Instant) {
			s.write(stsGoal, s.read(nil, stsPresent, 2, now), now)
		}, true},
		{"it opens", func(s *servo, now rt.Instant) { s.write(stsGoal, le(2000, 2), now) }, true},
		{"torque off", func(s *servo, now rt.Instant) { s.write(stsTorque, []byte{0}, now) }, true},
		{"the supply goes", func(s *servo, now rt.Instant) { s.supply(0, now) }, true},
	} {
		for _, fitted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, fitted %v", tt.name, fitted), func(t *testing.T) {
				s, clock := one(t, "sts3215", Config{Fitted: fitted})
				s.block(1700, false, true, clock.Now())
				drive(s, clock, 1500)
				passes(s, clock, 4*time.Second)
				if !s.obstacle.Gripped || s.error(0) != faultOverload || s.dropped != 0 {
					t.Fatalf("holds %v, status %#x, %d dropped", s.obstacle.Gripped, s.error(0), s.dropped)
				}
				tt.do(s, clock.Now())
				passes(s, clock, 2*time.Second)
				if holds := s.obstacle.Gripped; holds == tt.falls || (s.dropped == 1) != tt.falls {
					t.Errorf("it holds %v, %d dropped, want that it falls %v", holds, s.dropped, tt.falls)
				}
				if drive(s, clock, 1500); tt.falls && s.mem[stsTorque] == 1 && !s.unpowered {
					if passes(s, clock, 2*time.Second); shaftPlace(s, clock) > 1512 {
						t.Errorf("the object has fallen, and the gripper closes to %d, want 1500", shaftPlace(s, clock))
					}
				}
			})
		}
	}
}

// An arm that has lost its torque sinks; an arm that never had torque lies still.
func TestALimpArmSinks(t *testing.T) {
	clock := rttest.NewClock(rt.Instant(time.Second))
	cfg := Config{Clock: clock}
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	cfg.Plant = motor.NewIdeal(cfg.joints)
	arm := make([]servo, 6)
	rail := new(rail)
	for i := range arm {
		arm[i].powerUp(&cfg, rail, i, clock.Now())
	}
	places := func() (all []int) {
		for i := range arm {
			all = append(all, shaftPlace(&arm[i], clock))
		}
		return all
	}
	clock.Advance(time.Minute)
	if got := places(); slices.Max(got) != 2048 || slices.Min(got) != 2048 {
		t.Errorf("an arm that nobody has held goes to %v", got)
	}
	all := func(torque byte) {
		for i := range arm {
			arm[i].write(stsTorque, []byte{torque}, clock.Now())
		}
	}
	all(1)
	clock.Advance(time.Second)
	if got := places(); slices.Min(got) != 2048 {
		t.Errorf("a held arm goes to %v", got)
	}
	all(0)
	clock.Advance(time.Second)
	if got, want := places(), []int{2048, 1365, 1365, 1365, 2048, 2048}; !slices.Equal(got, want) {
		t.Errorf("a second after torque off at %v, want %v", got, want)
	}
	if v := magnitude(int64(arm[1].read(nil, 58, 1, clock.Now())[0])|int64(arm[1].read(nil, 59, 1, clock.Now())[0])<<8,
		signPosition); v > -600 || v < -760 {
		t.Errorf("velocity %d while it sinks, want some -683", v)
	}
	clock.Advance(time.Second)
	if got, want := places(), []int{2048, 1024, 1024, 1024, 2048, 2048}; !slices.Equal(got, want) {
		t.Errorf("it comes to rest at %v, want %v", got, want)
	}
	all(1)
	if got := places(); got[1] != 1024 {
		t.Errorf("held again at %v", got)
	}
	clock.Advance(time.Second)
	if got := places(); got[1] != 2048 {
		t.Errorf("the stale goal takes it to %v, want 2048", got)
	}
	all(torqueDamp)
	clock.Advance(time.Second)
	if got := places(); got[1] != 2048-68 {
		t.Errorf("damped at %v after a second, want 1980", got)
	}
	arm[1].write(stsTorque, []byte{0}, clock.Now())
	clock.Advance(time.Second)
	if got := places(); got[1] != 2048-68-683 {
		t.Errorf("free at %v a second later, want 1297", got)
	}
}

func TestNothingSinksOnAWeightlessArm(t *testing.T) {
	s, clock := one(t, "sts3215", Config{Weightless: true})
	drive(s, clock, 2048)
	s.write(stsTorque, []byte{0}, clock.Now())
	clock.Advance(time.Minute)
	for _, cfg := range []Config{{Weightless: true}, {Fitted: true}, {Plant: newPosed()}, {IDs: []uint8{1, 2}}} {
		if err := cfg.check(); err != nil || cfg.Weights != nil || shaftPlace(s, clock) != 2048 {
			t.Errorf("%+v has weights %v (%v), the shaft is at %d", cfg.IDs, cfg.Weights, err, shaftPlace(s, clock))
		}
	}
}

// A servo limits its goal to its own range and moves there as fast as it can, while the goal
// register reads as written: switching torque on moves it although the goal is its present
// position.
func TestTorqueOnOutsideOfTheRangeOfTheEEPROM(t *testing.T) {
	for _, name := range []string{"sts3215", "scs0009"} {
		s, clock := one(t, name, Config{})
		start := shaftPlace(s, clock)
		lo := goalBytes(s, int64(start+300))
		s.write(9, lo, clock.Now())
		s.write(s.t.at.goal, goalBytes(s, int64(start)), clock.Now())
		s.write(s.t.at.torque, []byte{1}, clock.Now())
		clock.Advance(20 * time.Millisecond)
		if at := shaftPlace(s, clock); at < start+14 {
			t.Errorf("%s: at %d of %d after 20 ms, want it on its way at full speed", name, at, start)
		}
		clock.Advance(time.Second)
		if at := shaftPlace(s, clock); at != start+300 || s.get(s.t.at.goal) != int64(start) {
			t.Errorf("%s: it stands at %d and its goal reads %d, want %d and %d as written", name, at,
				s.get(s.t.at.goal), start+300, start)
		}
		s.write(9, goalBytes(s, int64(start+100)), clock.Now())
		clock.Advance(time.Second)
		if at := shaftPlace(s, clock); at != start+100 {
			t.Errorf("%s: with a wider range at %d, want %d", name, at, start+100)
		}
	}
	s, clock := one(t, "sts3215", Config{})
	s.write(11, le(1900, 2), clock.Now())
	s.write(stsGoal, le(3000, 2), clock.Now())
	if back := s.read(nil, stsGoalReadback, 2, clock.Now()); s.get(stsGoal) != 3000 ||
		int(back[0])|int(back[1])<<8 != 1900 {
		t.Errorf("register 42 reads %d, want 3000; 67 reads %v, want 1900", s.get(stsGoal), back)
	}
}

// Goal: an X servo's Realtime_Tick counts the milliseconds since its power-up, and starts again at
// 0 after 32767, as the e-manual describes.
func TestRealtimeTickCounts(t *testing.T) {
	s, clock := one(t, "xl430-w250", Config{})
	ticks := func(after time.Duration) int {
		clock.Advance(after)
		s.refresh(clock.Now())
		return int(s.get(xTick))
	}
	first := ticks(0)
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{0, first}, {time.Millisecond, first + 1}, {1500 * time.Millisecond, first + 1501},
		{32768 * time.Millisecond, first + 1501}} {
		if got := ticks(tt.after); got != tt.want {
			t.Errorf("%v later it is %d, want %d", tt.after, got, tt.want)
		}
	}
	s.restart(clock.Now())
	if got := ticks(7 * time.Millisecond); got != 7 {
		t.Errorf("7 ms after a power-up it is %d", got)
	}
}

// Goal: a Goal_Velocity of 0 stops an STS unless its Phase makes 0 the highest speed.
func TestGoalVelocityZero(t *testing.T) {
	for phase, moves := range map[byte]bool{12: true, 4: false} {
		s, clock := one(t, "sts3215", Config{Fitted: true})
		s.mem[stsPhase] = phase
		s.put(stsGoalVelocity, 0)
		s.tune(clock.Now())
		drive(s, clock, 2348)
		passes(s, clock, time.Second)
		if at := shaftPlace(s, clock); (at > 2340) != moves || !moves && (at > 2080 || at < 2000) {
			t.Errorf("Phase %d: it stands at %d", phase, at)
		}
	}
}
