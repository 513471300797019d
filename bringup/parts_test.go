package bringup

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// twoArms returns the buses of a robot of two arms, and the configuration of a command on them.
func twoArms(t *testing.T) ([]*servosim.Bus, []device.Place, Config, *screen) {
	t.Helper()
	var buses []*servosim.Bus
	var places []device.Place
	var cfg Config
	var out *screen
	dir := t.TempDir()
	for _, p := range named(t, "bi_so101").Parts() {
		var bus *servosim.Bus
		bus, cfg, out = simArm(t, p.Robot, servosim.Config{})
		cfg.Part, cfg.ID = p.Name, p.ID("black")
		cfg.Calibration = filepath.Join(dir, cfg.ID+".json")
		buses, places = append(buses, bus), append(places, cfg.Place)
	}
	return buses, places, cfg, out
}

// Scan reports each part and their total, even if one bus does not answer.
func TestScanOfTwoArms(t *testing.T) {
	t.Parallel()
	buses, places, cfg, out := twoArms(t)
	buses[1].Mute(3, true)
	var text bytes.Buffer
	cfg.JSON = &text
	err := ScanParts(cfg, places, "edge-rt calibrate", func(cfg Config) (ScanReport, error) {
		return ScanBus(t.Context(), ScanConfig{Config: cfg, Last: 6, Named: true})
	})
	if exit.Of(err) != exit.Absent || !rttest.Says(err, "part right: ") || rttest.Says(err, "part left") ||
		strings.Contains(out.String(), "Next: ") {
		t.Errorf("%v\n%s", err, out)
	}
	var r ScanReport
	rttest.Do(t, json.Unmarshal(text.Bytes(), &r))
	if len(r.Servos) != 11 || r.Servos[6].Part != "right" || len(r.Parts) != 2 || len(r.Parts[1].Servos) != 5 ||
		len(r.Missing) != 1 || !strings.HasPrefix(r.Missing[0], "right motor 3") {
		t.Errorf("report %s", &text)
	}
}

// Monitor shows both arms in one table, with LeRobot's names of the joints.
func TestMonitorOfTwoArms(t *testing.T) {
	t.Parallel()
	_, places, cfg, out := twoArms(t)
	var text bytes.Buffer
	cfg.JSON = &text
	if err := Monitor(t.Context(), MonitorConfig{Config: cfg, Places: places, Count: 1}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var r MonitorReport
	rttest.Do(t, json.Unmarshal(text.Bytes(), &r))
	if len(r.Motors) != 12 || r.Motors[0].Joint != "left_shoulder_pan" || r.Motors[11].Joint != "right_gripper" ||
		r.Motors[11].Part != "right" {
		t.Errorf("report %s", &text)
	}
}

// A command recognises two swapped ports by the calibrations in the motors.
func TestSwappedPorts(t *testing.T) {
	t.Parallel()
	buses, places, cfg, _ := twoArms(t)
	for i := range places {
		c := servo.Calibration{}
		for _, m := range places[i].Robot.Motors {
			at := servo.MotorCalibration{ID: int(m.ID), HomingOffset: 10 + i, RangeMin: 1000 + i, RangeMax: 3000}
			c[m.Name] = at
			settings := map[table.Register]int{}
			for _, s := range calibrated(m, at) {
				settings[s.Register] = s.Value
			}
			registers(t, Config{Place: places[i]}, m.ID, settings)
		}
		rttest.Do(t, c.Save(places[i].File()))
	}
	rttest.Do(t, device.CheckSwapped(places, rt.KernelClock())) // each arm at its port
	places[0].Bus, places[1].Bus = places[1].Bus, places[0].Bus
	rttest.Ends(t, device.CheckSwapped(places, rt.KernelClock()), exit.Config,
		"want --bus left="+buses[0].Path()+" --bus right="+buses[1].Path())
	// Monitor refuses ports in each other's place.
	rttest.Ends(t, Monitor(t.Context(), MonitorConfig{Config: cfg, Places: places, Count: 1}), exit.Config)
	for i := range places { // one arm is not calibrated yet
		file := places[i].File()
		rttest.Do(t, os.Rename(file, file+".away"))
		err := EachPart(cfg, places, "", func(Config) error { t.Error("an arm was calibrated"); return nil })
		rttest.Ends(t, err, exit.Config, "want --bus left="+buses[0].Path())
		rttest.Do(t, os.Rename(file+".away", file))
	}
}

// A command recognises swapped ports even if the arms have different protocols, so that neither arm answers.
func TestSwappedPortsOfMixedArms(t *testing.T) {
	t.Parallel()
	var places []device.Place
	var cfg Config
	for _, name := range []string{"so101", "koch"} {
		_, cfg, _ = simArm(t, named(t, name), servosim.Config{})
		c := servo.Calibration{}
		for _, m := range cfg.Robot.Motors {
			c[m.Name] = servo.MotorCalibration{ID: int(m.ID), RangeMax: 4095}
		}
		cfg.Part, cfg.Calibration = name, filepath.Join(t.TempDir(), name+".json")
		rttest.Do(t, c.Save(cfg.Calibration))
		places = append(places, cfg.Place)
	}
	if err := device.CheckSwapped(places, rt.KernelClock()); err != nil {
		t.Errorf("each arm at its port: %v", err)
	}
	places[0].Bus, places[1].Bus = places[1].Bus, places[0].Bus
	want := "want --bus so101=" + places[1].Bus + " --bus koch=" + places[0].Bus
	rttest.Ends(t, device.CheckSwapped(places, rt.KernelClock()), exit.Config, want)
	open := servo.ArmConfig{Path: places[0].Bus, Clock: rt.KernelClock()}
	// a run explains its error
	rttest.Ends(t, device.Swapped(places, 0, open, servo.ErrNoReply), exit.Config, "give --bus koch="+places[0].Bus)
}

// The calibration of a part needs an --id: LeRobot would write the calibrations of both arms into one file.
func TestCalibrateOfAPartWantsAnID(t *testing.T) {
	arm := named(t, "bi_so101").Parts()[0]
	cfg := Config{Place: device.Place{Part: arm.Name, Robot: arm.Robot, Bus: "/dev/ttyNONE"}}
	rttest.Ends(t, Calibrate(t.Context(), cfg), exit.Usage, "black_left")
}
