package tidy

import (
	"fmt"
	"path"
	"strings"
	"testing"
)

// layers is the architecture: imports go down, from a higher number to a lower one, never sideways.
// A new package must be entered here, or the test fails.
var layers = []struct {
	level  int
	folder string
	why    string
}{
	{1, "rt", "time, threads and what they exchange know nothing of robots"},
	{1, "rt/rttest", "the fake clock, for the tests of every layer"},
	{1, "internal/exit", "one table of exit codes for all programs"},
	{1, "internal/plain", "text of foreign files and peers, wherever a terminal shows it"},
	{1, "internal/userfile", "files, paths and sizes that people write, wherever they are read"},
	{1, "wire/listen", "TCP listeners on the addresses that were asked for, of the transport and of pages"},
	{1, "policy/safetensors", "the files of golden sets and captures"},
	{1, "rt/backoff", "waits between attempts, wherever something may be absent"},
	{1, "internal/child", "processes that end with the one that starts them: bench's and the tools'"},
	{2, "internal/webpage", "what the programs' pages for a browser share"},
	{2, "internal/webpage/webpagetest", "a browser that looks at those pages, for the tests of every layer"},
	{2, "systemd/notify", "what any process tells its service manager"},
	{2, "internal/terminal", "the log and status line of any program; it needs a clock"},
	{2, "servo", "the servo bus and its arm"},
	{2, "servo/table", "which register a servo keeps where: data that codec, arm and descriptions share"},
	{2, "servo/packet", "the frames on the line, without any register's meaning"},
	{2, "servo/robot", "an arm as data, read from YAML"},
	{2, "sim/servosim", "the bus from the motors' side"},
	{2, "sim/motor", "what a simulated servo's registers act on: motors, shafts, heat and supply, without registers " +
		"or packets"},
	{2, "sim/referee", "what a driver must never do, judged from the motors' side; it knows no driver"},
	{2, "camera", "pictures with their true age"},
	{2, "camera/v4l2", "the kernel's cameras"},
	{2, "sim/pattern", "a camera without hardware or world: bars with a number"},
	{2, "camera/files", "a camera of files"},
	{2, "jpeg", "one format"},
	{2, "wire", "the nouns that cross the network, and their bytes"},
	{2, "wire/wiretest", "the frozen vectors, for the tests of everybody who speaks wire"},
	{2, "sim/netfault", "a transport that loses, doubles and delays by a script"},
	{2, "wire/zenoh", "the transport in pure Go"},
	{2, "wire/zenohgo", "the transport on libzenohc"},
	{2, "policy/tokenizer", "a text as a policy reads it, from files alone: neither graph nor bundle"},
	{3, "chunk", "which action when"},
	{3, "policy", "exported models"},
	{3, "record", "log and replay"},
	{3, "record/recordtest", "records without a robot, for the tests of those who read them"},
	{3, "record/timeline", "what a run did over time, for its live page and for a report"},
	{3, "record/dataset", "records as LeRobot's datasets"},
	{3, "sim", "a world to act in"},
	{3, "sim/scene", "a simulated world for other processes of this machine"},
	{3, "wire/network", "which transport this build has"},
	{4, "edge", "the robot process"},
	{4, "server", "the inference process"},
	{4, "bench", "the measurements"},
	{4, "stage", "the real programs as processes, for every trial"},
	{4, "sim/fleet", "many robots in virtual time"},
	{4, "internal/program", "the beginning and the end that all programs share"},
	{5, "bringup", "the commands that take an arm from its box to its first run"},
	{5, "bringup/watchdog", "a second process that takes the torque when the first cannot"},
	{5, "record/why", "the causes of a bad run, from its record; it knows the words of edge"},
	{6, "internal/program/programtest", "the tests of all programs hold their flags against the ranges in the tags"},
	{6, "cmd", "flags, config, open, run, exit code; no logic"},
	{6, "examples", "small programs on the libraries, for those who import them"},
	{6, "tools", "programs for those who work on the repository"},
	{7, "systemd", "holds the units against the programs"},
	{7, "internal/tidy", "looks at the code from outside"},
}

