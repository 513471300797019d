package device

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
)

// calibratedArm returns a simulated arm whose motors have the registers of c, and a folder of
// LeRobot's calibrations with the given files.
func calibratedArm(t *testing.T, name string, c servo.Calibration, files map[string]servo.Calibration) (Place, string) {
	t.Helper()
	rttest.RealTime(t) // simulated motors answer within real time-outs
	root := t.TempDir()
	t.Setenv("HF_LEROBOT_CALIBRATION", root)
	r := rttest.Must(Robot(name))(t)
	folder := filepath.Join(root, r.Role(), r.Calibration[0])
	for id, f := range files {
		rttest.Do(t, f.Save(filepath.Join(folder, id+".json")))
	}
	bus := servosimtest.Open(t, SimBus(r, nil, rt.KernelClock()))
	writeCalibration(t, bus.Path(), r, c)
	return Place{Bus: bus.Path(), Robot: r}, folder
}

// armAt returns the configuration of the arm at a place.
func armAt(p Place) servo.ArmConfig {
	return servo.ArmConfig{Path: p.Bus, Robot: p.Robot, Clock: rt.KernelClock()}
}

func writeCalibration(t *testing.T, path string, r robot.Robot, c servo.Calibration) {
	t.Helper()
	port := rttest.Must(servo.OpenPort(path, r.Baud))(t)
	defer port.Close()
	bus := servo.NewBus(port, r.Baud, r.Protocol(), rt.KernelClock())
	bus.SetRetry(20, 20*time.Millisecond) // the machine may be busy
	for _, m := range r.Motors {
		k := c[m.Name]
		for register, v := range map[table.Register]int{table.HomingOffset: k.HomingOffset,
			table.DriveMode: k.DriveMode, table.MinPositionLimit: k.RangeMin, table.MaxPositionLimit: k.RangeMax} {
			if !m.Model.Has(register) {
				continue
			}
			rttest.Do(t, bus.WriteRegister(m.ID, m.Model.Row(register), v))
		}
	}
}

// ranges returns a calibration with this offset and range for all joints.
func ranges(t *testing.T, name string, offset, low, high int) servo.Calibration {
	t.Helper()
	r := rttest.Must(Robot(name))(t)
	c := servo.Calibration{}
	for _, m := range r.Motors {
		c[m.Name] = servo.MotorCalibration{
			ID:           int(m.ID),
			DriveMode:    m.DriveMode,
			HomingOffset: offset,
			RangeMin:     low,
			RangeMax:     high,
		}
	}
	return c
}

// changed returns a copy with another calibration of one joint.
func changed(c servo.Calibration, joint string, change func(*servo.MotorCalibration)) servo.Calibration {
	other := servo.Calibration{}
	for name, m := range c {
		if name == joint {
			change(&m)
		}
		other[name] = m
	}
	return other
}

// Without --id and --calibration the file whose values the motors have is chosen.
func TestTheMotorsChooseTheCalibration(t *testing.T) {
	arm := ranges(t, "so101", 100, 900, 3100)
	limit := changed(arm, "elbow_flex", func(m *servo.MotorCalibration) { m.RangeMax++ })
	offset := changed(arm, "gripper", func(m *servo.MotorCalibration) { m.HomingOffset = -100 })
	ids := changed(arm, "gripper", func(m *servo.MotorCalibration) { m.ID = 16 })
	type files = map[string]servo.Calibration
	for _, tt := range []struct {
		name  string
		files files
		taken string   // id of the chosen file; empty: the choice is refused
		says  []string // parts of Taken or of the error
	}{
		{"the only file", files{"black": arm}, "black", []string{"black.json", "the only one"}},
		{"one of three", files{"a": limit, "black": arm, "c": offset},
			"black", []string{"black.json", "the only match for the motors among 3 files"}},
		{"other ids", files{"a": ids, "black": arm}, "black", []string{"among 2 files"}},
		{"a file without an id comes first", files{"None": arm, "black": arm}, unnamed, []string{"without an id"}},
		{"a file without an id of another arm", files{"None": offset, "black": arm},
			"black", []string{"among 2 files"}},
		{"two match", files{"black": arm, "white": arm, "c": limit}, "",
			[]string{"2 calibrations match", "black.json", "white.json", "--id", "one of black, white"}},
		{"none matches", files{"a": limit, "b": offset}, "",
			[]string{"a.json", "(elbow_flex)", "b.json", "(gripper)", "edge-rt calibrate --bus", "--calibration FILE"}},
		{"the only file is another arm's", files{"a": limit}, "", []string{"a.json", "(elbow_flex)"}},
		{"other ids only", files{"a": ids}, "", []string{"a.json", "gripper"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, folder := calibratedArm(t, "so101", arm, tt.files)
			c, err := p.Load()
			if err != nil || c != nil {
				t.Fatalf("Load = %v, %v, want nothing yet: the motors say which", c, err)
			}
			cfg := armAt(p)
			opened, err := p.Open(&cfg)
			for errors.Is(err, servo.ErrNoReply) { // a busy machine: edge-rt opens the arm again, too
				opened, err = p.Open(&cfg)
			}
			if err == nil {
				defer opened.Close()
			}
			if (err == nil) != (tt.taken != "") {
				t.Fatalf("Open: %v, want file %q", err, tt.taken)
			}
			text := p.Taken
			if err != nil {
				text = err.Error()
				rttest.Ends(t, err, exit.Config)
			} else if want := filepath.Join(folder, tt.taken+".json"); !strings.Contains(text, want) {
				t.Errorf("Taken is %q, want the file %s", text, want)
			}
			for _, want := range tt.says {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q: %s", want, text)
				}
			}
		})
	}
}

