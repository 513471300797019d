package robot

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/table"
)

func TestBuiltInArms(t *testing.T) {
	six, nine := []uint8{1, 2, 3, 4, 5, 6}, []uint8{1, 2, 4, 6, 7, 8, 9, 3, 5}
	ids := map[string][]uint8{
		"so100": six, "so101": six, "so100_leader": six, "so101_leader": six, "koch": six, "koch_leader": six,
		"omx": {11, 12, 13, 14, 15, 16}, "omx_leader": six, "generic": six, "lekiwi": {1, 2, 3, 4, 5, 6, 7, 8, 9},
		"widowx": nine, "viperx": nine, "widowx_leader": nine,
	}
	for _, pair := range []string{"so100", "so101", "koch", "omx", "so100_leader", "so101_leader", "koch_leader",
		"omx_leader"} {
		ids["bi_"+pair] = slices.Repeat(ids[pair], 2)
	}
	ids["aloha"] = []uint8{1, 2, 4, 6, 7, 8, 9, 1, 2, 4, 6, 7, 8, 9, 3, 5, 3, 5}
	ids["aloha_leader"] = ids["aloha"]
	if len(Names()) != len(ids) {
		t.Errorf("Names() = %v, want the %d of this test", Names(), len(ids))
	}
	for name, want := range ids {
		r, err := ByName(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if r.Name != name || !reflect.DeepEqual(r.IDs(), want) || r.Leader != strings.HasSuffix(name, "_leader") {
			t.Errorf("%s: name %q, ids %v, leader %v, want ids %v", name, r.Name, r.IDs(), r.Leader, want)
		}
	}
}

// LeRobot merges data sets of one robot_type only: its class's name.
//
// Source: LeRobot 0.6.1, name of SOFollower, KochFollower, OmxFollower, BiSOFollower and LeKiwi.
func TestDataTypesAreLeRobots(t *testing.T) {
	for _, pair := range []string{"so100 so_follower", "so101 so_follower", "koch koch_follower", "omx omx_follower",
		"bi_so100 bi_so_follower", "bi_so101 bi_so_follower", "lekiwi lekiwi", "bi_koch bi_koch"} {
		name, want, _ := strings.Cut(pair, " ")
		rttest.Want(t, rttest.Must(ByName(name))(t).DataType(), want, "%s", name)
	}
}

// The settings that LeRobot writes, motor by motor.
//
// Source: LeRobot 0.4.4, configure of SOFollower, KochFollower and OmxFollower.
func TestSettingsAreLeRobots(t *testing.T) {
	for _, tt := range []struct {
		robot, motor string
		want         map[string]int
	}{
		{"so101", "elbow_flex", map[string]int{"Return_Delay_Time": 0, "Maximum_Acceleration": 254, "Acceleration": 254,
			"Operating_Mode": 0, "P_Coefficient": 16, "I_Coefficient": 0, "D_Coefficient": 32}},
		{"so100", "gripper", map[string]int{"Return_Delay_Time": 0, "Maximum_Acceleration": 254, "Acceleration": 254,
			"Operating_Mode": 0, "P_Coefficient": 16, "I_Coefficient": 0, "D_Coefficient": 32,
			"Max_Torque_Limit": 500, "Torque_Limit": 500, "Protection_Current": 250, "Overload_Torque": 25}},
		{"koch", "shoulder_pan", map[string]int{"Return_Delay_Time": 0, "Operating_Mode": 4}},
		{"koch", "elbow_flex", map[string]int{"Return_Delay_Time": 0, "Operating_Mode": 4, "Position_P_Gain": 1500,
			"Position_I_Gain": 0, "Position_D_Gain": 600}},
		{"koch", "gripper", map[string]int{"Return_Delay_Time": 0, "Operating_Mode": 5}},
		{"omx", "elbow_flex", map[string]int{"Return_Delay_Time": 0, "Operating_Mode": 4, "Position_P_Gain": 1500,
			"Position_I_Gain": 0, "Position_D_Gain": 600}},
		{"omx_leader", "gripper", map[string]int{"Return_Delay_Time": 0, "Operating_Mode": 5, "Drive_Mode": 1,
			"Current_Limit": 100, "Goal_Current": 100}},
	} {
		r := rttest.Must(ByName(tt.robot))(t)
		for _, m := range r.Motors {
			if m.Name != tt.motor {
				continue
			}
			got := map[string]int{}
			for _, s := range m.Settings {
				got[string(s.Register)] = s.Value
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%s %s: %v, want %v", tt.robot, tt.motor, got, tt.want)
			}
		}
	}
}

const small = `
name: pair
calibration: [pair]
baud: 1000000
settings: {Return_Delay_Time: 0}
motors:
  - {name: a, id: 1, model: sts3215, norm: degrees, max_velocity: 10}
  - {name: b, id: 2, model: sts3215, norm: range_0_100, max_velocity: 10, settings: {Return_Delay_Time: 5}}
`

func TestFileSaysMore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "arm.yaml")
	text := "like: so101\nname: mine\nrename:\n  cameras: {top: front}\n  joints: {gripper: jaw}\n" +
		"norm: range_m100_100\nsafety: {overload: limp, after_reset: resume, bus_watchdog: 60ms, slew: 0.5}\n" +
		"settings: {P_Coefficient: 20}\n"
	rttest.Do(t, os.WriteFile(path, []byte(text), 0o644))
	r := rttest.Must(ByName(path))(t)
	names, units := r.ActionNames(), r.Units()
	if units[4] != RangeM100.String() || units[5] != Range0100.String() {
		t.Errorf("units %q, want the file's instead of degrees", units)
	}
	if names[0] != "shoulder_pan.pos" || names[5] != "jaw.pos" || r.CameraName("top") != "front" ||
		r.CameraName("side") != "side" {
		t.Errorf("names %v, camera %s", names, r.CameraName("top"))
	}
	s := r.Safety
	if s.Overload != Limp || s.Overheat != Stop || s.AfterReset != Resume || s.BusWatchdog != 60*time.Millisecond ||
		s.Slew != 0.5 {
		t.Errorf("safety %+v", s)
	}
	if p, _ := r.Motors[2].Setting(table.PCoefficient); p != 20 {
		t.Errorf("elbow P is %d, want 20: the file wins over what came with the arm", p)
	}
	if r.Flag() != path {
		t.Errorf("--robot %s gets it again, want its file %s", r.Flag(), path)
	}
	if r = rttest.Must(Parse("small", []byte(small)))(t); len(r.Motors) != 2 {
		t.Fatalf("%+v", r)
	}
	if v, _ := r.Motors[1].Setting(table.ReturnDelayTime); v != 5 {
		t.Errorf("motor's own setting is %d, want 5", v)
	}
}