// parted lists the folders whose subfolders are of the same layer, and whether these may import
// each other.
var parted = []struct {
	folder string
	meet   bool
	why    string
}{
	{"wire/zenoh", true, "a transport has a codec, key expressions and links, each a package to test alone"},
	{"bench", true, "one folder for each measurement, on what all of them share"},
	{"chunk", false, "stages stand behind any schedule and know none"},
	{"edge", true, "a robot process has a session, cameras, limits, a bus that comes back, a page to look at and " +
		"teleoperation, each a package to test alone"},
	{"server", true, "an inference process has a manifest, an audit, and fakes for its tests, each a package to test " +
		"alone"},
	{"cmd", false, "one folder for each program"},
	{"examples", false, "one folder for each program"},
	{"tools", true, "one folder for each program, and for the parts of a larger one"},
}

// partedOf returns the parted folder of dir, or dir itself, and whether its parts may import each
// other.
func partedOf(dir string) (folder string, meet bool) {
	for _, p := range parted {
		if within(dir, []string{p.folder}) {
			return p.folder, p.meet
		}
	}
	return dir, false
}

// sideways lists the only imports within a layer.
var sideways = []struct{ from, to, why string }{
	{"internal/terminal", "internal/plain", "text of others in it"},
	{"rt/rttest", "rt", "a fake implements the interface beside it"},
	{"sim/pattern", "camera", "it implements the interface above it"},
	{"camera/files", "camera", "it implements the interface above it"},
	{"servo/robot", "servo/table", "a description names models and registers"},
	{"sim/servosim", "sim/motor", "registers set a motor's gains and limits"},
	{"sim/referee", "sim/servosim", "it judges what a simulated servo receives"},
	{"servo", "servo/table", "an arm is made of models"},
	{"servo", "servo/packet", "a bus speaks in frames"},
	{"servo", "servo/robot", "an arm is opened from its description"},
	{"record/recordtest", "record", "it writes what that reads"},
	{"record/timeline", "record", "it reads records"},
	{"sim/scene", "sim", "it shows the world"},
	{"bringup/watchdog", "bringup", "it lets an arm go as torque-off does"},
	{"record/dataset", "record", "datasets are made of records"},
	{"sim/netfault", "wire", "it wraps a wire.Session"},
	{"camera/v4l2", "camera", "it implements the interface above it"},
	{"wire/zenoh", "wire", "the transport implements wire.Session"},
	{"wire/zenohgo", "wire", "the transport implements wire.Session"},
	{"wire/zenohgo", "wire/zenoh", "it takes the same configuration"},
	{"bench", "sim/fleet", "it measures in virtual time"},
	{"bench", "edge", "it measures the real edge"},
	{"sim/fleet", "edge", "its robots tick on the edge's own core"},
	{"bench", "server", "it measures the real server"},
	{"bench", "stage", "it measures programs that run there"},
}

var libraries = []string{"rt", "servo", "camera", "jpeg", "wire", "chunk", "policy", "record", "sim"}

// bans apply to folders and everything below them, and to tests too, which may otherwise import
// sideways.
var bans = []struct {
	from, to []string // folders; import paths
	but      []string // folders below from that may
	why      string
}{
	{[]string{"sim/servosim"}, []string{"github.com/edge-rt/edge-rt/servo"}, nil,
		"two independent readings of the datasheet check each other"},
	{[]string{"edge"}, []string{"github.com/edge-rt/edge-rt/server"}, nil, "wire is their whole contract"},
	{[]string{"server"}, []string{"github.com/edge-rt/edge-rt/edge"}, nil, "wire is their whole contract"},
	{libraries, []string{"log"}, []string{"record/why"},
		"layers 1 to 3 return errors and count; only a process decides what to log"},
	{libraries, []string{"github.com/edge-rt/edge-rt/internal/exit"},
		[]string{"record/why", "record/timeline", "sim/scene"},
		"a library returns errors; only a process knows its exit code"},
	{append([]string{"edge", "server", "internal"}, libraries...),
		[]string{"github.com/edge-rt/edge-rt/cmd", "github.com/edge-rt/edge-rt/bench",
			"github.com/edge-rt/edge-rt/stage"},
		nil, "nothing imports a program, the measurements or their stage"},
}

