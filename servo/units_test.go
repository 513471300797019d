package servo

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// motorOf returns an STS3215; the driver applies the drive_mode of this model.
func motorOf(mode robot.NormMode) robot.Motor {
	m := so101().Motors[0]
	m.Norm = mode
	return m
}

type normRow struct {
	Mode    string
	Min     int
	Max     int
	Drive   int
	Raw     int
	User    float64
	Back    int
	BackF32 int `json:"back_f32"`
}

const normGolden = "../testdata/golden/motor_norm.json"

// Goal: units and positions equal those of LeRobot's Python, to the last bit and the last encoder
// step, also after a conversion to float32, as in policies.
func TestUnitsMatchLeRobot(t *testing.T) {
	modes := map[string]robot.NormMode{"m100": robot.RangeM100, "p100": robot.Range0100, "deg": robot.Degrees}
	for _, r := range rttest.Cases[normRow](t, normGolden, "motor_norm") {
		s := newScale(motorOf(modes[r.Mode]), MotorCalibration{DriveMode: r.Drive, RangeMin: r.Min, RangeMax: r.Max})
		user := s.value(r.Raw)
		back, back32 := s.raw(user), s.raw(float64(float32(user)))
		if user != r.User || back != r.Back || back32 != r.BackF32 {
			t.Errorf("%s drive %d range %d to %d: %d -> %v -> %d, through float32 %d, want %v, %d, %d",
				r.Mode, r.Drive, r.Min, r.Max, r.Raw, user, back, back32, r.User, r.Back, r.BackF32)
		}
	}
}

func TestUnitsGoldenIsUnchanged(t *testing.T) {
	source := filepath.Join("..", "..", "shared", "vectors", "lerobot_goldens.json")
	if _, err := os.Stat(source); err != nil {
		t.Skip("the original vectors are not here: ", err)
	}
	got, want := rttest.Cases[normRow](t, normGolden, "motor_norm"), rttest.Cases[normRow](t, source, "motor_norm")
	if !reflect.DeepEqual(got, want) {
		t.Error("testdata/golden/motor_norm.json differs from its source")
	}
}

// Outside the range the result of value stops at the edge, while unclamped and raw continue
// linearly, so that a joint outside can get its position as a goal. In a range below zero, as on a
// Dynamixel of several turns, raw truncates toward zero as Python does.
func TestOutsideTheRange(t *testing.T) {
	for _, tt := range []struct {
		name     string
		mode     robot.NormMode
		drive    int
		min, max int
		in       float64
		count    int
		value    float64 // the count in the unit
	}{
		{"degrees go on", robot.Degrees, 0, 0, 4095, -200, -227, -199.95604395604394},
		{"degrees are bounded", robot.Degrees, 0, 0, 4095, 1e30, 11377047, 999999.956043956},
		{"0 to 100 above", robot.Range0100, 0, 0, 4000, 101, 4040, 100},
		{"0 to 100 below, reversed", robot.Range0100, 1, 0, 4000, -1, 4040, 0},
		{"-100 to 100 below", robot.RangeM100, 0, 1000, 3000, -101, 990, -100},
		{"-100 to 100 below, reversed", robot.RangeM100, 1, 1000, 3000, -101, 3010, -100},
		{"the end of the range is inside", robot.RangeM100, 0, 0, 4095, 100, 4095, 100},
		{"below zero", robot.Range0100, 0, -1001, 1000, 10.01, -800, 10.044977511244377},
	} {
		s := newScale(motorOf(tt.mode), MotorCalibration{DriveMode: tt.drive, RangeMin: tt.min, RangeMax: tt.max})
		rttest.Want(t, s.raw(tt.in), tt.count, "%s: count(%v)", tt.name, tt.in)
		rttest.Want(t, s.value(tt.count), tt.value, "%s: value(%d)", tt.name, tt.count)
		if got := s.raw(s.unclamped(tt.count)); got < tt.count-1 || got > tt.count+1 {
			t.Errorf("%s: %d comes back as %d", tt.name, tt.count, got)
		}
	}
}
