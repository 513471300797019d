package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

type grammar struct {
	Bus  string `help:"The arm's port."`
	Seed int    `default:"3" help:"Of the world."`

	Run  struct{} `cmd:"" default:"1" help:"Run."`
	Scan struct {
		Deep bool `help:"Every rate."`
	} `cmd:"" uses:"bus" help:"Look for motors."`
	Version struct{} `cmd:"" uses:"" help:"Print the version."`
}

// parse parses a command line into the grammar g. The result said is the text on the standard error.
func parse(g any, args ...string) (ctx *kong.Context, code exit.Code, done bool, stdout, said string) {
	var out, err strings.Builder
	p := Program{Name: "robot", Env: "PROGRAM_TEST", Once: []string{"bus", "file"}, Stdout: &out, Stderr: &err}
	ctx, code, done = p.Parse(g, args)
	return ctx, code, done, out.String(), err.String()
}

func TestParse(t *testing.T) {
	t.Setenv("PROGRAM_TEST_BUS", "/dev/x")
	var g grammar
	ctx, code, done, _, stderr := parse(&g, "scan", "--deep")
	if done || g.Bus != "/dev/x" || g.Seed != 3 || !g.Scan.Deep || ctx.Command() != "scan" || code != 0 {
		t.Errorf("Parse = %+v, %d, %t (%s)", g, code, done, stderr)
	}
	_, code, done, _, stderr = parse(&g, "--buss", "x")
	if code != exit.Usage || !done || !strings.HasPrefix(stderr, "robot: ") ||
		!strings.HasSuffix(stderr, "; see robot --help\n") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("a wrong flag: code %d, done %t, said %q", code, done, stderr)
	}
	for args, want := range map[string]bool{"--json - --buss x": true, "--json=- --buss x": true,
		"--buss x --json": false} {
		if _, _, _, stdout, _ := parse(&g, strings.Fields(args)...); strings.Contains(stdout, `"code": 2`) != want {
			t.Errorf("%s: standard output %q, want JSON: %t", args, stdout, want)
		}
	}
}

// Of two values of a flag that takes one, the last counts, with a warning. Two values of a flag
// that names a device, a file or a robot are refused, since an arm on the other port would move.
func TestAFlagOfOneValueIsGivenOnce(t *testing.T) {
	type many struct {
		Bus     string        `help:"A."`
		File    string        `help:"A."`
		FPS     *float64      `help:"A."`
		Wait    time.Duration `help:"A."`
		Camera  []string      `help:"A."`
		Tag     map[string]string
		Quiet   bool     `help:"A." short:"q"`
		Verify  bool     `negatable:"" default:"true" help:"A."`
		Connect string   `short:"c" help:"A."`
		Run     struct{} `cmd:"" default:"1" help:"Run."`
		Scan    struct {
			Last int `help:"A."`
		} `cmd:"" help:"A."`
	}
	file := rttest.WriteFile(t, t.TempDir(), "flags.yaml", "bus: f\n")
	t.Setenv("PROGRAM_TEST_FPS", "10")
	for _, tt := range []struct {
		args []string
		want string // a part of the warning; empty: there is no warning
		warn bool
	}{
		{[]string{"--bus", "a", "--bus", "b"}, "--bus is given more than once (a, b): it takes one value, want it once",
			false},
		{[]string{"--bus=a", "--bus", "b"}, "--bus is given more than once (a, b)", false},
		{[]string{"--bus", "a", "--bus=b", "--bus=c"}, "(a, b, c)", false},
		{[]string{"--bus", "a", "--bus", "b", "--file=x", "--file=y"}, "(a, b); --file is given more than once (x, y)",
			false},
		{[]string{"--bus", "a", "scan", "--bus", "b"}, "--bus is given more than once (a, b)", false},
		{[]string{"--bus", "a", "--bus", "a"}, "", false},
		{[]string{"--fps", "3", "--fps", "4"}, "robot: --fps is given more than once (3, 4): the last one counts\n",
			true},
		{[]string{"--wait", "1s", "--wait", "2s"}, "--wait is given more than once (1s, 2s)", true},
		{[]string{"-c", "a", "--connect=b"}, "--connect is given more than once (a, b)", true},
		{[]string{"scan", "--last", "3", "--last", "4"}, "--last is given more than once (3, 4)", true},
		{[]string{"--verify", "--no-verify"}, "--verify is given more than once (--verify, --no-verify)", true},
		{[]string{"--quiet", "--quiet"}, "", false},
		{[]string{"--camera", "a", "--camera", "b", "--tag", "x=1", "--tag", "y=2"}, "", false},
		{[]string{"--fps", "3", "--bus", "--bus"}, "", false},
		{[]string{"--config", file, "--bus", "a"}, "", false},
	} {
		var g struct {
			Config ConfigFile
			many
		}
		_, code, done, _, stderr := parse(&g, tt.args...)
		refused := done && code == exit.Usage
		repeated := strings.Contains(stderr, "more than once")
		if repeated != (tt.want != "") || !strings.Contains(stderr, tt.want) || repeated && refused == tt.warn {
			t.Errorf("%q: code %d, %q, want %q", tt.args, code, stderr, tt.want)
		}
	}
}

