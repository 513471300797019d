// Mutants breaks the arm's gate (the limits of its goals) and its table of permissions, one line at a time, and checks
// that the tests fail for each broken line: go run ./tools/mutants. With --only it breaks the lines whose defect
// matches a regular expression.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

// mutant replaces one line of a file.
type mutant struct {
	file, old, new string
	breaks         string // the defect
}

var mutants = []mutant{
	{"gate.go", "if d := next - goal; d > step*(1+slack) {", "if d := next - goal; d > 100*step {",
		"a goal rises faster than the velocity limit"},
	{"gate.go", "} else if d < -step*(1+slack) {", "} else if d < -100*step {",
		"a goal falls faster than the velocity limit"},
	{"gate.go", "low, high := min(g.Min[j], goal), ", "low, high := g.Min[j]-1000, ",
		"a goal leaves its range"},
	{"gate.go", ", max(g.Max[j], goal)\n", ", g.Max[j]\n",
		"a joint above its range jumps into it without its step being counted"},
	{"gate.go", "return math.IsNaN(float64(v)) || math.IsInf(float64(v), 0)",
		"return math.IsNaN(float64(v)) && math.IsInf(float64(v), 0)", "a value that is no number passes"},
	{"gate.go", "		action = min(place+g.Lead[j], max(place-g.Lead[j], action))\n", "",
		"a blocked joint winds its goal up"},
	{"joint.go", "{Limp, 0, mayRelax,", "{Limp, 0, mayGoal,", "a limp joint gets goals"},
	{"joint.go", "{Restarted, 0, mayNothing,", "{Restarted, Torque, mayArm,",
		"a restarted motor is armed without an operator"},
	{"joint.go", "{0, Answering, mayNothing,", "{HeatOrSupply, Answering, mayNothing,", "a silent motor gets goals"},
	{"joint.go", "{0, Verified, mayNothing,", "{HeatOrSupply, Verified, mayNothing,",
		"a motor that was silent gets a goal before it is compared"},
	{"joint.go", "{EncoderFault, 0, mayNothing,", "{EncoderFault, Torque, mayNothing,",
		"a joint with a faulty encoder is driven"},
	{"joint.go", "{Overloaded, 0, mayRelieve,", "{Overloaded, 0, mayNothing,", "an overloaded joint stays frozen"},
	{"joint.go", "noReply:           {\"does not answer\", 0, Answering | Verified},",
		"noReply:           {\"does not answer\", 0, Answering},", "a motor that answers again counts as the same"},
	{"joint.go", "motorRestarted:    {\"its motor has restarted\", Restarted, Torque},",
		"motorRestarted:    {\"its motor has restarted\", 0, Torque},", "a restart is forgotten"},
	{"joint.go", "reconnected:       {\"its arm is back\", 0, Torque},",
		"reconnected:       {\"its arm is back\", 0, 0},", "an arm that was away goes on where it was"},
	{"push.go", "case (action-goal)*p.way >= 0:", "case (action-goal)*p.way <= 0:",
		"an overloaded joint pushes on and does not let go"},
	{"push.go", "	p.way = way\n	p.read = known\n	p.idle = known && way == 0\n",
		"	p.read = known && way != 0\n	p.idle = false\n", "an overloaded joint at its goal stays frozen"},
	{"push.go", "	p.way = way\n	p.read = known\n	p.idle = known && way == 0\n",
		"	p.way = way\n	p.read = known\n	p.idle = way == 0\n",
		"an overloaded joint moves before its load was read"},
	{"drive.go", "	if f.silence.bus {\n		return\n	}\n", "", "goals leave while the arm is silent"},
	{"read.go", "			f.Goal[j] = f.gate.settle(f.Goal[j], f.Place[j])\n", "",
		"a joint whose motor holds another goal goes on from ours"},
	{"read.go", "if s.strayed&bit == 0 || s.stale&bit != 0 {", "if s.strayed&bit == 0 {",
		"a place that is not known becomes the goal"},
	{"read.go", "		f.startSlowly(now) // the joints go on from the goals that the motors have kept\n",
		"		s.strayed |= resumed\n", "a goal that a motor has kept is given up after a silence"},
	{"arming.go", "case c&(Limp|EncoderFault) != 0, c&Torque != 0 && !f.rearmAll:",
		"case c&EncoderFault != 0, c&Torque != 0 && !f.rearmAll:", "an arm with a limp joint is never armed"},
	{"gate.go", "low, high = g.Min[j]*pace, g.Max[j]*pace", "step *= pace",
		"a base drives too fast while it starts slowly"},
	{"gate.go", "			share = min(share, step/d)\n", "", "a base accelerates faster than its limit"},
	{"drive.go", "	f.zeroBase() // the base stops at once, regardless of its acceleration limit\n", "",
		"a base rolls on between two episodes"},
	{"base.go", "	if !f.base.driven {\n		f.stopBase()\n	}\n", "",
		"a base goes on without an action, and in a pause"},
	{"drive.go", "	f.stopBase()\n	f.Phase = Done\n", "	f.Phase = Done\n",
		"a base goes on at the end of a run"},
	{"base.go", "if b.lost++; b.lost >= baseLost {", "if b.lost++; false {",
		"a base goes on without one of its wheels"},
	{"base.go", "if f.joints[j]&(Torque|Limp) == Torque {", "if true {", "a limp wheel gets a goal"},
	{"base.go", "if towards <= 0 {", "if true {", "a base drives on against an obstacle"},
	{"read.go", "			f.stopBase()\n			continue\n", "", "a wheel with another goal goes on with it"},
}

