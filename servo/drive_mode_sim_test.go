package servo_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// withDriveMode opens a bus on which the motor of elbow_flex has Drive_Mode := motor. In the calibration of the
// returned configuration, the joint has drive_mode := file.
func withDriveMode(t *testing.T, name string, file, motor int) servo.ArmConfig {
	t.Helper()
	r := robotOf(t, name)
	bus := simOf(t, r, servosim.Config{})
	cfg := config(bus, r)
	k := cfg.Calibration["elbow_flex"]
	k.DriveMode = file
	cfg.Calibration["elbow_flex"] = k
	if m := r.Motors[2]; m.Model.Has(table.DriveMode) {
		onBus(t, bus, r, func(b *servo.Bus) { write(t, b, m, table.DriveMode, motor) })
	}
	return cfg
}

// Goal: an arm whose motor counts in the other direction than its calibration is refused. The error names the
// motor, both values and a cure. Bits of Drive_Mode that do not set the direction are ignored.
func TestDriveModeIsCompared(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		robot       string
		file, motor int
		refused     bool
	}{
		{"koch", 1, 0, true},
		{"koch", 0, 1, true},
		{"koch", 1, 1, false},
		{"koch", 0, 4, false},
		{"koch", 0, 5, true},
		{"koch_leader", 1, 0, true},
		{"koch_leader", 0, 1, true},
		{"omx", 1, 0, true},
		{"omx_leader", 1, 1, true},  // the description sets 0
		{"omx_leader", 0, 1, false}, // OpenArm writes the 0 of the description
	} {
		cfg := withDriveMode(t, tt.robot, tt.file, tt.motor)
		if tt.robot == "omx_leader" {
			k := cfg.Calibration["gripper"]
			k.DriveMode = 1
			cfg.Calibration["gripper"] = k
		}
		err := opens(cfg)
		if errors.Is(err, servo.ErrCalibration) != tt.refused || err != nil && !tt.refused {
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		if err != nil && (!rttest.Says(err, "elbow_flex", fmt.Sprint("drive_mode ", tt.file), "edge-rt calibrate")) {
			t.Errorf("%+v: %v, want joint, values and cure", tt, err)
		}
	}
}

// Goal: a drive_mode without an effect is reported, a drive_mode with an effect is not.
func TestDriveModeWithoutEffect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		robot    string
		reported bool
	}{{"so101", true}, {"so101_leader", true}, {"generic", false}} {
		cfg := withDriveMode(t, "so101", 1, 0)
		if tt.robot != "so101" {
			cfg.Robot = robotOf(t, tt.robot)
		}
		if tt.robot == "generic" { // range_m100_100 reverses the joint
			cfg.Calibration = whole(cfg.Robot)
			cfg.Calibration["joint_3"] = servo.MotorCalibration{ID: 3, DriveMode: 1, RangeMax: 4095}
		}
		arm := mustOpen(t, cfg)
		if notes := strings.Join(arm.Notes(),
			"\n"); strings.Contains(notes, "elbow_flex): its calibration has drive_mode 1") != tt.reported {
			t.Errorf("%s: notes %q", tt.robot, notes)
		}
	}
}

// Goal: OpenArm refuses a homing offset that a Dynamixel ignores in the mode in which it is driven, since the joint
// would be elsewhere than in the calibration.
func TestHomingOffsetThatIsIgnored(t *testing.T) {
	t.Parallel()
	for _, text := range []string{xmArm, strings.Replace(xmArm, ", Operating_Mode: 3", "", 1)} {
		for offset, refused := range map[int]bool{1024: false, -1025: true} {
			r := rttest.Must(robot.Parse("xm", []byte(text)))(t)
			bus := simOf(t, r, servosim.Config{})
			onBus(t, bus, r, func(b *servo.Bus) { write(t, b, r.Motors[1], table.HomingOffset, offset) })
			cfg := config(bus, r)
			cfg.Calibration["b"] = servo.MotorCalibration{ID: 2, HomingOffset: offset, RangeMax: 4095}
			err := opens(cfg)
			if errors.Is(err, servo.ErrCalibration) != refused || err != nil &&
				!rttest.Says(err, "in Operating_Mode 3 a Dynamixel ignores an offset beyond 1024") {
				t.Errorf("offset %d: %v, want it refused: %v", offset, err, refused)
			}
		}
	}
}

// Goal: OpenArm notes a range that edge-rt calibrate would not accept, since the range may be on purpose.
func TestNarrowRangeIsNoted(t *testing.T) {
	t.Parallel()
	cfg := withDriveMode(t, "so101", 0, 0)
	for name, half := range map[string]int{"elbow_flex": 28, "gripper": 114} {
		c := cfg.Calibration[name]
		c.RangeMin, c.RangeMax = 2047-half, 2047+half
		cfg.Calibration[name] = c
	}
	notes := strings.Join(mustOpen(t, cfg).Notes(), "\n")
	if !strings.Contains(notes, "(elbow_flex): its calibrated range has 4.9 degrees, want at least 45") ||
		strings.Contains(notes, "gripper") {
		t.Errorf("notes %q", notes)
	}
}