// Paths in a variable, in a file or after an equals sign are expanded, since no shell has expanded them.
func TestPathsAreExpanded(t *testing.T) {
	t.Setenv("HOME", "/u")
	file := rttest.WriteFile(t, t.TempDir(), "flags.yaml", "config-dir: $HOME/d\n")
	t.Setenv("PROGRAM_TEST_CALIBRATION", "~/c.json")
	var g struct {
		Config      ConfigFile
		Calibration string `placeholder:"FILE"`
		ConfigDir   string `placeholder:"DIR"`
		Bus         string `placeholder:"PORT"`
		Task        string `placeholder:"TEXT"`
	}
	if _, code, done, _, said := parse(&g, "--config", file, "--bus=~/arm", "--task=~/$HOME"); done {
		t.Fatalf("Parse ends with code %d, %s", code, said)
	}
	if g.Calibration != "/u/c.json" || g.ConfigDir != "/u/d" || g.Bus != "/u/arm" || g.Task != "~/$HOME" {
		t.Errorf("Parse = %+v, want every path below /u, and the task as it was written", g)
	}
}

// A command's help shows the flags that the command uses.
func TestHelpShowsWhatIsUsed(t *testing.T) {
	for _, tt := range []struct {
		name             string
		args             []string
		shows, leavesOut []string
	}{
		{"the program", []string{"--help"}, []string{"--bus", "--seed", "scan", "version"}, []string{"--deep"}},
		{"a command", []string{"scan", "--help"}, []string{"--bus", "--deep", "--help"}, []string{"--seed"}},
		{"one that takes nothing", []string{"version", "--help"}, []string{"--help"}, []string{"--seed", "--bus"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, code, done, stdout, _ := parse(new(grammar), tt.args...)
			if code != 0 || !done {
				t.Errorf("code %d, done %t, want 0 and true", code, done)
			}
			rttest.Contains(t, stdout, tt.shows...)
			for _, word := range tt.leavesOut {
				if strings.Contains(stdout, word) {
					t.Errorf("help shows %q:\n%s", word, stdout)
				}
			}
		})
	}
}