// layerOf returns the folder's level, 0 for a folder without one.
func layerOf(dir string) (level int) {
	folder, _ := partedOf(dir)
	for _, l := range layers {
		if l.folder == folder {
			return l.level
		}
	}
	return 0
}

// checkLayers returns the imports that violate the tables above.
func checkLayers(t *tree) (findings []string) {
	unknown := map[string]bool{}
	for _, f := range t.files {
		if layerOf(f.dir) == 0 {
			if !unknown[f.dir] {
				findings = append(findings,
					fmt.Sprintf("%s: package in no layer: enter it into the table with its reason", f.dir))
			}
			unknown[f.dir] = true
			continue
		}
		for _, spec := range f.ast.Imports {
			if why := badImport(f, importPath(spec)); why != "" {
				findings = append(findings, fmt.Sprintf("%s imports %s: %s", t.at(spec.Pos()), importPath(spec), why))
			}
		}
	}
	return findings
}

// badImport returns why the file may not import the path, "" when it may.
func badImport(f *file, imported string) (why string) {
	to, ours := strings.CutPrefix(imported, module+"/")
	if to == f.dir {
		return "" // an external test imports its package
	}
	for _, b := range bans {
		if within(f.dir, b.from) && !within(f.dir, b.but) && within(imported, b.to) && !within(to, b.from) {
			return b.why
		}
	}
	if !ours {
		return ""
	}
	if fake(to) && !f.test && !fake(f.dir) {
		return "a package named after what it tests is for tests"
	}
	from, below := layerOf(f.dir), layerOf(to)
	switch {
	case below < from, f.test && below == from:
		return ""
	case below > from:
		return fmt.Sprintf("imports go down, and layer %d is above layer %d", below, from)
	}
	fromFolder, _ := partedOf(f.dir)
	toFolder, meet := partedOf(to)
	if fromFolder == toFolder && meet {
		return ""
	}
	for _, s := range sideways {
		if s.from == fromFolder && s.to == toFolder {
			return ""
		}
	}
	return fmt.Sprintf("packages of layer %d do not import each other; they meet one layer up", from)
}

// fake reports whether the folder is for other packages' tests, such as rt/rttest, or is the suite
// that every implementation of wire.Session runs.
func fake(dir string) bool {
	return path.Base(dir) == path.Base(path.Dir(dir))+"test" || dir == "wire/zenoh/sessiontest"
}

func TestImportsGoDown(t *testing.T) {
	for _, f := range checkLayers(theModule(t)) {
		t.Error(f)
	}
}

func TestEveryEntryHasAReason(t *testing.T) {
	for _, l := range layers {
		if l.why == "" {
			t.Errorf("layer of %s has no reason", l.folder)
		}
	}
	for _, p := range parted {
		if p.why == "" {
			t.Errorf("%s has parts without a reason", p.folder)
		}
	}
	for _, s := range sideways {
		if s.why == "" {
			t.Errorf("%s may import %s without a reason", s.from, s.to)
		}
	}
	for _, b := range bans {
		if b.why == "" {
			t.Errorf("%v may not import %v without a reason", b.from, b.to)
		}
	}
}

