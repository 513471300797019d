package device

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim"
)

func robotNamed(t *testing.T, name string) robot.Robot {
	t.Helper()
	return rttest.Must(Robot(name))(t)
}

func TestPortsByPart(t *testing.T) {
	one, two := robotNamed(t, "so101"), robotNamed(t, "bi_so101")
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	rttest.Do(t, os.Symlink(filepath.Join(dir, "port"), link))
	rttest.WriteFile(t, dir, "port", "")
	for _, tt := range []struct {
		name  string
		robot robot.Robot
		flag  ByPart
		want  []string
		says  string
	}{
		{"one arm", one, ByPart{"/dev/a"}, []string{"/dev/a"}, ""},
		{"one arm, a path with = and commas", one, ByPart{"/dev/a=b, c"}, []string{"/dev/a=b, c"}, ""},
		{"no flag", two, nil, []string{"", ""}, ""},
		{"two arms in any order", two, ByPart{"right=/dev/b", "left=/dev/a"}, []string{"/dev/a", "/dev/b"}, ""},
		{"of a variable", two, ByPart{"left=/dev/a right=/dev/b"}, []string{"/dev/a", "/dev/b"}, ""},
		{"of a variable, with commas", two, ByPart{"left=/dev/x,y, right=/dev/b"}, []string{"/dev/x,y", "/dev/b"}, ""},
		{"simulated", two, ByPart{"sim"}, []string{"sim", "sim"}, ""},
		{"the same value again", two, ByPart{"left=/dev/a", "right=/dev/b", "left=/dev/a"},
			[]string{"/dev/a", "/dev/b"}, ""},
		{"a plain port", two, ByPart{"/dev/a"}, nil, "want --bus left=PORT --bus right=PORT"},
		{"mixed", two, ByPart{"left=/dev/a", "/dev/b"}, nil, "has the parts left, right"},
		{"missing", two, ByPart{"left=/dev/a"}, nil, "no --bus for the part right of bi_so101"},
		{"unknown", two, ByPart{"left=/dev/a", "middle=/dev/b"}, nil, "no part middle, it has left, right"},
		{"repeated", two, ByPart{"left=/dev/a", "right=/dev/b", "left=/dev/c"}, nil, "for left, want it once"},
		{"repeated, of one arm", one, ByPart{"/dev/a", "/dev/b"}, nil, "it takes one value, want it once"},
		{"empty", two, ByPart{"left=", "right=/dev/b"}, nil, "want a value after the ="},
		{"a part of one arm", one, ByPart{"left=/dev/a"}, nil, "has one arm and no part left"},
		{"one port twice", two, ByPart{"left=/dev/a", "right=/dev/a"}, nil, "left and right are both on /dev/a"},
		{"two links to one port", two, ByPart{"left=" + link, "right=" + dir + "/port"}, nil, "are both on"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.flag.Buses("bus", tt.robot, nil)
			if tt.says != "" {
				rttest.Ends(t, err, exit.Usage, tt.says)
				return
			}
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

// The parts' calibrations are LeRobot's: the robot's id with the part after it, in the arm's folder.
func TestPlacesOfParts(t *testing.T) {
	t.Setenv("HF_LEROBOT_CALIBRATION", "/c")
	flags := Places{
		Bus:         ByPart{"left=/dev/a", "right=/dev/b"},
		Calibration: ByPart{"right=/x/r.json"},
		ID:          "black",
		BusFlag:     "bus",
	}
	places, err := flags.Of(robotNamed(t, "bi_so101"))
	rttest.Do(t, err)
	left, right := places[0], places[1]
	if left.File() != "/c/robots/so_follower/black_left.json" || right.File() != "/x/r.json" || left.Part != "left" ||
		left.Command() != "--bus /dev/a --robot so101 --id black_left" || right.Bus != "/dev/b" {
		t.Errorf("left %s in %s, right %s in %s", left.Command(), left.File(), right.Command(), right.File())
	}
	leader := Places{
		Bus:     ByPart{"left=/dev/a", "right=/dev/b"},
		ID:      "white",
		BusFlag: "leader",
	}
	if places, err = leader.Of(robotNamed(t, "bi_so101_leader")); err != nil ||
		places[1].File() != "/c/teleoperators/so_leader/white_right.json" {
		t.Errorf("the leader's right calibration is %s, %v", places[1].File(), err)
	}
}

// Property: a flag yields the given values, one for each part, or is refused.
func FuzzByPart(f *testing.F) {
	two := rttest.Must(Robot("bi_so101"))(f)
	for _, text := range []string{"left=/dev/a right=/dev/b", "left=a,right=b", "sim", "/dev/a", "left=",
		"left=a=b, c"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		flag := ByPart{text}
		buses, err := flag.Buses("bus", two, nil)
		if err != nil || !flag.Given() {
			return
		}
		if len(buses) != 2 || buses[0] == "" || buses[1] == "" {
			t.Errorf("%q: %q, want a port for each part", text, buses)
		}
	})
}

// A camera shows its part's world even if another part is not simulated.
func TestCamerasShowTheWorldOfTheirPart(t *testing.T) {
	left, right := new(sim.Live), new(sim.Live)
	both := Sims{arms: []simulated{{part: "left", world: left}, {part: "right", world: right}}}
	one := Sims{arms: both.arms[1:]}
	for _, tt := range []struct {
		sims   *Sims
		camera string
		want   *sim.Live
	}{{&both, "left_top", left}, {&both, "right_top", right}, {&both, "top", left}, {&one, "right_top", right},
		{&one, "top", right}} {
		if tt.sims.World(tt.camera) != tt.want {
			t.Errorf("%s with %d simulated arms shows another world", tt.camera, tt.sims.Len())
		}
	}
}