// A variable and a file do not set a flag that a command takes from the command line only, nor a flag
// that only other commands use, and the command's help does not name the variable. A wrong value in a
// variable that no command reads changes nothing.
func TestOnlyTheCommandLineCounts(t *testing.T) {
	file := rttest.WriteFile(t, t.TempDir(), "run.yaml", "pause: 9\nlevel: 9\nother: 9\n")
	t.Setenv("PROGRAM_TEST_CONFIG", file) // the parser does not read this variable
	for _, tt := range []struct {
		args                string
		variables           bool
		pause, level, other int
	}{
		{"watch", false, 1, 2, 3},
		{"watch", true, 1, 8, 3},
		{"watch --config " + file, false, 1, 9, 3},
		{"watch --pause 5 --config " + file, true, 5, 8, 3},
		{"run", true, 8, 8, 8},
		{"run --config " + file, false, 9, 9, 9},
	} {
		for _, name := range []string{"PAUSE", "LEVEL", "OTHER"} {
			t.Setenv("PROGRAM_TEST_"+name, "8") // so that the end of the test restores the variable
			if !tt.variables {
				os.Unsetenv("PROGRAM_TEST_" + name)
			}
		}
		var g struct {
			Config ConfigFile
			Pause  int `default:"1"`
			Level  int `default:"2"`
			Other  int `default:"3"`

			Run   struct{} `cmd:"" default:"1"`
			Watch struct{} `cmd:"" uses:"pause typed,level"`
		}
		ctx, _, done, _, said := parse(&g, strings.Fields(tt.args)...)
		if done || g.Pause != tt.pause || g.Level != tt.level || g.Other != tt.other {
			t.Errorf("%s, variables %t: %+v (%s), want %d, %d, %d", tt.args, tt.variables, g, said, tt.pause, tt.level,
				tt.other)
			continue
		}
		if set := tt.variables || strings.Contains(tt.args, "--config"); Set(ctx, "level") != set {
			t.Errorf("%s, variables %t: Set is %t", tt.args, tt.variables, !set)
		}
		command, _, _ := strings.Cut(tt.args, " ")
		if set := strings.Contains(tt.args, "--pause") || command == "run"; Set(ctx, "pause") != set {
			t.Errorf("%s, variables %t: Set of a flag that is typed is %t", tt.args, tt.variables, !set)
		}
		_, _, _, help, _ := parse(&g, command, "--help")
		if shown := strings.Contains(help, "$PROGRAM_TEST_PAUSE"); shown != (command == "run") ||
			!strings.Contains(help, "$PROGRAM_TEST_LEVEL") || strings.Contains(help, "$PROGRAM_TEST_CONFIG") {
			t.Errorf("%s --help names variables that it does not read, or hides one that it reads:\n%s", command, help)
		}
	}
}

// A negative number is an argument in any place, and not a flag.
func TestNegativeNumbers(t *testing.T) {
	for _, tt := range []struct {
		args string
		to   float64
		code exit.Code
		says string
	}{
		{"move elbow -10 --bus x", -10, 0, ""},
		{"--bus x move elbow -.5", -.5, 0, ""},
		{"move elbow -1e1 --bus x --seed=-3", -10, 0, ""},
		{"move elbow --bus x -- -10", -10, 0, ""},
		{"move elbow 10 --bus x", 10, 0, ""},
		{"move elbow -10 -20", 0, exit.Usage, "-20"},
		{"move elbow 10 --seed -3", 0, exit.Usage, "--seed=\"-3\""},
		{"move elbow -x", 0, exit.Usage, "-x"},
		{"-10", 0, exit.Usage, "-1"},
	} {
		var g struct {
			grammar
			Move struct {
				Joint string  `arg:""`
				To    float64 `arg:""`
			} `cmd:""`
		}
		_, code, done, _, said := parse(&g, strings.Fields(tt.args)...)
		if code != tt.code || done != (code != 0) || !strings.Contains(said, tt.says) ||
			strings.Count(said, "\n") > 1 {
			t.Errorf("%s: code %d, said %q; want %d and %q", tt.args, code, said, tt.code, tt.says)
		}
		if !done && (g.Move.To != tt.to || g.Move.Joint != "elbow" || g.Bus == "" &&
			strings.Contains(tt.args, "--bus")) {
			t.Errorf("%s: %+v, want %v", tt.args, g.Move, tt.to)
		}
	}
}

// A flag that a command does not use is refused on the command line, with the commands that use it;
// a variable or a file may be for other commands.
func TestAFlagThatMeansNothing(t *testing.T) {
	file := rttest.WriteFile(t, t.TempDir(), "run.yaml", "speed: 9\n")
	t.Setenv("PROGRAM_TEST_SEED", "7")
	for _, tt := range []struct {
		args, says string
	}{
		{"scan --bus x --deep --config " + file, ""},
		{"run --seed 3 --speed 2", ""},
		{"scan --seed 3 --deep", "robot: scan has no use for --seed, which is for run; see "},
		{"--speed 2 scan --seed 3 --seed 4 --bus x",
			"no use for --speed, which is for run; nor for --seed, which is for run; see "},
		{"version --bus x", "no use for --bus, which is for run, scan; see "},
		{"run --deep", "unknown flag --deep here, which is for scan; "},
		{"scan --depth", "unknown flag --depth"},
	} {
		var g struct {
			Config ConfigFile
			Speed  int
			grammar
		}
		ctx, code, done, _, said := parse(&g, strings.Fields(tt.args)...)
		if done != (tt.says != "") || done && code != exit.Usage || !strings.Contains(said, tt.says) ||
			strings.Count(said, "\n") > 1 {
			t.Errorf("%s: code %d, %q, want %q", tt.args, code, said, tt.says)
		}
		if !done && (!given(ctx, strings.TrimLeft(strings.Fields(tt.args)[1], "-")) || given(ctx, "speed") &&
			strings.HasPrefix(tt.args, "scan")) {
			t.Errorf("%s: Given confuses the line and the file", tt.args)
		}
	}
}

