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

// The control loop of a servo with a wrong encoder drives the shaft until the wrong reading equals
// the goal, and drives it back when the encoder reads correctly again.
func TestAFaultyEncoder(t *testing.T) {
	for _, fitted := range []bool{false, true} {
		for _, tt := range []struct {
			name         string
			fault        motor.EncoderFault
			reads, place int // position that a client reads, and true position, two seconds after the goal 2148
			bits         uint8
		}{
			{"it reads too much", motor.EncoderFault{Offset: 683}, 2148, 2148 - 683, faultEncoder},
			{"it reads too little", motor.EncoderFault{Offset: -200}, 2148, 2348, faultEncoder},
			{"it drifts", motor.EncoderFault{Drift: 100}, 2148, 2148 - 200, faultEncoder},
			{"it says nothing of it", motor.EncoderFault{Offset: 50, Silent: true}, 2148, 2098, 0},
		} {
			t.Run(fmt.Sprintf("%s, fitted %v", tt.name, fitted), func(t *testing.T) {
				s := one(t, "sts3215", Config{Fitted: fitted})
				s.drive(2148)
				s.passes(2 * time.Second)
				before := s.place()
				if before < 2140 || before > 2156 {
					t.Fatalf("it stands at %d, want 2148", before)
				}
				s.setEncoderFault(tt.fault)
				reads := s.passes(2 * time.Second)
				if at := s.place(); reads < tt.reads-12 || reads > tt.reads+12 || at < tt.place-12 ||
					at > tt.place+12 {
					t.Errorf("it reads %d and stands at %d, want %d and %d", reads, at, tt.reads, tt.place)
				}
				if got := uint8(s.seen(stsStatus)); got != tt.bits || s.error(0) != tt.bits {
					t.Errorf("status %#x, want %#x", got, tt.bits)
				}
				s.setEncoderFault(motor.EncoderFault{})
				s.passes(2 * time.Second)
				if at := s.place(); at < before-12 || at > before+12 || s.error(0) != 0 {
					t.Errorf("well again it stands at %d with status %#x, want %d and 0", at, s.error(0), before)
				}
			})
		}
	}
}

// The control loop of a servo with a stuck encoder never reads its goal, so the shaft runs to the end of its
// range, while the reading stays the same. When the goal equals the stuck reading, the shaft stays.
func TestAnEncoderThatIsStuck(t *testing.T) {
	s := one(t, "sts3215", Config{})
	s.drive(2048)
	s.setEncoderFault(motor.EncoderFault{Stuck: true})
	if reads := s.passes(time.Second); reads != 2048 || s.place() != 2048 {
		t.Errorf("it reads %d and stands at %d, want 2048", reads, s.place())
	}
	s.drive(2050)
	if reads := s.passes(2 * time.Second); reads != 2048 || s.place() != 4095 {
		t.Errorf("it reads %d and stands at %d, want 2048 and 4095", reads, s.place())
	}
}

// An X servo keeps the error bit of its encoder until a reboot. The factory's shutdown mask lacks
// this bit, so torque stays on.
func TestAnXServoKeepsItsEncoderError(t *testing.T) {
	s := one(t, "xl430-w250", Config{})
	s.drive(2048)
	s.setEncoderFault(motor.EncoderFault{Offset: 5})
	s.setEncoderFault(motor.EncoderFault{})
	if s.seen(xHardwareError) != 0 {
		t.Error("a bit of a lie that nobody looked at")
	}
	s.setEncoderFault(motor.EncoderFault{Offset: 5})
	s.refresh()
	s.setEncoderFault(motor.EncoderFault{})
	if s.refresh(); s.mem[xHardwareError] != xFaultEncoder || s.error(0) != alert || s.mem[xTorque] != 1 {
		t.Errorf("hardware error %#x, error %#x, torque %d, want 8, an alert, 1", s.mem[xHardwareError], s.error(0),
			s.mem[xTorque])
	}
}

func TestALowSupplyThatAServoComplainsOf(t *testing.T) {
	s := one(t, "sts3215", Config{})
	s.drive(2100)
	s.health.low = true
	s.supply(5.5)
	b := s.read(62, 1)
	if b[0] != 55 || s.error(0) != faultVoltage || s.mem[stsTorque] != 1 || !s.hears() {
		t.Errorf("%d tenths of a volt, status %#x, torque %d, want 55, 1, 1", b[0], s.error(0), s.mem[stsTorque])
	}
	s.health.low = false
	s.supply(7.4)
	if s.read(62, 1); s.error(0) != 0 {
		t.Errorf("status %#x with a whole supply", s.error(0))
	}
}