// parts are the mutants of a robot of several parts.
var parts = []mutant{
	{"parts.go", "if f.silent() || f.allHeld() != 0 || ", "if f.allHeld() != 0 || ",
		"a part goes on while the other is silent"},
	{"parts.go", "f.allHeld() != 0 || f.rescuing()", "f.rescuing()",
		"a part goes on while no joint of the other is driven"},
	{"parts.go", "f.Phase == Armed && !p.holding && !f.rescuing()", "f.Phase == Armed && !p.holding",
		"the policy drives a part on its way into its range"},
	{"parts.go", "		p.StartSlowly(t.Woke) // the", "		_ = t.Woke // the",
		"the parts go on at full speed"},
	{"parts.go", "f.drive(now, action[f.first:f.first+len(f.Goal)], pace, policy)",
		"f.drive(now, action[:len(f.Goal)], pace, policy)",
		"every part gets the action of the first"},
	{"parts.go", "		case !ready && p.Several() && !p.apart:\n			return false, nil\n", "",
		"a part is armed while another is silent"},
	{"parts.go", "case at < 0, f.bus.OutOfRange()&joints != 0 && !f.cfg.Rescue:", "case at < 0, false && joints != 0:",
		"a part gets torque though another is outside its range"},
	{"parts.go", "		case f.Phase < Armed:\n			f.Phase = Done\n", "",
		"a run does not end while a part is away"},
	{"parts.go", "			f.finish(now)\n",
		"			f.finish(now)\n			p.findPhase()\n			return\n", "only one part parks"},
	{"parts.go", "f.cfg.Events.Emit(now, what, int64(joints)<<f.first, b)",
		"f.cfg.Events.Emit(now, what, int64(joints), b)",
		"an event names a joint of another part"},
	{"parts.go", "all |= of(f) << f.first", "all |= of(f)", "a silent joint counts as one of another part"},
	{"parts.go", "		p.gate.join(&f.gate)\n", "", "a preview has no limits"},
}

// names are the mutants of the order of a robot's parts and of a base's kinematics.
var names = []mutant{
	{"parts.go", "for i := range r.parts {\n		p := &r.parts[i]\n		if p.Robot.Leader",
		"for i := range r.parts {\n		p := &r.parts[len(r.parts)-1-i]\n		if p.Robot.Leader",
		"the right arm's joints come before the left arm's"},
	{"base.go", "raw[i] = int(math.RoundToEven(d * share * k.rawPerDegree))",
		"raw[i] = int(math.RoundToEven(d*share*k.rawPerDegree)) * (1 - 2*(i&1))",
		"the back wheel turns the wrong way round"},
	{"base.go", "inv[r][c] = minor(c, r) / det", "inv[r][c] = minor(r, c) / det",
		"the base reads another motion than it makes"},
	{"base.go", "for i, angle := range wheelAngles {", "for i, angle := range [Axes]float64{30, -90, 150} {",
		"the left wheel and the right one are swapped"},
}