// An invalid value in the file is found, and a value that a flag or a variable overrides does no
// harm.
func TestValuesInTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.yaml")
	for _, tt := range []struct {
		text, args, says string
	}{
		{"seed: many", "", `key seed: expected a valid 64 bit int but got "many"`},
		{"seed: '0x10'", "", `key seed: expected a valid 64 bit int but got "0x10"`},
		{"seed: '010'\nbus: '007'", "", ""},
		{"seed: [1, 2]", "", "key seed: got the list [1 2], want one value"},
		{"bus: {a: b}", "", "key bus: got a map, want one value"},
		{"max_rate: fast", "", `key max-rate: expected a valid 64 bit int but got "fast"`},
		{"pace: gallop", "", `key pace: got "gallop", want one of walk, trot (a folder: --pace-dir)`},
		{"label: [a]", "", "key label: got the list [a], want a map"},
		{"joint: [[a]]", "", "key joint: got the list [[a]], want one value or a list of them"},
		{"seed: many", "--seed 3", ""},
		{"seed: 9\nbus: x\nmax_rate: 3\npace: trot\nlabel: {a: b}\njoint: [a, b]", "", ""},
		{"joint: a\nbus:", "", ""},
	} {
		rttest.Do(t, os.WriteFile(file, []byte(tt.text), 0o600))
		var g struct {
			Config  ConfigFile
			MaxRate *int
			Pace    string `enum:"walk,trot" default:"walk"`
			PaceDir string
			Label   map[string]string
			Joint   []string
			grammar
		}
		_, code, done, _, said := parse(&g, append([]string{"--config", file}, strings.Fields(tt.args)...)...)
		if tt.says == "" {
			if done {
				t.Errorf("%s: refused: %s", tt.text, said)
			}
			continue
		}
		if code != exit.Usage || !strings.Contains(said, "config file "+file+", "+tt.says) ||
			strings.Count(said, "\n") != 1 {
			t.Errorf("%s: code %d, said %q; want 2, the file and %q", tt.text, code, said, tt.says)
		}
	}
}

// A name in the file that looks like a number stays as it is written there, and a number remains a number.
func TestNamesThatLookLikeNumbers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.yaml")
	rttest.Do(t, os.WriteFile(file, []byte("id: 1.10\nlabel: {version: 2.0, n: 3, on: true}\n"+
		"joint: [1.10, 1e3, a]\nfps: 6e1\ncpu: 3.0\ndevice: &x 1.50\nrobots: [1, 8]\nloads: [0.50, 1]\n"), 0o600))
	var g struct {
		Config ConfigFile
		ID     string `name:"id"`
		Label  map[string]string
		Joint  []string
		FPS    *float64
		CPU    int
		Device string
		Robots []int
		Loads  []float64
	}
	if _, code, done, _, said := parse(&g, "--config", file); done {
		t.Fatalf("code %d, %s", code, said)
	}
	rttest.Equal(t, g.Joint, []string{"1.10", "1e3", "a"}, "joints")
	rttest.Equal(t, g.Robots, []int{1, 8}, "whole numbers")
	rttest.Equal(t, g.Loads, []float64{0.5, 1}, "numbers")
	if g.ID != "1.10" || g.Label["version"] != "2.0" || g.Label["n"] != "3" || *g.FPS != 60 || g.CPU != 3 ||
		g.Device != "1.50" {
		t.Errorf("%+v, fps %v", g, *g.FPS)
	}
}

// --config does not wait for ever for a pipe's writer.
func TestConfigFromASilentPipe(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	rttest.Do(t, syscall.Mkfifo(name, 0o600))
	rttest.Ends(t, rttest.Err(loadConfig(name)), exit.Config, "is a pipe")
}

