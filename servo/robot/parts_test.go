package robot

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// A robot of two arms has LeRobot's names in LeRobot's order.
//
// Source: LeRobot 0.6.1 robots/bi_so_follower, action_features.
func TestRobotOfTwoArms(t *testing.T) {
	r := rttest.Must(ByName("bi_so101"))(t)
	want := []string{"left_shoulder_pan.pos", "left_shoulder_lift.pos", "left_elbow_flex.pos", "left_wrist_flex.pos",
		"left_wrist_roll.pos", "left_gripper.pos", "right_shoulder_pan.pos", "right_shoulder_lift.pos",
		"right_elbow_flex.pos", "right_wrist_flex.pos", "right_wrist_roll.pos", "right_gripper.pos"}
	rttest.Equal(t, r.ActionNames(), want, "names")
	if r.DataType() != "bi_so_follower" || r.Leader || r.PartNames() != "left, right" || r.Safety.Parts != Together {
		t.Errorf("type %s, leader %v, parts %s, safety %+v", r.DataType(), r.Leader, r.PartNames(), r.Safety)
	}
	parts := r.Parts()
	right := parts[1]
	if len(parts) != 2 || right.Name != "right" || right.Prefix() != "right_" || right.First != 6 ||
		right.Joints() != 0b111111000000 || right.ID("black") != "black_right" || right.ID("") != "" {
		t.Errorf("right is %s with %s from %d, joints %b, id %s", right.Name, right.Prefix(), right.First,
			right.Joints(), right.ID("black"))
	}
	if right.Robot.Motors[0].Name != "shoulder_pan" || right.Robot.Flag() != "so101" || len(right.Robot.Parts()) != 1 {
		t.Errorf("the right arm is %s with %s", right.Robot.Flag(), right.Robot.Motors[0].Name)
	}
}

func TestOneArmIsItsOnlyPart(t *testing.T) {
	r := rttest.Must(ByName("koch"))(t)
	parts := r.Parts()
	if len(parts) != 1 || parts[0].Name != "" || parts[0].Prefix() != "" || parts[0].ID("black") != "black" ||
		parts[0].Joints() != 0b111111 || !reflect.DeepEqual(parts[0].Robot, r) || r.PartNames() != "" {
		t.Errorf("parts %+v of %q, want the arm itself without a name", parts, r.PartNames())
	}
}

// A file composes a robot of built-in arms and of the files of other arms. The file's own values apply to all parts.
func TestFileComposesParts(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string { return rttest.WriteFile(t, dir, name, text) }
	write("slow.yaml",
		"like: koch\nname: slow\nbaud: 57600\nrename: {joints: {gripper: jaw}, cameras: {hand: wrist}}\n")
	r, err := ByName(write("two.yaml", "name: two\nparts: {front: slow.yaml, back: so101}\n"+
		"safety: {parts: apart, overload: limp, overheat_warn: 50}\nrename: {joints: {back_gripper: back_hand}}\n"))
	rttest.Do(t, err)
	front, back := r.Parts()[0].Robot, r.Parts()[1].Robot
	names := r.ActionNames()
	if names[0] != "front_shoulder_pan.pos" || names[5] != "front_jaw.pos" || names[11] != "back_hand.pos" ||
		r.CameraName("front_hand") != "front_wrist" {
		t.Errorf("names %v, camera %s", names, r.CameraName("front_hand"))
	}
	if front.Baud != 57600 || back.Baud != 1_000_000 || front.Protocol() == back.Protocol() {
		t.Errorf("front at %d, back at %d, one protocol for both", front.Baud, back.Baud)
	}
	for _, s := range []Safety{r.Safety, front.Safety, back.Safety} {
		if s.Parts != Apart || s.Overload != Limp {
			t.Errorf("safety %+v, want the file's", s)
		}
	}
	if front.Motors[0].Bounds.HotWarn != 50 || r.Motors[6].Bounds.HotWarn != 50 {
		t.Errorf("bounds %+v and %+v, want the file's", front.Motors[0].Bounds, r.Motors[6].Bounds)
	}
	like := write("like.yaml", "like: bi_koch\nname: mine\nrename: {cameras: {left_top: left}}\n")
	if r, err = ByName(like); err != nil ||
		r.PartNames() != "left, right" || r.CameraName("left_top") != "left" {
		t.Errorf("a file like bi_koch: %s, %v", r.PartNames(), err)
	}
	if pair, _ := ByName("so101"); pair.Motors[0].Bounds.HotWarn != 55 {
		t.Errorf("the built-in arm warns at %d now, want 55", pair.Motors[0].Bounds.HotWarn)
	}
}