// Two files that differ only in a drive mode are different: a Dynamixel's register decides between
// them.
func TestDriveModesChoose(t *testing.T) {
	arm := ranges(t, "koch", 100, 900, 3100)
	mirrored := changed(arm, "elbow_flex", func(m *servo.MotorCalibration) { m.DriveMode = 1 - m.DriveMode })
	p, folder := calibratedArm(t, "koch", arm, map[string]servo.Calibration{"a": mirrored, "black": arm})
	cfg := armAt(p)
	opened := rttest.Must(p.Open(&cfg))(t)
	defer opened.Close()
	if want := filepath.Join(folder, "black.json"); cfg.File != want || !strings.Contains(p.Taken, want) {
		t.Errorf("it took %s (%s), want %s", cfg.File, p.Taken, want)
	}
}

// A file that cannot be read is named in the error when no other file matches; otherwise it is
// skipped.
func TestUnreadableCalibrationsDoNotMatch(t *testing.T) {
	arm := ranges(t, "so101", 0, 900, 3100)
	p, folder := calibratedArm(t, "so101", arm, map[string]servo.Calibration{"black": arm})
	rttest.WriteFile(t, folder, "a.json", "[]")
	open := func() error {
		cfg := armAt(p)
		opened, err := p.Open(&cfg)
		if err == nil {
			opened.Close()
		}
		return err
	}
	if err := open(); err != nil {
		t.Errorf("with one broken file beside it: %v", err)
	}
	rttest.Do(t, os.Remove(filepath.Join(folder, "black.json")))
	rttest.Ends(t, open(), exit.Config, "a.json") // the folder has only a broken file
}

// An arm that does not answer while its calibration is chosen is absent, and a cancel ends the
// choice.
func TestChoosingNeedsTheArm(t *testing.T) {
	arm := ranges(t, "koch", 0, 900, 3100)
	p, _ := calibratedArm(t, "koch", arm, map[string]servo.Calibration{"black": arm})
	cfg := servo.ArmConfig{Path: filepath.Join(t.TempDir(), "ttyNONE"), Robot: p.Robot, Clock: rt.KernelClock()}
	rttest.Ends(t, rttest.Err(p.Open(&cfg)), exit.Absent) // the port does not exist
	cfg.Path, cfg.Canceled = p.Bus, func() bool { return true }
	if _, err := p.Open(&cfg); exit.Of(err) != exit.Failure || cfg.Calibration != nil {
		t.Errorf("canceled: %v (code %d), calibration %v", err, exit.Of(err), cfg.Calibration)
	}
}

// The error names an empty folder, not a file that no command has ever written.
func TestNoCalibrationAtAll(t *testing.T) {
	root := t.TempDir()
	t.Setenv("HF_LEROBOT_CALIBRATION", root)
	r, err := Robot("so101")
	rttest.Do(t, err)
	p := Place{Bus: "/dev/ttyACM0", Robot: r}
	_, err = p.Load()
	for _, want := range []string{filepath.Join(root, "robots", "so_follower"),
		"edge-rt calibrate --bus /dev/ttyACM0 --robot so101 --id NAME", "--calibration FILE"} {
		if exit.Of(err) != exit.Config || !rttest.Says(err, want) || rttest.Says(err, "None") {
			t.Errorf("%v (code %d), want %q and no None.json", err, exit.Of(err), want)
		}
	}
}

// The motors do not overrule a named file or a named id.
func TestWhatIsNamedIsTaken(t *testing.T) {
	arm := ranges(t, "so101", 0, 900, 3100)
	other := changed(arm, "gripper", func(m *servo.MotorCalibration) { m.RangeMax-- })
	p, folder := calibratedArm(t, "so101", arm, map[string]servo.Calibration{"black": arm, "white": other})
	for _, named := range []Place{{ID: "white"}, {Calibration: filepath.Join(folder, "white.json")}} {
		named.Bus, named.Robot = p.Bus, p.Robot
		c, err := named.Load()
		if err != nil || c["gripper"] != other["gripper"] {
			t.Fatalf("Load = %v, %v", c, err)
		}
		cfg := servo.ArmConfig{Path: p.Bus, Robot: p.Robot, Calibration: c, Clock: rt.KernelClock()}
		if _, err := named.Open(&cfg); exit.Of(err) != exit.Config || named.Taken != "" {
			t.Errorf("white on black's arm: %v (code %d), taken %q, want a refusal", err, exit.Of(err), named.Taken)
		}
	}
}
