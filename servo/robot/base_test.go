package robot

import (
	"math"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func lekiwi(t *testing.T) Robot {
	t.Helper()
	return rttest.Must(ByName("lekiwi"))(t)
}

// The rows are results of LeRobot 0.6.1: LeKiwi._body_to_wheel_raw and _wheel_raw_to_body.
func TestKinematicsAreLeRobots(t *testing.T) {
	var rows []struct {
		Body, Back [Axes]float64
		Raw        [Axes]int
	}
	rttest.ReadJSON(t, "testdata/lekiwi.json", &rows)
	k := lekiwi(t).Base.Kinematics(4096)
	limits := 0
	for _, row := range rows {
		raw, limited := k.Wheels(row.Body)
		rttest.Want(t, raw, row.Raw, "Wheels(%v)", row.Body)
		if limited {
			limits++
		}
		for i, v := range k.Body(row.Raw) {
			if math.Abs(v-row.Back[i]) > 1e-9 {
				t.Errorf("Body(%v)[%d] = %v, want %v", row.Raw, i, v, row.Back[i])
			}
		}
	}
	if limits == 0 || limits == len(rows) || len(rows) < 20 {
		t.Errorf("%d of %d rows are limited by max_raw, want some of many", limits, len(rows))
	}
}

func TestKinematicsNoAlloc(t *testing.T) {
	k := lekiwi(t).Base.Kinematics(4096)
	rttest.NoAllocs(t, "%v allocations", 100, func() {
		raw, _ := k.Wheels([Axes]float64{0.1, -0.2, 30})
		k.Body(raw)
	})
}

func TestLeKiwiIsLeRobots(t *testing.T) {
	r := lekiwi(t)
	names := []string{"arm_shoulder_pan.pos", "arm_shoulder_lift.pos", "arm_elbow_flex.pos", "arm_wrist_flex.pos",
		"arm_wrist_roll.pos", "arm_gripper.pos", "x.vel", "y.vel", "theta.vel"}
	rttest.Equal(t, r.ActionNames(), names, "ActionNames()")
	rttest.Equal(t, r.Units()[5:], []string{"range_0_100", "m/s", "m/s", "deg/s"}, "Units()")
	if r.Wheels() != 0b111_000_000 || r.LeaderName != "so101_leader" || r.Motors[7].Name != "base_back_wheel" {
		t.Errorf("wheels %b, leader %q, motor 8 %q", r.Wheels(), r.LeaderName, r.Motors[7].Name)
	}
}

func TestBaseRefusals(t *testing.T) {
	good := rttest.ReadFile(t, "robots/lekiwi.yaml")
	rttest.Must(Parse("x", []byte(good)))(t)
	_, motors, _ := strings.Cut(good, "motors:\n")
	for _, tt := range []struct{ name, from, to, want string }{
		{"no base", good[strings.Index(good, "base:\n"):strings.Index(good, "motors:")], "", "base is missing"},
		{"two wheels", "    norm: velocity\n    full_turn: true\n    settings: {Operating_Mode: 1}\n",
			"    norm: degrees\n    max_velocity: 1\n", "want its left, back and right wheel"},
		{"no wheel", motors, "  - {name: a, id: 1, model: sts3215, norm: degrees, max_velocity: 1}\n",
			"want its left, back and right wheel"},
		{"a wheel in position mode", "settings: {Operating_Mode: 1}", "settings: {Operating_Mode: 0}",
			"want Operating_Mode: 1"},
		{"a wheel with stops", "    full_turn: true\n    settings: {Operating_Mode: 1}",
			"    settings: {Operating_Mode: 1}", "full_turn"},
		{"a wheel with a velocity", "norm: velocity\n", "norm: velocity\n    max_velocity: 3\n", "max_velocity"},
		{"two axes", "max_speed: [0.3, 0.3, 90]", "max_speed: [0.3, 0.3]", "want [x, y, theta]"},
		{"no speed", "max_speed: [0.3, 0.3, 90]", "max_speed: [0.3, 0, 90]", "above 0"},
		{"no radius", "wheel_radius: 0.05", "wheel_radius: .nan", "metres above 0"},
		{"too fast for the register", "max_raw: 3000", "max_raw: 32768", "1 to 32767"},
		{"a leader", "name: lekiwi", "name: lekiwi\nkind: leader", "a leader has none"},
	} {
		changed := strings.Replace(good, tt.from, tt.to, 1)
		rttest.Fails(t, rttest.Err(Parse("x", []byte(changed))), tt.want)
	}
}
