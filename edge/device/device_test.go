package device

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
)

func TestFailuresCarryTheirExitCode(t *testing.T) {
	t.Setenv("HF_LEROBOT_CALIBRATION", t.TempDir())
	broken := rttest.WriteFile(t, t.TempDir(), "broken.yaml", "fps: 30\n")
	so101 := rttest.Must(Robot("so101"))(t)
	robotError := func(name string) error { _, err := Robot(name); return err }
	other := filepath.Join(t.TempDir(), "other.json")
	rttest.Do(t, (servo.Calibration{"tail": {ID: 1, RangeMax: 1}}).Save(other))
	loadError := func(p Place) error { p.Robot = so101; _, err := p.Load(); return err }
	_, absent := OpenArm(servo.ArmConfig{Path: "/dev/ttyNONE", Robot: so101, Clock: rt.KernelClock()})
	for _, tt := range []struct {
		name string
		err  error
		code exit.Code
		says string
	}{
		{"no such robot", robotError("r2d2"), exit.Usage, "so101"},
		{"a description that is none", robotError(broken), exit.Config, broken},
		{"never calibrated", loadError(Place{Bus: "/dev/a", ID: "black"}), exit.Config,
			"edge-rt calibrate --bus /dev/a --robot so101"},
		{"no such file", loadError(Place{Calibration: "/none.json"}), exit.Config, "/none.json"},
		{"a file that is no calibration", loadError(Place{Calibration: broken}), exit.Config, broken},
		{"another robot's calibration", loadError(Place{Calibration: other}), exit.Config, other},
		{"an arm without a calibration", absent, exit.Config, "calibrat"},
	} {
		rttest.Ends(t, tt.err, tt.code, tt.says)
	}
}

// A hint is a command that works as printed: with the arm's own id, robot and file.
func TestHintsHoldTheFlagsThatWereGiven(t *testing.T) {
	t.Setenv("HF_LEROBOT_CALIBRATION", t.TempDir())
	koch := rttest.Must(Robot("koch"))(t)
	file := filepath.Join(t.TempDir(), "my arm.json")
	for _, tt := range []struct {
		place Place
		want  string
	}{
		{Place{Bus: "/dev/ttyUSB0", Robot: koch, ID: "blue"},
			"or run edge-rt calibrate --bus /dev/ttyUSB0 --robot koch --id blue"},
		{Place{
			Bus:   "/dev/ttyUSB0",
			Robot: koch,
			ID:    "white",
			Flags: "leader-",
		}, "or run edge-rt calibrate --bus /dev/ttyUSB0 --robot koch --id white"},
		{Place{Bus: "/dev/tty'0", Robot: koch, Calibration: file},
			`or run edge-rt calibrate --bus '/dev/tty'\''0' --robot koch --calibration '` + file + "'"},
	} {
		if _, err := tt.place.Load(); err == nil || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%v\nwant %s", err, tt.want)
		}
	}
	if got, want := TorqueOff("/dev/ttyUSB0", koch), "edge-rt torque off --bus /dev/ttyUSB0 --robot koch"; got != want {
		t.Errorf("TorqueOff = %s, want %s: the motors of another robot speak another protocol", got, want)
	}
}

// The error for an SO-101 without a calibration names the SO-100 that has one: on the bus they are the same.
func TestNoCalibrationNamesTheArmThatHasOne(t *testing.T) {
	root := t.TempDir()
	t.Setenv("HF_LEROBOT_CALIBRATION", root)
	rttest.Do(t, (servo.Calibration{"tail": {ID: 1, RangeMax: 1}}).Save(root+"/robots/so100_follower/black.json"))
	for id, here := range map[string]bool{"": true, "black": true, "white": false} {
		p := Place{Robot: rttest.Must(Robot("so101"))(t), ID: id}
		_, err := p.Load()
		if err == nil || strings.HasSuffix(err.Error(), "; there is one for --robot so100") != here {
			t.Errorf("id %q: %v", id, err)
		}
	}
}

// The error for an arm without a calibration names the flags of that arm.
func TestNoCalibrationNamesTheArmsFlags(t *testing.T) {
	for prefix, want := range map[string]string{"": "give the --id under which it was calibrated, or --calibration " +
		"FILE, or", "leader-": "give the --leader-id under which it was calibrated, or --leader-calibration FILE, or"} {
		p := Place{Bus: "/dev/ttyACM1", Calibration: filepath.Join(t.TempDir(), "none.json"), Flags: prefix}
		rttest.Ends(t, rttest.Err(p.Load()), exit.Config, want, "calibrate --bus /dev/ttyACM1")
	}
}