// sights are the mutants of two checks: of the positions and of the goal registers that edge-rt may
// use.
var sights = []mutant{
	{"cycle.go", "if a.agree(i, a.place(i), now) || a.robot.Leader", "if a.agree(i, a.place(i), now) || true",
		"one wrong position counts"},
	{"cycle.go", "a.near(i, raw-before, at, now) || a.near(", "raw == before && at == 0 || a.near(",
		"a joint that has moved never counts again"},
	{"cycle.go", "reaches(way, min(most, now.Sub(since)))", "reaches(way, max(most, now.Sub(since)))",
		"after a silence any position counts"},
	{"cycle.go", "a.unsettled() == 0 {", "true {", "an arm is opened with one reading"},
	{"arming.go", "if a.unsettled()&joints != 0 {", "if false {", "an arm is armed at one reading"},
	{"cycle.go", "if joints == a.wheels {", "if joints != 0 {", "a base moves with a part of its wheels"},
	{"arm.go", "		_ = stopWheels(a.bus, a.robot)\n", "		_ = a.robot\n",
		"a base that is held at the end goes on"},
	{"torque.go", "	return a.write(u, a.rows.spin, 0)\n", "	return nil\n",
		"a base that was left turning goes on"},
	{"arming.go", "return false, a.armWheels()", "m.stage = stageMarker\n		return false, nil",
		"a wheel turns as soon as it has torque"},
	{"verify.go", "if u.goalMismatches++; u.goalMismatches < mismatchReads {", "if u.goalMismatches++; false {",
		"one reading of a goal register counts"},
}

// suite is a package with its mutants. tests is a pattern of names: for each mutant, one of these
// tests must fail.
type suite struct {
	dir, tests string
	mutants    []mutant
}

var suites = []suite{
	{"./edge/follow", "^Test([^D]|D[^o])", mutants},
	{"./edge/follow", "^Test(Part|.*OfAPart)", parts},
	{"./servo", "^Test(Sight|ArmingAtA|AGoalRegister|ABase)", sights},
	{"./servo/robot", "^Test(Kinematics|LeKiwi|RobotOfTwoArms)", names},
}

type options struct {
	Only string `help:"mutants whose defect matches this regular expression; default: all"`
}

func main() { stage.Tool(run) }

func run(o options) error {
	only, err := regexp.Compile(o.Only)
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	survived := 0
	for _, s := range suites {
		s.mutants = slices.DeleteFunc(slices.Clone(s.mutants), func(m mutant) bool {
			return !only.MatchString(m.breaks)
		})
		if len(s.mutants) == 0 {
			continue
		}
		// Without a mutant the tests must pass: otherwise a failure with a mutant means nothing.
		same := s.mutants[0]
		same.new = same.old
		if caught, err := s.try(root, dir, same); caught || err != nil {
			return fmt.Errorf("the tests of %s fail without a mutant: %v", s.dir, err) //nolint:errorlint // may be nil
		}
		for i, m := range s.mutants {
			began := time.Now()
			caught, err := s.try(root, dir, m)
			if err != nil {
				return err
			}
			word := "caught"
			if !caught {
				word = "SURVIVED"
				survived++
			}
			fmt.Printf("%2d of %d %-8s %5.1f s  %s: %s\n", i+1, len(s.mutants), word, time.Since(began).Seconds(),
				m.file, m.breaks)
		}
	}
	if survived > 0 {
		return fmt.Errorf("%d mutants survived", survived)
	}
	return nil
}

// try runs the tests with one line changed and reports whether one of them fails.
func (s suite) try(root, dir string, m mutant) (caught bool, err error) {
	path := filepath.Join(root, s.dir, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return false, fmt.Errorf("%s has %q %d times, want once: mend the mutant", m.file, m.old, n)
	}
	changed := filepath.Join(dir, m.file)
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o644); err != nil {
		return false, err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return false, err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		return false, err
	}
	// A broken line can also make a test wait without end.
	out, err := exec.Command("go", "test", "-overlay", list, "-vet=off", "-short", "-failfast", "-count=1",
		"-timeout", "1m", "-run", s.tests, s.dir).CombinedOutput()
	if strings.Contains(string(out), " failed]") { // build, setup
		return false, fmt.Errorf("%s: %q does not compile: %s", m.file, m.new, out)
	}
	return err != nil, nil
}