func TestComplain(t *testing.T) {
	var b strings.Builder
	p := Program{Name: "robot", Stderr: &b}
	rttest.Want(t, p.Report(nil), exit.Clean, "Report(nil)")
	err := exit.With(exit.Absent, errors.Join(errors.New("no arm"), errors.New("no port")))
	rttest.Want(t, p.Report(err), exit.Absent, "Report")
	rttest.Want(t, b.String(), "robot: no arm; no port\n", "standard error")
}

func TestWritable(t *testing.T) {
	dir := t.TempDir()
	kept := rttest.WriteFile(t, dir, "kept.json", "{}")
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link") // the pipe has no reader
	rttest.Do(t, syscall.Mkfifo(pipe, 0o600))
	rttest.Do(t, os.Symlink("none.json", link))
	fresh := filepath.Join(dir, "new.json")
	for _, name := range []string{kept, fresh, pipe, link, os.DevNull} {
		rttest.Do(t, Writable("--json", name))
	}
	if _, err := os.Stat(fresh); err == nil {
		t.Error("an empty file is left, which is no JSON")
	}
	rttest.Want(t, rttest.ReadFile(t, kept), "{}", "the file that was there")
	for _, name := range []string{dir, filepath.Join(dir, "none", "x.json")} {
		rttest.Ends(t, Writable("--json", name), exit.Usage, "--json", name)
	}
}

// A report that could not be written is an error, except if the reader of the report has ended.
func TestAFailedWriteIsReported(t *testing.T) {
	r, w, err := os.Pipe()
	rttest.Do(t, err)
	r.Close()
	defer w.Close()
	full := rttest.Must(os.OpenFile("/dev/full", os.O_WRONLY, 0))(t)
	defer full.Close()
	for _, tt := range []struct {
		to   *os.File
		code exit.Code
		says string
	}{
		{full, exit.Failure, "robot: standard output: write /dev/full: no space left on device\n"}, {w, exit.Clean, ""},
	} {
		var b strings.Builder
		p := Program{Name: "robot", Description: "Moves.", Stdout: NewOutput(tt.to), Stderr: &b}
		_, code, done := p.Parse(&struct{}{}, []string{"--help"})
		if code != tt.code || !done || b.String() != tt.says {
			t.Errorf("--help: code %d, done %t, said %q; want %d and %q", code, done, &b, tt.code, tt.says)
		}
		b.Reset()
		rttest.Want(t, p.Report(nil), tt.code, "Report(nil)")
		rttest.Want(t, b.String(), tt.says, "standard error")
		rttest.Want(t, p.Report(exit.With(exit.Absent, io.ErrUnexpectedEOF)), exit.Absent, "Report of another error")
	}
}

// Errors of Go and the kernel are printed in words that a user understands.
func TestLineHasNoWordsOfGo(t *testing.T) {
	err := errors.Join(context.Canceled, fmt.Errorf("at x: %w", context.DeadlineExceeded), syscall.EMFILE,
		os.NewSyscallError("getwd", syscall.ENOENT))
	rttest.Want(t, Line(err), "interrupted; at x: no answer in time; too many open files: raise ulimit -n, in a unit "+
		"LimitNOFILE=; the folder in which this program began was deleted: cd to another", "Line")
}

// An error that repeats a whole file is still one readable line.
func TestLineIsBounded(t *testing.T) {
	long := errors.New("begins " + strings.Repeat("x", 1<<20) + "\nends")
	if text := Line(long); len(text) > 2100 || !strings.HasPrefix(text, "begins") ||
		!strings.HasSuffix(text, "; ends") {
		t.Errorf("%d bytes: %.40s", len(text), text)
	}
	rttest.Want(t, Line(errors.New("one\ntwo\n")), "one; two", "Line")
}