// When a shaft presses against an obstacle, load and current rise, and the protection trips and
// leaves Protective_Torque. The protection stays tripped until the load has been absent for a
// second.
func TestABlockedJointOfAnyPlantTripsItsProtection(t *testing.T) {
	for _, fitted := range []bool{false, true} {
		t.Run(fmt.Sprint("fitted ", fitted), func(t *testing.T) {
			s := one(t, "sts3215", Config{Fitted: fitted})
			s.block(2200)
			s.drive(2600)
			s.passes(time.Second)
			load, amps := magnitude(s.get(60), signLoad), magnitude(s.get(stsCurrent), signPosition)
			if at := s.place(); at < 2199 || at > 2201 || load < 900 || amps < 150 || s.error(0) != 0 {
				t.Errorf("at %d, load %d, current %d, status %#x, want 2200, near 1000, much, 0 yet", at, load, amps,
					s.error(0))
			}
			s.passes(2 * time.Second)
			if load := magnitude(s.get(60), signLoad); s.error(0) != faultOverload || load != 200 ||
				s.mem[stsTorque] != 1 {
				t.Errorf("status %#x, load %d, torque %d, want an overload with a fifth of the torque", s.error(0),
					load, s.mem[stsTorque])
			}
			s.drive(2230) // the shaft still presses
			if s.passes(5 * time.Second); s.error(0) != faultOverload {
				t.Error("the overload is forgotten while the goal lies beyond the obstacle")
			}
			s.drive(2600)
			if s.passes(5 * time.Second); s.error(0) != faultOverload {
				t.Error("the overload is forgotten under load")
			}
			s.drive(2100)
			if s.passes(500 * time.Millisecond); s.error(0) != faultOverload {
				t.Error("the overload is forgotten at once")
			}
			if at := s.passes(2 * time.Second); at < 2090 || at > 2110 || s.error(0) != 0 {
				t.Errorf("two seconds after the relief at %d with status %#x, want 2100 and 0", at, s.error(0))
			}
		})
	}
}

func TestTorqueOffOrAGoalMayEndAnOverload(t *testing.T) {
	trip := func(cfg Config) trial {
		s := one(t, "sts3215", cfg)
		s.block(2200)
		s.drive(2600)
		if s.passes(4 * time.Second); s.error(0) != faultOverload {
			t.Fatalf("status %#x after four seconds against an obstacle", s.error(0))
		}
		return s
	}
	s := trip(Config{})
	s.set(stsTorque, 0)
	if s.error(0) != 0 {
		t.Error("torque off leaves the overload")
	}
	s = trip(Config{OverloadYields: true})
	s.set(stsGoal, 2500)
	if s.error(0) != faultOverload {
		t.Error("a goal that still presses ends the overload")
	}
	s.set(stsGoal, 2150)
	if s.error(0) != 0 {
		t.Error("OverloadYields: a goal that relieves leaves the overload")
	}
	s = trip(Config{})
	if s.set(stsGoal, 2150); s.error(0) != faultOverload {
		t.Error("a goal that relieves ends the overload at once")
	}
}

// A script's overload has no load that could end, so the overload stays until torque is switched
// off.
func TestAScriptedOverloadStaysUntilTorqueIsOff(t *testing.T) {
	s := one(t, "sts3215", Config{})
	s.drive(2100)
	s.overload(s.Now())
	if s.passes(5 * time.Second); s.error(0) != faultOverload {
		t.Error("it is forgotten")
	}
	s.set(stsTorque, 0)
	s.drive(2100)
	if s.passes(time.Second); s.error(0) != 0 {
		t.Error("it comes back")
	}
}

// The servos of the other series trip their protections, too, each in its own way.
func TestOtherBlockedJoints(t *testing.T) {
	for name, bit := range map[string]uint8{"xl430-w250": faultOverload, "ax-12a": axOverload} {
		s := one(t, name, Config{})
		at := s.place()
		s.block(at + 50)
		s.drive(at + 400)
		s.passes(3 * time.Second)
		if s.alarm&bit == 0 || s.place() > at+50 {
			t.Errorf("%s: alarm %#x at %d of %d", name, s.alarm, s.place(), at+50)
		}
		if s.mem[s.at.torque] == torqueOn {
			t.Errorf("%s: torque is on after an overload", name)
		}
	}
}

// An obstacle is at the position that a client reads, even for an X servo that counts in reverse or
// has an offset.
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
		s := one(t, tt.model, Config{})
		s.write(tt.reg, tt.data)
		at := s.present(s.place())
		s.block(at + 50)
		s.drive(at + 300)
		if reads := s.passes(time.Second); reads != at+50 || s.pressing(s.Now()) == 0 {
			t.Errorf("%s: it comes to rest at %d from %d, want %d and that it presses", tt.name, reads, at, at+50)
		}
	}
}