func TestLayerRulesBite(t *testing.T) {
	tests := []struct {
		name, path, imports string
		want                []string
	}{
		{"down is fine", "edge/a.go", "github.com/edge-rt/edge-rt/chunk", nil},
		{"the standard library is fine", "rt/a.go", "sync", nil},
		{"up", "rt/a.go", "github.com/edge-rt/edge-rt/servo",
			[]string{"rt/a.go:2 imports github.com/edge-rt/edge-rt/servo: imports go down"}},
		{"up from a test", "chunk/a_test.go", "github.com/edge-rt/edge-rt/edge", []string{"imports go down"}},
		{"sideways in layer 2", "camera/a.go", "github.com/edge-rt/edge-rt/jpeg", []string{"do not import each other"}},
		{"sideways in layer 3", "chunk/a.go", "github.com/edge-rt/edge-rt/policy",
			[]string{"do not import each other"}},
		{"sideways from a test is fine", "servo/a_test.go", "github.com/edge-rt/edge-rt/sim/servosim", nil},
		{"servo from its simulator", "sim/servosim/a.go", "github.com/edge-rt/edge-rt/servo",
			[]string{"two independent readings"}},
		{"servo from its simulator's test", "sim/servosim/a_test.go", "github.com/edge-rt/edge-rt/servo",
			[]string{"two independent readings"}},
		{"a package's own external test", "sim/servosim/a_test.go", "github.com/edge-rt/edge-rt/sim/servosim", nil},
		{"a fake in a program", "edge/a.go", "github.com/edge-rt/edge-rt/rt/rttest", []string{"is for tests"}},
		{"a fake in a test is fine", "edge/a_test.go", "github.com/edge-rt/edge-rt/rt/rttest", nil},
		{"a fake in a suite is fine", "wire/zenoh/sessiontest/a.go", "github.com/edge-rt/edge-rt/rt/rttest", nil},
		{"a suite in a program", "edge/a.go", "github.com/edge-rt/edge-rt/wire/zenoh/sessiontest",
			[]string{"is for tests"}},
		{"edge from server", "server/a.go", "github.com/edge-rt/edge-rt/edge", []string{"whole contract"}},
		{"server from edge's test", "edge/a_test.go", "github.com/edge-rt/edge-rt/server", []string{"whole contract"}},
		{"wire from its transport is fine", "wire/zenoh/a.go", "github.com/edge-rt/edge-rt/wire", nil},
		{"a part from a part is fine", "wire/zenoh/link/a.go", "github.com/edge-rt/edge-rt/wire/zenoh/codec", nil},
		{"camera from a part", "wire/zenoh/link/a.go", "github.com/edge-rt/edge-rt/camera",
			[]string{"do not import each other"}},
		{"the transport from wire", "wire/a.go", "github.com/edge-rt/edge-rt/wire/zenoh",
			[]string{"do not import each other"}},
		{"a logger in layer 3", "sim/a.go", "log/slog", []string{"only a process decides"}},
		{"a logger below wire", "wire/zenoh/a.go", "log", []string{"only a process decides"}},
		{"a logger in layer 4 is fine", "server/a.go", "log/slog", nil},
		{"the exit codes in a process are fine", "edge/a.go", "github.com/edge-rt/edge-rt/internal/exit", nil},
		{"the exit codes in a library", "servo/a.go", "github.com/edge-rt/edge-rt/internal/exit",
			[]string{"only a process knows"}},
		{"a program", "edge/a.go", "github.com/edge-rt/edge-rt/cmd/edge-rt", []string{"nothing imports a program"}},
		{"the measurements", "server/a_test.go", "github.com/edge-rt/edge-rt/bench",
			[]string{"nothing imports a program"}},
		{"the measurements from their program are fine", "cmd/bench/a.go", "github.com/edge-rt/edge-rt/bench", nil},
		{"a program from a program", "cmd/bench/a.go", "github.com/edge-rt/edge-rt/cmd/edge-rt",
			[]string{"do not import each other"}},
		{"a package nobody entered", "motor/a.go", "fmt", []string{"motor: package in no layer"}},
		{"an unknown folder below a known one", "rt/spin/a.go", "fmt", []string{"rt/spin: package in no layer"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := sample(t, map[string]string{tt.path: "package p\nimport _ \"" + tt.imports + "\"\n"})
			want(t, checkLayers(tr), tt.want)
		})
	}
}
