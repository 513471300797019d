package servo

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"edgert/servo/robot"
)

// motorOf is an STS3215, whose drive_mode the host applies.
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

func normRows(t *testing.T, path string) []normRow {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Rows []normRow `json:"motor_norm"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Rows) == 0 {
		t.Fatalf("%s has no motor_norm", path)
	}
	return file.Rows
}

const normGolden = "../testdata/golden/motor_norm.json"

// Goal: the same numbers as LeRobot's Python, to the last bit and the last
// encoder step, also after a trip through float32 as policies make it.
func TestUnitsMatchLeRobot(t *testing.T) {
	modes := map[string]robot.NormMode{"m100": robot.RangeM100, "p100": robot.Range0100, "deg": robot.Degrees}
	for _, r := range normRows(t, normGolden) {
		s := newScale(motorOf(modes[r.Mode]), MotorCalibration{DriveMode: r.Drive, RangeMin: r.Min, RangeMax: r.Max})
		user := s.value(r.Raw)
		back, _ := s.raw(user)
		back32, _ := s.raw(float64(float32(user)))
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
	if got, want := normRows(t, normGolden), normRows(t, source); !reflect.DeepEqual(got, want) {
		t.Error("testdata/golden/motor_norm.json differs from its source")
	}
}

func TestRawOutsideTheRange(t *testing.T) {
	tests := []struct {
		name        string
		mode        robot.NormMode
		drive       int
		in          float64
		want        int
		wantClamped bool
	}{
		{"degrees go on", robot.Degrees, 0, -200, -227, false},
		{"degrees are bounded", robot.Degrees, 0, 1e30, 11377047, false},
		{"0 to 100 clamps above", robot.Range0100, 0, 100.5, 4095, true},
		{"0 to 100 clamps below, reversed", robot.Range0100, 1, -1, 4095, true},
		{"-100 to 100 clamps", robot.RangeM100, 0, -101, 0, true},
		{"the end of the range is inside", robot.RangeM100, 0, 100, 4095, false},
	}
	for _, tt := range tests {
		s := newScale(motorOf(tt.mode), MotorCalibration{DriveMode: tt.drive, RangeMax: 4095})
		if got, clamped := s.raw(tt.in); got != tt.want || clamped != tt.wantClamped {
			t.Errorf("%s: raw(%v) = %d, %v, want %d, %v", tt.name, tt.in, got, clamped, tt.want, tt.wantClamped)
		}
	}
}