func TestBadDescriptions(t *testing.T) {
	for _, tt := range []struct{ name, from, to, says string }{
		{"unknown key", "baud:", "bauds:", "bauds"},
		{"unknown model", "model: sts3215, norm: degrees", "model: sts9999, norm: degrees", "sts9999"},
		{"two protocols", "model: sts3215, norm: degrees", "model: xl430-w250, norm: degrees", "one protocol"},
		{"id twice", "id: 2", "id: 1", "id 1"},
		{"id too high", "id: 2", "id: 253", "253"},
		{"name twice", "name: b", "name: a", "twice"},
		{"name with a dot", "name: b", "name: b.pos", "word"},
		{"name for a terminal", "name: b", "name: \"b\\e[2J\"", "word"},
		{"arm's name for a terminal", "name: pair", "name: \"pair\\e[2J\"", "words"},
		{"folder for a terminal", "calibration: [pair]", "calibration: [\"pair\\e[2J\"]", "folder"},
		{"unknown unit", "norm: degrees", "norm: radians", "radians"},
		{"another unit for all", "baud:", "norm: range_0_100\nbaud:", "in degrees"},
		{"no speed", "norm: degrees, max_velocity: 10", "norm: degrees", "max_velocity"},
		{"a typing error in a speed", "max_velocity: 10", "max_velocity: 1e5", "up to 1e4"},
		{"no motors", "motors:", "rename: {}\nmotors: []\nxx:", "xx"},
		{"unknown register", "Return_Delay_Time: 0}", "Return_Delay: 0}", "Return_Delay"},
		{"register that the model lacks", "Return_Delay_Time: 0}", "Position_P_Gain: 0}", "no Position_P_Gain"},
		{"register by two spellings", "Return_Delay_Time: 0}", "Return_Delay_Time: 0, return_delay_time: 5}",
			"Return_Delay_Time occurs twice"},
		{"a trigger that is no number", "norm: degrees", "norm: degrees, trigger: .nan", "trigger: got NaN"},
		{"register that is read", "Return_Delay_Time: 0}", "Present_Position: 0}", "no Present_Position"},
		{"register that bricks", "Return_Delay_Time: 0}", "Phase: 0}", "Phase is no setting"},
		{"value too large", "Return_Delay_Time: 0}", "Return_Delay_Time: 300}", "300"},
		{"value that is no number", "Return_Delay_Time: 0}", "Return_Delay_Time: x}", "whole number"},
		{"reaction", "baud:", "safety: {overload: pray}\nbaud:", "pray"},
		{"share with a unit", "baud:", "safety: {slew: 0.5s}\nbaud:", "0.5s"},
		{"folder with a path", "calibration: [pair]", "calibration: [../pair]", "folder"},
		{"renamed to another", "baud:", "rename: {joints: {a: b}}\nbaud:", "two joints"},
		{"renamed to two", "baud:", "rename: {joints: {a: \"x,y\"}}\nbaud:", "x,y"},
		{"renamed for a terminal", "baud:", "rename: {cameras: {a: \"\\e[2J\"}}\nbaud:", "words"},
		{"a joint that turns", "Return_Delay_Time: 0}", "Operating_Mode: 1}",
			"may turn without an end; want one of [0]"},
		{"steps of two counts", "Return_Delay_Time: 0}", "Angular_Resolution: 2}", "4096 to a turn"},
		{"limits that cross", "Return_Delay_Time: 0}", "Min_Voltage_Limit: 140, Max_Voltage_Limit: 40}",
			"Max_Voltage_Limit = 40: below Min_Voltage_Limit, 140"},
		{"renamed unknown", "baud:", "rename: {joints: {c: d}}\nbaud:", "c: \"d\""},
		{"like nobody", "baud:", "like: r2d2\nbaud:", "r2d2"},
		{"like a likeness", "baud:", "like: so100\nbaud:", "so101"},
		{"limits", "norm: degrees", "norm: degrees, limits: [5, 1]", "limits"},
		{"kind", "baud:", "kind: boss\nbaud:", "boss"},
		{"norm of all", "baud:", "norm: radians\nbaud:", "radians"},
		{"baud", "1000000", "12", "12"},
		{"temperature bound that is no number", "baud:", "safety: {overheat_act: hot}\nbaud:", "whole degrees"},
		{"temperature bound with a fraction", "baud:", "safety: {overheat_act: 60.5}\nbaud:", "whole degrees"},
		{"temperature bound of a kettle", "baud:", "safety: {overheat_warn: 121}\nbaud:", "30 to 120"},
		{"temperature bound of a fridge", "baud:", "safety: {overheat_warn: 29}\nbaud:", "30 to 120"},
		{"warned too late of heat", "baud:", "safety: {overheat_warn: 65, overheat_act: 65}\nbaud:",
			"lower temperature"},
		{"voltage bound finer than is measured", "baud:", "safety: {undervoltage_act: 6.25}\nbaud:", "one decimal"},
		{"voltage bound that is no number", "baud:", "safety: {undervoltage_act: nan}\nbaud:", "volts"},
		{"voltage bound of the mains", "baud:", "safety: {undervoltage_warn: 230}\nbaud:", "3 to 60"},
		{"warned too late of the supply", "baud:", "safety: {undervoltage_warn: 6.2, undervoltage_act: 6.2}\nbaud:",
			"higher voltage"},
		{"a motor warned later than it acts", "norm: degrees",
			"norm: degrees, safety: {overheat_act: 50, overheat_warn: 55}", "\"a\""},
		{"heat bound without a reaction", "baud:", "safety: {overheat: ignore, overheat_act: 65}\nbaud:",
			"nothing would happen"},
		{"supply bound without a reaction", "baud:", "safety: {voltage: ignore, undervoltage_act: 6}\nbaud:",
			"nothing would happen"},
		{"a motor's own reaction", "norm: degrees", "norm: degrees, safety: {overheat: limp}", "the robot's"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(small, tt.from, tt.to, 1)
			if text == small {
				t.Fatal("the test changes nothing")
			}
			err := rttest.Err(Parse("x.yaml", []byte(text)))
			rttest.FailsAs(t, err, ErrInvalid, tt.says)
			rttest.Want(t, rttest.Says(err, "\n"), false, "more than one line")
		})
	}
	rttest.FailsAs(t, rttest.Err(ByName("r2d2")), ErrUnknown, "so101")
	rttest.FailsAs(t, rttest.Err(ByName("/nowhere/x.yaml")), ErrUnknown)
}