// --help is short, a command's help and --help-all are complete; --version is a flag of every
// program, and not a variable.
func TestShortAndWholeHelp(t *testing.T) {
	t.Setenv("PROGRAM_TEST_VERSION", "true")
	t.Setenv("PROGRAM_TEST_HELP_ALL", "true")
	for _, tt := range []struct {
		args, says, not string
	}{
		{"--help", "in short", "Usage:"},
		{"-h", "in short", "Usage:"},
		{"--help-all", "--seed", "in short"},
		{"--seed 3 --help-all", "scan", "in short"},
		{"run --help", "--seed", "in short"},
		{"scan --help", "--deep", "in short"},
		{"--version", "robot 7\n", "Usage"},
		{"scan --version", "robot 7\n", "Usage"},
		{"--seed 3", "", "robot 7"},
	} {
		var g struct {
			Common `embed:""`
			Seed   int `help:"A seed."`
			Run    struct {
			} `cmd:"" default:"1" help:"Runs."`
			Scan struct {
				Deep bool `help:"Deep."`
			} `cmd:"" uses:"" help:"Scans."`
		}
		var out bytes.Buffer
		p := Program{
			Name:    "robot",
			Brief:   "in short\n",
			Version: "robot 7",
			Env:     "PROGRAM_TEST",
			Stdout:  &out,
			Stderr:  &out,
		}
		_, code, done := p.Parse(&g, strings.Fields(tt.args))
		if code != 0 || done != (tt.says != "") || !strings.Contains(out.String(), tt.says) ||
			strings.Contains(out.String(), tt.not) {
			t.Errorf("%s: code %d, done %t, want %q and not %q:\n%s", tt.args, code, done, tt.says, tt.not, &out)
		}
	}
}

// A wrong value of another command's flag, in a variable or a file, stops no command. The command that
// makes an arm limp also runs beside unknown keys: a person may have edited the file while the arm ran.
func TestForeignMistakesStopNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.yaml")
	for _, tt := range []struct {
		args, yaml, fps, says string
	}{
		{"limp", "bus: x\nfps: abc\nmode: c\nwait: 5\n", "abc", ""},
		{"limp", "bus: x\nbusy: 3\n", "", ""},
		{"limp --fps 7", "bus: x\n", "abc", ""},
		{"limp", "bus: x\nother: [a\nmore: {\n", "", ""},
		{"limp", "bus: y\nbus: x\n  bus: z\n", "", ""},
		{"limp", "bus: x\nfps: 010\n", "", ""},
		{"scan", "bus: 007\n", "", `run.yaml: [1:6] want digits without 0 before them, or quotes around a text`},
		{"scan", "bus: [a, 0x10]\n", "", `[1:10] want digits`},
		{"scan", "bus: x\nother: [a\n", "", "want a YAML map"},
		{"scan", "bus: x\n? 'fps, want '\n? 'fps, want '\n", "", "want a YAML map"},
		{"scan", "max_rate: 3\nmax-rate: 4\n", "", "max-rate is there twice"}, // no rule prefers one of the two
		{"run", "bus: x\nfps: a\nother: [a\n", "", "want a YAML map"},
		{"scan", "bus: x\nfps: abc\nmode: c\n", "abc", ""},
		{"scan", "bus: x\nbusy: 3\n", "", "unknown key busy"},
		{"scan", "bus: [x]\n", "", "key bus"},
		{"run", "bus: x\nfps: abc\n", "", "key fps"},
		{"run", "bus: x\n", "abc", "PROGRAM_TEST_FPS"},
	} {
		rttest.Do(t, os.WriteFile(file, []byte(tt.yaml), 0o600))
		t.Setenv("PROGRAM_TEST_FPS", tt.fps)
		if tt.fps == "" {
			os.Unsetenv("PROGRAM_TEST_FPS")
		}
		var g struct {
			Config ConfigFile
			Bus    string
			FPS    *float64 `name:"fps"`
			Mode   string   `enum:"a,b" default:"a"`
			Wait   time.Duration

			Run  struct{} `cmd:"" default:"1"`
			Scan struct{} `cmd:"" uses:"bus"`
			Limp struct{} `cmd:"" uses:"bus" lenient:""`
		}
		_, _, done, _, said := parse(&g, append(strings.Fields(tt.args), "--config", file)...)
		if done != (tt.says != "") || !strings.Contains(said, tt.says) || !done && g.Bus != "x" {
			t.Errorf("%s with %q and %q: done %t, %q, want %q", tt.args, tt.yaml, tt.fps, done, said, tt.says)
		}
	}
}

// A run under nohup outlives its terminal.
func TestInterruptibleUnderNohup(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	_, stop := Interruptible()
	rttest.Want(t, signal.Ignored(syscall.SIGHUP), true, "SIGHUP is ignored")
	stop()
}
