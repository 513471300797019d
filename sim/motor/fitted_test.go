package motor

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Switching the torque off clears the sum of the I gain.
func TestTorqueOffForgetsTheSum(t *testing.T) {
	f := NewFitted([]Joint{{
		Motor:  Motor{Volts: 12, KT: 1.88, Ohm: 15, Inertia: 0.012, Coulomb: 0.04, Viscous: 0.03, Stall: 1.5},
		Counts: 4096,
		Arc:    6.28,
		Load:   Load{Gravity: 0.5, Level: 2048},
	}}, 0)
	f.Tune(0, 0, Loop{Gain: 0.01, Sum: 1e-5, DutyMax: 1, AmpsMax: 10})
	f.Goal(0, 0, 2048)
	f.Torque(0, 0, true)
	now := rt.Instant(time.Second)
	f.Present(now, 0)
	if f.joints[0].summed == 0 {
		t.Fatal("nothing is summed up under a load")
	}
	f.Torque(now, 0, false)
	f.Torque(now, 0, true)
	rttest.Want(t, f.joints[0].summed, 0, "rest of the sum")
}

// The methods of motors allocate nothing, because the simulator's thread calls them.
func TestMotorsAllocateNothing(t *testing.T) {
	joints := []Joint{{Motor: Motor{Volts: 12, KT: 1.88, Ohm: 15, Inertia: 0.012, Stall: 1.5}, Counts: 4096, Arc: 6.28}}
	fitted, ideal := NewFitted(joints, 0), NewIdeal(joints)
	var encoder Encoder
	heat := NewHeat(0)
	obstacle := ObstacleAt(3000, 2048, true)
	now := rt.Instant(0)
	rttest.NoAllocs(t, "%v allocations, want 0", 100, func() {
		now = now.Add(time.Millisecond)
		encoder.Fail(EncoderFault{Drift: 100}, ideal.Present(now, 0), now)
		to := obstacle.Clamp(encoder.Target(3500, ideal.Present(now, 0), 4096, now))
		ideal.Goal(now, 0, to)
		fitted.Goal(now, 0, to)
		_, amps, _ := fitted.Drive(now, 0)
		heat.Advance(&joints[0].Motor, amps, now)
		obstacle.Press(false, now)
	})
}

// All motors load one supply, and a motor's new current replaces its old current.
func TestTheSupplySagsUnderTheLoadOfAll(t *testing.T) {
	var r Rail
	r.Draw(0, 2)
	r.Draw(0, 4)
	r.Draw(2, 1)
	if v := r.Volts(7.4); v < 6.64 || v > 6.66 {
		t.Errorf("%.2f V under 5 A, want 6.65", v)
	}
	if r.Draw(0, 1000); r.Volts(7.4) < 2.3 {
		t.Errorf("%.2f V, want that the supply loses 5 V at most", r.Volts(7.4))
	}
}
