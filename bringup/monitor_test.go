package bringup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// Goal: monitor shows the position that a run uses. Where motion under power may go the wrong way, it recommends moving
// the joint by hand.
func TestMonitorNamesThePlace(t *testing.T) {
	koch, single := named(t, "koch"), named(t, "so101")
	for _, tt := range []struct {
		name      string
		motor     robot.Motor
		low, high int
		raw, at   int
		says, not string
	}{
		{"a forgotten turn", koch.Motors[1], -306, 2419, 3900, -196, "forgot its turns: counts as -196", "outside"},
		{"inside", koch.Motors[1], -306, 2419, 1000, 1000, "", "outside"},
		{"beyond the seam", single.Motors[2], 2900, 4000, 14, 14, "by hand", "edge-rt move"},
		{"no position of a turn", single.Motors[2], 900, 3100, 5000, 5000, "0 to 4095: it counts turns", "other side"},
		{"a little outside", single.Motors[2], 2900, 4000, 2800, 2800, "edge-rt move elbow_flex", "by hand"},
	} {
		c := servo.MotorCalibration{RangeMin: tt.low, RangeMax: tt.high}
		at, turned := inTurn(tt.motor, c, tt.raw, 3)
		text := turned + outside(tt.motor, c, at, tt.motor.Name)
		if at != tt.at || !strings.Contains(text, tt.says) || strings.Contains(text, tt.not) || tt.says == "" &&
			text != "" {
			t.Errorf("%s: %d is %d, %q", tt.name, tt.raw, at, text)
		}
	}
}

// Monitor computes no positions by a calibration that the motors do not have.
func TestMonitorOfAnotherArm(t *testing.T) {
	t.Parallel()
	_, cfg, out := wholeArm(t)
	monitor := MonitorConfig{Config: cfg, Count: 1}
	rttest.Do(t, Monitor(t.Context(), monitor))
	rttest.Contains(t, out.String(), "2048      0.04 ")
	c := loaded(t, cfg.Place)
	for name, m := range c {
		m.HomingOffset = 300
		c[name] = m
	}
	rttest.Do(t, c.Save(cfg.File()))
	rttest.Do(t, Monitor(t.Context(), monitor))
	rttest.Contains(t, out.String(), "the servo has homing offset 0", "positions are raw", "2048         - ")
}

// Monitor shows the second motor of a joint in a separate row, and reports it when it is silent.
func TestMonitorShowsSecondMotors(t *testing.T) {
	t.Parallel()
	r := named(t, "widowx")
	var servos []servosim.Servo
	second := 0
	for _, m := range r.Motors {
		servos = append(servos, servosim.Servo{ID: m.ID, Model: m.Model.Name})
		if m.Shadow != 0 {
			servos, second = append(servos, servosim.Servo{ID: m.Shadow, Model: m.Model.Name}), len(servos)
		}
	}
	bus, cfg, out := simArm(t, r, servosim.Config{Servos: servos})
	var tables bytes.Buffer
	cfg.JSON = &tables
	rttest.Do(t, Monitor(t.Context(), MonitorConfig{Config: cfg, Count: 1}))
	var report MonitorReport
	rttest.Do(t, json.Unmarshal(tables.Bytes(), &report))
	if len(report.Motors) != len(servos) || !strings.Contains(out.String(), "shoulder_shadow") {
		t.Fatalf("%d rows of %d motors in\n%s", len(report.Motors), len(servos), out)
	}
	first, other := report.Motors[second-1], report.Motors[second]
	if other.Joint != first.Joint+"_shadow" || other.ID != int(servos[second].ID) || other.Error != "" ||
		other.SupplyV == 0 || other.Position != nil {
		t.Errorf("after %+v comes %+v, want its second motor", first, other)
	}
	cfg.JSON = nil
	rttest.Do(t, Monitor(t.Context(), MonitorConfig{Config: cfg, Count: 2, Live: true}))
	up := fmt.Sprintf("%s\n\x1b[%dA%s", lineEnd, len(servos)+1, oneLine)
	if !strings.Contains(out.String(), up) || strings.Count(out.String(), lineEnd) != 2*(len(servos)+1) {
		t.Errorf("two tables on a terminal, one over the other:\n%q", out)
	}
	bus.Mute(servos[second].ID, true)
	// The second motor does not answer.
	rttest.Ends(t, Monitor(t.Context(), MonitorConfig{Config: cfg, Count: 1}), exit.Absent, other.Joint)
}

// Goal: monitor names exactly the values that no working motor measures.
func TestOddValues(t *testing.T) {
	const says = ", implausible: "
	m := named(t, "so101").Motors[2].Model
	for _, tt := range []struct {
		register table.Register
		low, odd int
		want     string
	}{
		{table.PresentTemperature, 71, 255, "255 C"},
		{table.PresentVoltage, 252, 255, "25.5 V"},
		{table.PresentLoad, -1000, 2047, "204.7 % load"},
		{table.PresentCurrent, -400, -32767, "-212986 mA"},
	} {
		values := map[table.Register]int{table.PresentVoltage: 120, tt.register: tt.low}
		rttest.Want(t, oddValues(m, values), "", "%s %d", tt.register, tt.low)
		values[tt.register] = tt.odd
		if text := oddValues(m, values); !strings.HasPrefix(text, says+tt.want+": ") {
			t.Errorf("%s %d: %q, want %q", tt.register, tt.odd, text, tt.want)
		}
	}
}