func TestAWedgedShaftLeavesNeitherWay(t *testing.T) {
	for _, fitted := range []bool{false, true} {
		for _, goal := range []int{1500, 2600} {
			s := one(t, "sts3215", Config{Fitted: fitted})
			s.servo.block(0, true, false, s.Now())
			s.drive(goal)
			s.passes(time.Second)
			if at := s.place(); at != 2048 || math.Abs(s.health.duty) < 0.9 {
				t.Errorf("fitted %v: on its way to %d it stands at %d with %.2f of its duty, want 2048 and all of it",
					fitted, goal, at, s.health.duty)
			}
		}
	}
}

// An object stays in the gripper as long as the gripper presses on it, even with a fifth of its
// torque. It falls when the goal is the gripper's position, or when torque or the supply is off.
func TestWhatAGripperHolds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		do    func(trial)
		falls bool
	}{
		{"the goal stays", func(trial) {}, false},
		{"the goal goes a little back", func(s trial) { s.set(stsGoal, 1600) }, false},
		{"goal := present", func(s trial) {
			s.write(stsGoal, s.read(stsPresent, 2))
		}, true},
		{"it opens", func(s trial) { s.set(stsGoal, 2000) }, true},
		{"torque off", func(s trial) { s.set(stsTorque, 0) }, true},
		{"the supply goes", func(s trial) { s.supply(0) }, true},
	} {
		for _, fitted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, fitted %v", tt.name, fitted), func(t *testing.T) {
				s := one(t, "sts3215", Config{Fitted: fitted})
				s.servo.block(1700, false, true, s.Now())
				s.drive(1500)
				s.passes(4 * time.Second)
				if !s.obstacle.Gripped || s.error(0) != faultOverload || s.dropped != 0 {
					t.Fatalf("holds %v, status %#x, %d dropped", s.obstacle.Gripped, s.error(0), s.dropped)
				}
				tt.do(s)
				s.passes(2 * time.Second)
				if holds := s.obstacle.Gripped; holds == tt.falls || (s.dropped == 1) != tt.falls {
					t.Errorf("it holds %v, %d dropped, want that it falls %v", holds, s.dropped, tt.falls)
				}
				if s.drive(1500); tt.falls && s.mem[stsTorque] == 1 && !s.unpowered {
					if s.passes(2 * time.Second); s.place() > 1512 {
						t.Errorf("the object has fallen, and the gripper closes to %d, want 1500", s.place())
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
	rttest.Do(t, cfg.check())
	cfg.Plant = motor.NewIdeal(cfg.joints)
	arm, rail := make([]trial, 6), new(rail)
	for i := range arm {
		arm[i] = trial{new(servo), clock}
		arm[i].powerUp(&cfg, rail, i, clock.Now())
	}
	const nothing = -1
	still := slices.Repeat([]int{2048}, 6)
	for _, step := range []struct {
		name   string
		torque int64
		after  time.Duration
		want   []int
	}{
		{"that nobody has held", nothing, time.Minute, still},
		{"that is held", 1, time.Second, still},
		{"without torque", 0, time.Second, []int{2048, 1365, 1365, 1365, 2048, 2048}},
		{"at rest", nothing, time.Second, []int{2048, 1024, 1024, 1024, 2048, 2048}},
		{"held again", 1, 0, []int{2048, 1024, 1024, 1024, 2048, 2048}},
		{"with a stale goal", nothing, time.Second, still},
		{"that is damped", torqueDamp, time.Second, []int{2048, 1980, 1980, 1980, 2048, 2048}},
		{"free again", 0, time.Second, []int{2048, 1297, 1297, 1297, 2048, 2048}},
	} {
		for _, s := range arm {
			if step.torque != nothing {
				s.set(stsTorque, step.torque)
			}
		}
		clock.Advance(step.after)
		var got []int
		for _, s := range arm {
			got = append(got, s.place())
		}
		rttest.Equal(t, got, step.want, "an arm %s goes to", step.name)
		if v := arm[1].speed(); step.name == "without torque" && (v > -600 || v < -760) {
			t.Errorf("velocity %d while it sinks, want some -683", v)
		}
	}
}

func TestNothingSinksOnAWeightlessArm(t *testing.T) {
	s := one(t, "sts3215", Config{Weightless: true})
	s.drive(2048)
	s.set(stsTorque, 0)
	s.Advance(time.Minute)
	for _, cfg := range []Config{{Weightless: true}, {Fitted: true}, {Plant: newPosed()}, {IDs: []uint8{1, 2}}} {
		if err := cfg.check(); err != nil || cfg.Weights != nil || s.place() != 2048 {
			t.Errorf("%+v has weights %v (%v), the shaft is at %d", cfg.IDs, cfg.Weights, err, s.place())
		}
	}
}

// A servo outside its EEPROM range limits its goal to the range and moves there as fast as it can,
// while the goal register reads as written. So the servo moves when torque is switched on, even
// after its present position was written as the goal.
func TestTorqueOnOutsideOfTheRangeOfTheEEPROM(t *testing.T) {
	s := one(t, "sts3215", Config{})
	start := s.place()
	s.set(9, int64(start+300))
	s.set(s.at.goal, int64(start))
	s.set(s.at.torque, 1)
	s.Advance(20 * time.Millisecond)
	if at := s.place(); at < start+14 {
		t.Errorf("at %d of %d after 20 ms, want it on its way at full speed", at, start)
	}
	s.Advance(time.Second)
	if at := s.place(); at != start+300 || s.get(s.at.goal) != int64(start) {
		t.Errorf("it stands at %d and its goal reads %d, want %d and %d as written", at,
			s.get(s.at.goal), start+300, start)
	}
	s.set(9, int64(start+100))
	s.Advance(time.Second)
	rttest.Want(t, s.place(), start+100, "position with a wider range")
	s = one(t, "sts3215", Config{})
	s.set(11, 1900)
	s.set(stsGoal, 3000)
	if back := s.seen(stsGoalReadback); s.get(stsGoal) != 3000 || back != 1900 {
		t.Errorf("register 42 reads %d, want 3000; 67 reads %d, want 1900", s.get(stsGoal), back)
	}
}

// Goal: an X servo's Realtime_Tick counts the milliseconds since its power-up, and starts again at
// 0 after 32767, as the e-manual describes.
func TestRealtimeTickCounts(t *testing.T) {
	s := one(t, "xl430-w250", Config{})
	ticks := func(after time.Duration) int {
		s.Advance(after)
		return int(s.seen(xTick))
	}
	first := ticks(0)
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{0, first}, {time.Millisecond, first + 1}, {1500 * time.Millisecond, first + 1501},
		{32768 * time.Millisecond, first + 1501}} {
		rttest.Want(t, ticks(tt.after), tt.want, "%v later the position", tt.after)
	}
	s.restart()
	rttest.Want(t, ticks(7*time.Millisecond), 7, "7 ms after a power-up it")
}

// Goal: a Goal_Velocity of 0 stops an STS unless its Phase makes 0 the highest speed.
func TestGoalVelocityZero(t *testing.T) {
	for phase, moves := range map[byte]bool{12: true, 4: false} {
		s := one(t, "sts3215", Config{Fitted: true})
		s.mem[stsPhase] = phase
		s.put(stsGoalVelocity, 0)
		s.tune(s.Now())
		s.drive(2348)
		s.passes(time.Second)
		if at := s.place(); (at > 2340) != moves || !moves && (at > 2080 || at < 2000) {
			t.Errorf("Phase %d: it stands at %d", phase, at)
		}
	}
}

// Where the documents leave a wheel's behaviour open, the simulator behaves unsafely. After
// power-up the goal velocity is the highest. A goal velocity switches a limp wheel's torque on.
// Without a host the wheel keeps its last goal velocity.
func TestAWheelIsUnsafe(t *testing.T) {
	s := one(t, "sts3215", Config{Wheels: 1})
	s.set(33, modeVelocity)
	s.set(stsTorque, 1)
	if s.passes(time.Second); s.speed() < 3000 {
		t.Errorf("%d counts/s after torque alone, want the speed of a power-up", s.speed())
	}
	s.set(stsTorque, 0)
	if s.passes(20 * time.Millisecond); s.speed() < 1000 {
		t.Errorf("%d counts/s 20 ms after torque off, want a wheel that coasts", s.speed())
	}
	if s.passes(10 * time.Second); s.speed() != 0 {
		t.Errorf("%d counts/s 10 s after torque off, want 0", s.speed())
	}
	s.set(stsGoalVelocity, signed(-1000, signPosition))
	if s.mem[stsTorque] != torqueOn {
		t.Error("a goal velocity left the torque off")
	}
	if s.passes(40 * time.Millisecond); s.speed() < -900 || s.speed() > -50 {
		t.Errorf("%d counts/s after 40 ms, want a wheel with inertia", s.speed())
	}
	if s.passes(10 * time.Second); s.speed() > -900 {
		t.Errorf("%d counts/s after 10 s of silence, want the last goal velocity", s.speed())
	}
	s.set(stsGoalVelocity, 0)
	if s.passes(time.Second); s.speed() > 10 || s.speed() < -10 {
		t.Errorf("%d counts/s with goal velocity 0", s.speed())
	}
	s = one(t, "sts3215", Config{Wheels: 1, GoalLeavesTorque: true})
	s.set(33, modeVelocity)
	if s.set(stsGoalVelocity, 500); s.mem[stsTorque] == torqueOn {
		t.Error("a goal velocity switched the torque on")
	}
}