// Goal: the leader of a file's robot consists of the leaders of its parts, without its base, whose wheels
// are the robot's last motors.
func TestLeadersOfAFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string { return rttest.WriteFile(t, dir, name, text) }
	write("slow.yaml", "like: koch\nname: slow\nbaud: 57600\n")
	kiwi := rttest.Must(builtIn.ReadFile("robots/lekiwi.yaml"))(t)
	text := strings.Replace(string(kiwi), "name: lekiwi", "name: wheels", 1)
	arm, wheels := strings.Index(text, "  - name: arm_shoulder_pan"), strings.Index(text, "  - name: base_left_wheel")
	write("wheels.yaml", text[:arm]+text[wheels:])
	file := write("two.yaml", "name: two\nparts: {left: so101, right: slow.yaml, base: wheels.yaml}\n")
	two := rttest.Must(ByName(file))(t)
	if two.Base == nil || !slices.Equal(two.ActionNames()[12:], []string{"x.vel", "y.vel", "theta.vel"}) {
		t.Errorf("base %v, names %v", two.Base, two.ActionNames())
	}
	lead := rttest.Must(ByName(two.DefaultLeader()))(t)
	left, right := lead.Parts()[0].Robot, lead.Parts()[1].Robot
	if lead.Name != "two_leader" || lead.Flag() != file+"_leader" || len(lead.Motors) != 12 || !lead.Leader ||
		left.Name != "so101_leader" || right.Name != "koch_leader" {
		t.Errorf("%s of %s and %s with %d joints", lead.Name, left.Name, right.Name, len(lead.Motors))
	}
	alone := write("alone.yaml", strings.Replace(string(kiwi), "leader: so101_leader\n", "", 1))
	rttest.Fails(t, rttest.Err(ByName(alone+"_leader")), "names no leader") // the file names no leader
	for name, leader := range map[string]string{"so101": "so101_leader", "lekiwi": "so101_leader",
		"bi_koch": "bi_koch_leader", write("mine.yaml", "like: so101\nname: mine\n"): "so101_leader"} {
		r, err := ByName(name)
		if err != nil || r.DefaultLeader() != leader {
			t.Errorf("%s: leader %s, want %s (%v)", name, r.DefaultLeader(), leader, err)
		}
	}
}

func TestPartsRefusals(t *testing.T) {
	dir := t.TempDir()
	ring := rttest.WriteFile(t, dir, "ring.yaml", "name: ring\nparts: {left: ring.yaml, right: so101}\n")
	for _, tt := range []struct{ name, text, says string }{
		{"one part", "name: a\nparts: {left: so101}\n", "got 1, want 2 to 4"},
		{"no such arm", "name: a\nparts: {left: so101, right: r2d2}\n", "parts: right: robot: unknown robot"},
		{"a bad name", "name: a\nparts: {Left: so101, right: so101}\n", `got the name "Left"`},
		{"a part with parts", "name: a\nparts: {left: bi_so101, right: so101}\n", "a part is one arm"},
		{"a ring of files", "name: a\nparts: {left: " + ring + ", right: so101}\n", "a part is one arm"},
		{"an arm's key", "name: a\nbaud: 57600\nparts: {left: so101, right: so101}\n", "baud: a robot with parts"},
		{"leader and follower", "name: a\nparts: {left: so101, right: so101_leader}\n", "want followers or leaders"},
		{"no coupling", "name: a\nparts: {left: so101, right: so101}\nsafety: {parts: both}\n", "together or apart"},
		{"coupling of one arm", "like: so101\nname: a\nsafety: {parts: apart}\n", "only a robot with parts"},
		{"too many joints", "name: a\nparts: {a: viperx, b: viperx, c: viperx, d: viperx}\n", "got 28 joints"},
		{"a rename", "name: a\nparts: {left: so101, right: so101}\nrename: {joints: {gripper: jaw}}\n", "rename"},
		{"a base before an arm", "name: a\nparts: {base: lekiwi, right: so101}\n", "want it as the last part"},
		{"two bases", "name: a\nparts: {left: lekiwi, right: lekiwi}\n", "want it as the last part"},
		{"no name", "parts: {left: so101, right: so101}\n", "name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rttest.Fails(t, rttest.Err(Parse("a.yaml", []byte(tt.text))), tt.says)
		})
	}
}
