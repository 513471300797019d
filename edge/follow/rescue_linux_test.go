package follow

import (
	"fmt"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// narrowed returns a change that makes the shoulder's range end at the count most, below the shoulder's place. With
// eeprom, the shoulder is also above the limits in its servo.
func narrowed(t *testing.T, most int, eeprom, rescue bool) func(*servo.ArmConfig, *Config) {
	return func(cfg *servo.ArmConfig, f *Config) {
		f.Rescue = rescue
		c := cfg.Calibration["shoulder_lift"]
		c.RangeMin, c.RangeMax = 500, most
		cfg.Calibration["shoulder_lift"] = c
		if !eeprom {
			return
		}
		port := rttest.Must(servo.OpenPortWait(cfg.Path, cfg.Robot.Baud, cfg.Clock, nil))(t)
		defer port.Close()
		bus := servo.NewBus(port, cfg.Robot.Baud, cfg.Robot.Protocol(), cfg.Clock)
		rttest.Do(t, servo.WriteSettings(bus, 2, cfg.Robot.Motors[1].Model,
			[]robot.Setting{{Register: table.MinPositionLimit, Value: 500},
				{Register: table.MaxPositionLimit, Value: most}}))
	}
}

// Goal: unplugging during a rescue does not make the servo move at full speed.
func TestReplugInARescue(t *testing.T) {
	t.Parallel()
	a := newSimArm(t, servosim.Config{Fitted: true}, narrowed(t, 1300, true, true))
	a.until("armed", func() bool { return a.Phase == Armed })
	copy(a.want, a.Goal)
	a.during(300 * time.Millisecond)
	a.unplug()
	a.begins = false // nothing arms the arm: the next chunk is late, or after_replug is operator
	a.replug()
	most, last := 0, a.bus.States()[1].Position
	end := time.Now().Add(4 * time.Second)
	a.until("inside", func() bool {
		at := a.bus.States()[1].Position
		most, last = max(most, last-at), at
		return time.Now().After(end)
	})
	if most > 30 {
		t.Errorf("%d counts in a tick", most)
	}
}

// Goal: arming succeeds on a bus with a permitted rate of losses.
func TestArmingOnALossyBus(t *testing.T) {
	t.Parallel()
	for _, p := range []float64{0.05, 0.1, 0.18} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			t.Parallel()
			a := newSimArm(t, servosim.Config{Faults: servosim.Script{Seed: 7,
				Faults: []servosim.Fault{{Kind: "drop", Probability: &p, From: 3 * time.Second}}}}, nil)
			a.begins = false
			a.during(3 * time.Second)
			a.begins = true
			began := time.Now()
			a.until("armed", func() bool { return a.Phase == Armed })
			t.Logf("loss %v: armed after %v", p, time.Since(began))
		})
	}
}

// Goal: no command breaks a rule when the supply is interrupted while the arm parks or is armed.
func TestPowerBlipWhileParking(t *testing.T) {
	t.Parallel()
	a := drivenArm(t)
	for j := range a.want {
		a.want[j] = a.Place[j] + 40
	}
	a.until("there", func() bool { return within(a.Goal, a.want, 0.5) })
	a.finish(a.tick.Woke)
	a.during(100 * time.Millisecond)
	a.bus.Power(false)
	a.during(150 * time.Millisecond)
	a.bus.Power(true)
	a.during(3 * time.Second)
	t.Log(a.Phase)
	rttest.Want(t, a.Phase, Done, "phase")
	a.clean()
}
