package servo

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

const demoFile = "../testdata/demo/so101.json"

func TestCalibrationFileRoundTrip(t *testing.T) {
	c := rttest.Must(LoadCalibration(demoFile))(t)
	if !reflect.DeepEqual(c, demoCalibration()) {
		t.Errorf("LoadCalibration(%s) = %+v, want %+v", demoFile, c, demoCalibration())
	}
	if err := c.Check(so101()); err != nil {
		t.Errorf("Check = %v, want nil", err)
	}
	path := filepath.Join(t.TempDir(), "robots", "so_follower", "black.json")
	rttest.Do(t, c.Save(path))
	got, _ := os.ReadFile(path)
	want, _ := os.ReadFile(demoFile) // written by Python's json.dump(indent=4)
	if strings.TrimSpace(string(got)) != strings.TrimSpace(string(want)) {
		t.Errorf("Save wrote\n%s\nwant\n%s", got, want)
	}
}

func TestLoadCalibrationRefuses(t *testing.T) {
	const motor = `"id": 1, "drive_mode": 0, "homing_offset": 0, "range_min": 0, "range_max": 4095`
	for _, tt := range []struct{ name, text, want string }{
		{"not JSON", `id: 1`, "want a JSON object of motors"},
		{"empty", ``, "want a JSON object of motors: EOF"},
		{"half a file", `{"a": {` + motor, "unexpected EOF"},
		{"a list", `[1]`, "want a JSON object of motors"},
		{"no motors", `{}`, "got an empty one"},
		{"more after it", `{"a": {` + motor + `}} {}`, "more after it"},
		{"a motor that is null", `{"a": null}`, "motor a: got null"},
		{"LeRobot's old lists",
			`{"homing_offset": [0], "drive_mode": [0], "start_pos": [1], "end_pos": [2], "calib_mode": ["DEGREE"], "motor_names": ["a"]}`, "before June 2025"},
		{"a missing key", `{"a": {"id": 1, "drive_mode": 0, "range_min": 0, "range_max": 4095}}`,
			"motor a: no homing_offset"},
		{"an unknown key", `{"a": {` + motor + `, "speed": 1}}`, `unknown field "speed"`},
		{"a fraction", `{"a": {"id": 1.5}}`, "motor a: got number 1.5 for id, want a whole number"},
		{"a word", `{"a": {"id": "1"}}`, "motor a: got string for id, want a whole number"},
		{"a motor twice", `{"a": {` + motor + `}, "a": {` + motor + `}}`, "a occurs twice"},
		{"two motors whose names differ in case", `{"a": {` + motor + `}, "A": {"id": 1.5}}`, "motor A"},
		{"a key twice", `{"a": {` + motor + `, "ID": 2}}`, "id occurs twice"},
		{"a range beyond any encoder", strings.Replace(`{"a": {`+motor+`}}`, "4095", "1000000000", 1),
			"no encoder counts that far"},
		{"an empty range", strings.Replace(`{"a": {`+motor+`}}`, "4095", "0", 1), "range_min and range_max are both 0"},
		{"a range that runs down", strings.Replace(`{"a": {`+motor+`}}`, `"range_min": 0`, `"range_min": 4096`, 1),
			"got range 4096 to 4095"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := rttest.WriteFile(t, t.TempDir(), "c.json", tt.text)
			_, err := LoadCalibration(path)
			rttest.FailsAs(t, err, ErrCalibration, tt.want, path, otherFile)
		})
	}
	if _, err := LoadCalibration("/none/such.json"); !errors.Is(err, os.ErrNotExist) ||
		!errors.Is(err, ErrCalibration) {
		t.Errorf("LoadCalibration of no file = %v, want both reasons", err)
	}
}

func TestCheckNamesTheMotor(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(Calibration)
		want   string
	}{
		{"a missing motor", func(c Calibration) {
			delete(c, "gripper")
		}, "no motor gripper, which so101 has; it has shoulder_pan, shoulder_lift"},
		{"an unknown motor", func(c Calibration) {
			c["tail"] = MotorCalibration{ID: 7, RangeMax: 1}
		}, "unknown motor tail"},
		{"a wrong id", func(c Calibration) {
			c["gripper"] = MotorCalibration{ID: 5, RangeMax: 1}
		}, "motor gripper: got id 5, want 6"},
		{"an empty range", func(c Calibration) {
			c["gripper"] = MotorCalibration{ID: 6, RangeMin: 7, RangeMax: 7}
		}, "motor gripper: range_min and range_max are both 7"},
		{"an encoder's noise", func(c Calibration) {
			c["elbow_flex"] = MotorCalibration{ID: 3, RangeMin: 2046, RangeMax: 2048}
		},
			"motor elbow_flex: got range 2046 to 2048, which is 0.2 degrees (2 counts): the joint was not moved"},
		{"a direction that is none", func(c Calibration) {
			c["gripper"] = MotorCalibration{ID: 6, RangeMax: 4095, DriveMode: 7}
		}, "motor gripper: drive_mode: got 7, want 0 or 1"},
		{"more than a turn", func(c Calibration) {
			c["gripper"] = MotorCalibration{ID: 6, RangeMax: 4096}
		}, "motor gripper: got range 0 to 4096, want 0 <= range_min < range_max <= 4095"},
		{"less than nothing", func(c Calibration) {
			c["gripper"] = MotorCalibration{ID: 6, RangeMin: -1, RangeMax: 4095}
		}, "motor gripper: got range -1 to 4095, want 0 <= range_min"},
		{"an offset that does not fit", func(c Calibration) {
			c["gripper"] = MotorCalibration{ID: 6, RangeMax: 9, HomingOffset: 2048}
		}, "Homing_Offset = 2048 does not fit"},
	} {
		c := demoCalibration()
		tt.change(c)
		rttest.FailsAs(t, c.Check(so101()), ErrCalibration, tt.want, "edge-rt calibrate")
	}
}

// Goal: OpenArm notes the range of a calibrated joint that is the encoder's whole turn, as LeRobot records it for a
// joint that passes the encoder's end. A joint without stops has this range, and so has an arm that was never
// calibrated.
func TestWholeTurnIsNoted(t *testing.T) {
	l := sixMotors()
	cfg := l.config()
	for id, name := range map[int]string{2: "shoulder_lift", 5: "wrist_roll"} {
		l.servos[id].put(31, 100)
		cfg.Calibration[name] = MotorCalibration{ID: id, HomingOffset: 100, RangeMin: 2, RangeMax: 4093}
	}
	a := rttest.Must(OpenArm(cfg))(t)
	notes := strings.Join(a.Notes(), "\n")
	const why = "its calibrated range, 2 to 4093, is the encoder's whole turn"
	if !strings.Contains(notes, "motor 2 (shoulder_lift): "+why) || strings.Count(notes, "whole turn") != 1 {
		t.Errorf("notes %q", notes)
	}
}

func TestCalibrationPath(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HF_LEROBOT_CALIBRATION", dir)
	rttest.Do(t, demoCalibration().Save(dir+"/robots/so101_follower/old.json"))
	for id, want := range map[string]string{"": "so_follower/None.json", "old": "so101_follower/old.json"} {
		if got := CalibrationPath(so101(), id); got != dir+"/robots/"+want {
			t.Errorf("CalibrationPath(so101, %q) = %s, want %s", id, got, want)
		}
	}
}
