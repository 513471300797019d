package servo

import (
	"errors"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

func calibrated(t *testing.T, name string) (robot.Robot, Calibration) {
	t.Helper()
	r := rttest.Must(robot.ByName(name))(t)
	c := Calibration{}
	for _, m := range r.Motors {
		c[m.Name] = MotorCalibration{ID: int(m.ID), HomingOffset: 100, RangeMin: 1000, RangeMax: 3000}
	}
	return r, c
}

func TestCalibrationTextComesBack(t *testing.T) {
	_, c := calibrated(t, "so101")
	text := c.Text()
	if strings.ContainsAny(text, "\n ") {
		t.Errorf("more than a line: %q", text)
	}
	if back, err := ParseCalibration(text); err != nil || !maps.Equal(back, c) {
		t.Errorf("%v, %v, want %v", back, err, c)
	}
	for _, bad := range []string{"", "{}", "null", `{"a": 1}`, text + "x", strings.Repeat(" ", maxCalibration+1)} {
		if _, err := ParseCalibration(bad); !errors.Is(err, ErrCalibration) {
			t.Errorf("%.20q: %v, want %v", bad, err, ErrCalibration)
		}
	}
}

// When offset and range have moved together, a value still means the same position of the shaft,
// and Compare reports 0 degrees. Otherwise it reports the difference.
func TestCompare(t *testing.T) {
	const degree = 360. / 4095
	for _, tt := range []struct {
		name, robot, joint string
		is                 MotorCalibration
		same               bool
		want               float64
		mirrored           bool
	}{
		{"moved together", "so101", "elbow_flex", MotorCalibration{HomingOffset: 150, RangeMin: 950, RangeMax: 2950},
			true, 0, false},
		{"another offset", "so101", "elbow_flex", MotorCalibration{HomingOffset: 160, RangeMin: 1000, RangeMax: 3000},
			true, 60 * degree, false},
		{"a turn further", "so101", "elbow_flex", MotorCalibration{HomingOffset: 100 - 4096/2, RangeMin: 1000 + 2048,
			RangeMax: 3000 + 2048}, true, 0, false},
		{"another middle", "so101", "elbow_flex", MotorCalibration{HomingOffset: 100, RangeMin: 1000, RangeMax: 3100},
			true, 50 * degree, false},
		{"a wider gripper", "so101", "gripper", MotorCalibration{HomingOffset: 100, RangeMin: 1000, RangeMax: 3200},
			true, 200 * degree, false},
		{"a gripper the other way round", "so101", "gripper", MotorCalibration{
			DriveMode:    1,
			HomingOffset: 100,
			RangeMin:     1000,
			RangeMax:     3000,
		}, true, 2000 * degree, false},
		{"another arm's offset", "so101", "elbow_flex", MotorCalibration{HomingOffset: -900, RangeMin: 1000,
			RangeMax: 3000}, false, 0, false},
		{"another arm's range", "so101", "elbow_flex", MotorCalibration{HomingOffset: -900, RangeMin: 1000,
			RangeMax: 3200}, false, 100 * degree, false},
		{"a Dynamixel's offset", "koch", "elbow_flex", MotorCalibration{HomingOffset: 160, RangeMin: 1060,
			RangeMax: 3060}, true, 0, false},
		{"a Dynamixel the other way round", "koch", "elbow_flex", MotorCalibration{
			DriveMode:    1,
			HomingOffset: 100,
			RangeMin:     1000,
			RangeMax:     3000,
		}, true, 0, true},
		{"a range of nothing", "so101", "elbow_flex", MotorCalibration{}, true, 360, false},
	} {
		r, was := calibrated(t, tt.robot)
		is := maps.Clone(was)
		tt.is.ID = was[tt.joint].ID
		is[tt.joint] = tt.is
		got := Compare(r, was, is, tt.same)
		if len(got) != 1 || got[0].Joint != tt.joint || got[0].Mirrored != tt.mirrored ||
			math.Abs(got[0].Degrees-tt.want) > 1.5*degree {
			t.Errorf("%s: %+v, want %s by %.2f degrees", tt.name, got, tt.joint, tt.want)
			continue
		}
		if says := got[0].String(); !strings.HasPrefix(says, tt.joint+": range 1000..3000, homing_offset 100") {
			t.Errorf("%s: it says %q", tt.name, says)
		}
	}
	r, was := calibrated(t, "so101")
	rttest.Want(t, len(Compare(r, was, maps.Clone(was), true)), 0, "the same")
	is := maps.Clone(was)
	delete(is, "elbow_flex")
	if got := Compare(r, was, is, true); len(got) != 1 || got[0].Degrees != 360 {
		t.Errorf("a motor less: %v", got)
	}
}

func FuzzCalibrationText(f *testing.F) {
	f.Add(`{"a":{"id":1,"drive_mode":0,"homing_offset":0,"range_min":1,"range_max":2}}`)
	f.Add(string(demoCalibration().json()))
	f.Add(`{"a": null}`)
	f.Add(`{"\u007f":{"id":1,"drive_mode":0,"homing_offset":0,"range_min":1,"range_max":2}}`)
	r := so101()
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCalibration(text)
		if err != nil {
			return
		}
		if back, err := ParseCalibration(c.Text()); err != nil || !maps.Equal(back, c) {
			t.Errorf("%v, %v, want %v", back, err, c)
		}
		for _, d := range Compare(r, c, c, true) {
			t.Errorf("differs from itself: %v", d)
		}
	})
}