// A motor has the robot's bounds, unless its own block sets them. A file's bounds replace the
// bounds of the built-in arm that it is like.
func TestBounds(t *testing.T) {
	bounds := func(text string) (all [2]Bounds) {
		t.Helper()
		r := rttest.Must(Parse("x.yaml", []byte(text)))(t)
		return [2]Bounds{r.Motors[0].Bounds, r.Motors[1].Bounds}
	}
	robots := "safety: {overheat_warn: 50, overheat_act: 60, undervoltage_warn: 6.8, undervoltage_act: 6.2}\nbaud:"
	own := strings.Replace(small, "Return_Delay_Time: 5}}",
		"Return_Delay_Time: 5}, safety: {overheat_act: 0, undervoltage_act: 4.5}}", 1)
	for _, tt := range []struct {
		name, text string
		want       [2]Bounds
	}{
		{"none", small, [2]Bounds{}},
		{"the robot's", strings.Replace(small, "baud:", robots, 1), [2]Bounds{{50, 60, 68, 62}, {50, 60, 68, 62}}},
		{"a motor's own", strings.Replace(own, "baud:", robots, 1), [2]Bounds{{50, 60, 68, 62}, {50, 0, 68, 45}}},
		{"like another", "like: koch\nname: mine\nsafety: {overheat_act: 66, overheat_warn: 0}",
			[2]Bounds{{HotAct: 66}, {HotAct: 66}}},
	} {
		rttest.Want(t, bounds(tt.text), tt.want, "%s", tt.name)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	for _, name := range Names() {
		text, _ := builtIn.ReadFile("robots/" + name + ".yaml")
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse("fuzz", data)
		if err == nil && (len(r.Motors) == 0 || len(r.ActionNames()) != len(r.Motors)) {
			t.Errorf("accepted %+v", r)
		}
	})
}
