package servo_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
)

// lostTurn opens the bus of a Koch, or of its leader, whose shoulder_lift has a calibrated range of -306 to 2419 and
// rests at the position given by the parameter at. If this position is below 0, the servo has forgotten its turn and
// reads a position one turn higher.
func lostTurn(t *testing.T, name string, at int) (cfg servo.ArmConfig, bus *servosim.Bus, s *servosimtest.Shafts) {
	t.Helper()
	r := robotOf(t, name)
	s = new(servosimtest.Shafts)
	s.All(2048)
	s.Raw[1].Store(int32(at - 509))
	bus = simOf(t, r, servosim.Config{Plant: s, BootTime: 50 * time.Millisecond})
	cfg = config(bus, r)
	cfg.Calibration["shoulder_lift"] = servo.MotorCalibration{ID: 2, HomingOffset: 509, RangeMin: -306, RangeMax: 2419}
	onBus(t, bus, r, func(b *servo.Bus) {
		for _, m := range r.Motors {
			write(t, b, m, table.OperatingMode, table.ModeExtendedPosition)
		}
		write(t, b, r.Motors[1], table.HomingOffset, 509)
		write(t, b, r.Motors[1], table.MaxPositionLimit, 2419) // of the two ends, only the upper one fits its register
	})
	return cfg, bus, s
}

// Goal: when a joint's motor has forgotten its turn, the arm reports the joint's true position,
// holds the joint there after arming, and moves it to its goals.
func TestForgottenTurn(t *testing.T) {
	t.Parallel()
	cfg, _, s := lostTurn(t, "koch", -196)
	arm := mustOpen(t, cfg)
	rttest.Contains(t, strings.Join(arm.Notes(), "\n"), "shoulder_lift) reads 3900", "-196")
	rttest.Want(t, arm.OutOfRange(), 0, "outside")
	at, raws := make([]float32, 6), make([]int, 6)
	arm.Read(at, rt.KernelClock().Now().Add(time.Second))
	if arm.Raws(raws); raws[1] != -196 || at[1] > -91 || at[1] < -93 {
		t.Errorf("it is at %d, %.1f, want -196, -91.9", raws[1], at[1])
	}
	torqueOn(t, arm)
	rttest.Want(t, s.Raw[1].Load(), -196-509, "arming moved the shaft to")
	goal := append([]float32(nil), at...)
	rttest.Eventually(t, "the goal", func() bool {
		goal[1] = min(0, goal[1]+2) // faster motion would make the supply sag
		arm.Write(goal, arm.Joints())
		tick(t, arm, at)
		return at[1] > -1 && at[1] < 1
	})
	if raw := s.Raw[1].Load() + 509; raw < 1055 || raw > 1057 {
		t.Errorf("the shaft is at %d, want the middle of its range, 1056", raw)
	}
	arm.Recheck()
	bad := robot.Joints(0)
	rttest.Eventually(t, "a check of all motors", func() bool {
		arm.Read(at, rt.KernelClock().Now().Add(20*time.Millisecond))
		bad |= arm.GoalMismatch()
		return arm.Unchecked() == 0
	})
	rttest.Want(t, bad, 0, "the goals of differ")
}

// Goal: when a motor restarts during a run, the arm never returns a position that is off by a turn, and reports the
// restart. A leader does so, too.
func TestForgetsItsTurnInARun(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"koch", "koch_leader"} {
		t.Run(name, func(t *testing.T) {
			cfg, bus, s := lostTurn(t, name, 700)
			arm := mustOpen(t, cfg)
			s.Raw[1].Store(-196 - 509) // a hand moves the joint over the encoder's seam
			at, raws := make([]float32, 6), make([]int, 6)
			restarted := robot.Joints(0)
			bus.PowerCycle()
			rttest.Eventually(t, "the restart", func() bool {
				arm.Read(at, rt.KernelClock().Now().Add(20*time.Millisecond))
				if arm.Raws(raws); raws[1] > 800 || raws[1] < -200 {
					t.Fatalf("it is at %d", raws[1])
				}
				restarted |= arm.Restarted()
				return restarted&2 != 0
			})
			arm.Close()
			cfg.Reopened = true
			arm = mustOpen(t, cfg)
			arm.Raws(raws)
			rttest.Want(t, raws[1], -196, "opened again it is at")
		})
	}
}

// Goal: when two turns fit the range, OpenArm fails instead of guessing.
func TestTurnThatFitsTwice(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		at      int
		refused bool
	}{{2000, false}, {3, true}, {4110, true}} {
		cfg, _, s := lostTurn(t, "koch", 300)
		s.Raw[1].Store(int32(tt.at - 509))
		c := cfg.Calibration["shoulder_lift"]
		c.RangeMin, c.RangeMax = -200, 4200
		cfg.Calibration["shoulder_lift"] = c
		err := opens(cfg)
		if refused := errors.Is(err, servo.ErrTurn); refused != tt.refused || err != nil && !refused {
			t.Errorf("at %d: %v, want refused: %v", tt.at, err, tt.refused)
		}
		if err != nil && !rttest.Says(err, "between 104 and 3896") {
			t.Errorf("%v, want where to move it", err)
		}
	}
}

// Goal: OpenArm fails when the two motors of one joint have forgotten different turns, or are in different places, so
// that they never get the same goal.
func TestShadowInAnotherPlace(t *testing.T) {
	t.Parallel()
	r := robotOf(t, "widowx")
	s := new(servosimtest.Shafts)
	s.All(2048)
	for _, tt := range []struct {
		shadow int32
		want   error
	}{{4090, nil}, {4100, servo.ErrTurn}, {3700, servo.ErrSetting}} { // 4100 is beyond the seam: the encoder reads 4
		s.Raw[1].Store(4000)
		s.Raw[2].Store(tt.shadow)
		bus := simOf(t, r, servosim.Config{Plant: s})
		err := opens(config(bus, r))
		if !errors.Is(err, tt.want) {
			t.Errorf("shadow at %d: %v, want %v", tt.shadow, err, tt.want)
		}
	}
}

// Goal: OpenArm keeps the direction of both motors of a joint, which face each other, and clears the bits of Drive_Mode
// that other software has set. Before OpenArm, the second motor obeys every write to the first motor.
func TestShadowKeepsItsDirection(t *testing.T) {
	t.Parallel()
	r := robotOf(t, "widowx")
	s := new(servosimtest.Shafts)
	s.All(2048)
	bus := simOf(t, r, servosim.Config{Plant: s})
	first, second := r.Motors[1], r.ServosOf(3)[0]
	onBus(t, bus, r, func(b *servo.Bus) {
		write(t, b, first, table.DriveMode, 4)
		write(t, b, second, table.DriveMode, 5)
		write(t, b, second, table.HomingOffset, 4096)
		write(t, b, second, table.SecondaryID, 2)
	})
	rttest.Do(t, opens(config(bus, r)))
	onBus(t, bus, r, func(b *servo.Bus) {
		got := [3]int{}
		for i, register := range []table.Register{table.DriveMode, table.DriveMode, table.SecondaryID} {
			got[i], _, _ = b.ReadRegister([]servo.ID{2, 3, 3}[i], first.Model.Row(register))
		}
		rttest.Want(t, got, [3]int{0, 1, 2}, "Drive_Modes, and Secondary_ID of the second motor")
	})
}
