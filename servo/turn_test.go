package servo

import (
	"errors"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: InTurn moves a position that is known modulo one turn into the turn that fits the range.
func TestInTurn(t *testing.T) {
	for _, tt := range []struct {
		why                  string
		raw, low, high, want int
	}{
		{"a Koch's shoulder after a restart", 3900, -306, 2419, -196},
		{"inside stays", 2000, -306, 2419, 2000},
		{"a gripper a turn above", 2719 + 1300, -200, 1306, -77},
		{"a turn below", -3000, 900, 3100, 1096},
		{"several turns above", 3*4096 + 100, 0, 4095, 100},
		{"several turns below", -5*4096 + 100, 0, 4095, 100},
		{"the homing of a servo that reads 4196", 4196, 0, 4095, 100},
		{"no turn fits: the nearer end", 3500, 900, 3100, 3500},
		{"no turn fits: the other end", 4500, 900, 3100, 404},
		{"a range of more than a turn keeps what is inside", 4150, -200, 4200, 4150},
		{"a range of more than a turn takes the nearest of two", 4250, -200, 4200, 154},
		{"beyond the seam of a servo that counts no turns", 14, 2900, 4000, 4110},
		{"on the edges", -306, -306, 2419, -306},
	} {
		rttest.Want(t, InTurn(tt.raw, tt.low, tt.high, 4096), tt.want, "%s: %d in %d to %d", tt.why, tt.raw, tt.low,
			tt.high)
	}
	rttest.Want(t, InTurn(5000, 0, 1023, 0), 5000, "without a turn 5000 became")
}

// Property: for any numbers, no other turn than InTurn's is nearer to the range.
func FuzzInTurn(f *testing.F) {
	f.Add(3900, -306, 2419)
	f.Fuzz(func(t *testing.T, raw, low, high int) {
		if max(raw, -raw) > maxRaw || max(low, -low) > maxRaw || max(high, -high) > maxRaw || low > high {
			return
		}
		const turn = 4096
		got := InTurn(raw, low, high, turn)
		if (got-raw)%turn != 0 {
			t.Fatalf("%d became %d, which is not whole turns away", raw, got)
		}
		for _, other := range []int{got - turn, got + turn} {
			if outside(other, low, high) < outside(got, low, high) {
				t.Fatalf("%d in %d to %d: %d is nearer than %d", raw, low, high, other, got)
			}
		}
	})
}

// Goal: Rescue refuses a joint that may be beyond its encoder's seam, on the other side of its range, and the error
// recommends moving the joint by hand. It permits other joints.
func TestRescueOverTheSeam(t *testing.T) {
	for _, tt := range []struct {
		low, high, at int
		byHand        bool
	}{
		{2900, 4000, 14, true},    // a stop at 4120
		{2900, 4000, 2700, false}, // below
		{100, 1500, 4050, true},
		{100, 3900, 50, false},
		{900, 3100, 20, true}, // in the middle of the gap outside the range: either side is possible
		{900, 3100, 600, false},
		{900, 3100, 5000, true}, // a servo of one turn never has this position
	} {
		l := sixMotors()
		cfg := l.config()
		cfg.Calibration["elbow_flex"] = MotorCalibration{ID: 3, RangeMin: tt.low, RangeMax: tt.high}
		l.servos[3].put(56, tt.at)
		a := rttest.Must(OpenArm(cfg))(t)
		err := l.arming(a, func() {})
		if strange := tt.at > 4095; rttest.Says(err, "0 to 4095: it counts turns") != strange ||
			strange && rttest.Says(err, "other side") {
			t.Errorf("%+v: arming says %v", tt, err)
		}
		if !errors.Is(err, ErrOutOfRange) || rttest.Says(err, "--rescue") == tt.byHand {
			t.Errorf("%+v: arming says %v", tt, err)
		}
		l.forget()
		if err := a.Rescue(); errors.Is(err, ErrOutOfRange) != tt.byHand {
			t.Errorf("%+v: rescue says %v", tt, err)
		}
		if tt.byHand && l.writes > 0 {
			t.Errorf("%+v: a refused rescue wrote %v", tt, l.log)
		}
	}
}
