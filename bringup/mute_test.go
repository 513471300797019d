package bringup

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// mute sets a status return level on motors 1 to 6, as other software may have left it.
func mute(t *testing.T, cfg Config, level int) {
	t.Helper()
	for _, m := range cfg.Robot.Motors {
		registers(t, cfg, m.ID, map[table.Register]int{table.ResponseStatusLevel: level})
	}
}

// Goal: every command works with motors that answer only pings, or reads but not writes, and reports them.
func TestMotorsThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	for _, command := range []struct {
		name, want string
		run        func(t *testing.T, cfg Config) error
	}{
		{"scan", "answered to pings only", func(t *testing.T, cfg Config) error {
			return scans(t, cfg)
		}},
		{"monitor", "", func(t *testing.T, cfg Config) error {
			return Monitor(t.Context(), MonitorConfig{Config: cfg, Count: 1})
		}},
		{"move", "did not answer every instruction", func(t *testing.T, cfg Config) error {
			return moves(t, cfg, "elbow_flex", 5, 0.3)
		}},
		{"torque off", "", func(t *testing.T, cfg Config) error { return release(cfg.Bus, cfg.Robot, cfg.Out) }},
		{"the only calibration that matches", "", func(t *testing.T, cfg Config) error {
			arm := servo.ArmConfig{Path: cfg.Bus, Robot: cfg.Robot}
			differs, err := servo.MatchCalibrations(arm, []servo.Calibration{loaded(t, cfg.Place)})
			return errors.Join(append(differs, err)...)
		}},
	} {
		for _, arm := range []struct {
			robot string
			level int
		}{{"koch", 0}, {"koch", 1}, {"so101", 0}} {
			if command.name == "scan" && (arm.robot != "koch" || arm.level != 0) {
				continue // the motors of the other arms answer the reads of a scan
			}
			t.Run(fmt.Sprint(command.name, arm), func(t *testing.T) {
				t.Parallel()
				_, cfg, out := simArm(t, named(t, arm.robot), servosim.Config{})
				whole(t, cfg)
				mute(t, cfg, arm.level)
				err := command.run(t, cfg)
				if text := out.String(); err != nil || !strings.Contains(text, command.want) ||
					strings.Contains(text, "no reply") {
					t.Errorf("%v\n%s", err, text)
				}
			})
		}
	}
}

func loaded(t *testing.T, place device.Place) servo.Calibration {
	t.Helper()
	return rttest.Must(servo.LoadCalibration(place.File()))(t)
}

// Goal: no command writes to a motor of another model than the robot's, even if the motor answers only pings: its
// registers may have other addresses.
func TestAnotherModelThatDoesNotAnswerIsLeftAlone(t *testing.T) {
	t.Parallel()
	koch := named(t, "koch")
	_, cfg, _ := simArm(t, koch, servosim.Config{})
	mute(t, cfg, 0)
	cfg.Robot = named(t, "widowx") // a widowx has xm430 motors where a koch has xl430
	whole(t, cfg)
	rttest.Fails(t, moves(t, cfg, "waist", 5, 0.3))
	port := rttest.Must(servo.OpenPort(cfg.Bus, koch.Baud))(t)
	defer port.Close()
	b := servo.NewBus(port, koch.Baud, koch.Protocol(), rt.KernelClock())
	if changed := servo.AnswerReads(b,
		[]robot.Motor{{ID: 1, Name: "waist", Model: cfg.Robot.Motors[0].Model}}); len(changed) > 0 {
		t.Errorf("it wrote to %v", changed)
	}
}
