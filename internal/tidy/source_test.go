package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// The sizes of the house style. Tests may be longer: their tables are data.
const (
	maxFileLines     = 600 // a larger file has parts that can be files; a smaller file is not split
	maxFunctionLines = 70
	// files of a package, without tests and without the twins for other systems; the aim is 12
	maxFiles = 20
)

// sourceRules are rules about a file's syntax. A test tries each rule on samples. A sample is a
// file with its path, or several files, each after a line "-- path".
var sourceRules = []struct {
	name, why string
	check     func(*tree) []string
	samples   []sourceSample
}{
	{
		"files are short", "a file is one noun, and fits into a reader's head",
		longFiles,
		[]sourceSample{
			{"at the limit", "a/a.go", "package a\n" + strings.Repeat("//\n", maxFileLines-1), nil},
			{"one above", "a/a.go", "package a\n" + strings.Repeat("//\n", maxFileLines),
				[]string{"a/a.go: 601 lines"}},
			{"tests may", "a/a_test.go", "package a\n" + strings.Repeat("//\n", maxFileLines), nil},
		},
	},
	{
		"packages are small", "more files than that are two packages, or one that nobody overlooks",
		manyFiles,
		[]sourceSample{
			{"at the limit", "a/a.go", manySources(maxFiles), nil},
			{"one above", "a/a.go", manySources(maxFiles + 1), []string{"a: 21 files"}},
			{"twins and tests are free", "a/a.go", manySources(maxFiles) +
				"-- a/x_other.go\npackage a\n-- a/x_test.go\npackage a\n", nil},
		},
	},
	{
		"a package has one comment", "a newcomer reads one story, and knows where it is",
		packageComments,
		[]sourceSample{
			{"one", "a/a.go", "// Package a is.\npackage a\n-- a/b.go\npackage a\n", nil},
			{"none", "a/a.go", "package a\n", []string{"a: no package comment"}},
			{"two", "a/a.go", "// Package a is.\npackage a\n-- a/b.go\n// Package a is too.\npackage a\n",
				[]string{"a: 2 package comments"}},
			{"one that does not begin so", "a/a.go", "// This is a.\npackage a\n",
				[]string{`want it to begin "Package a "`}},
			{"a program's", "cmd/a/a.go", "// Command a does.\npackage main\n", nil},
			{"a directive is none", "a/a.go", "//go:build linux\n\npackage a\n", []string{"a: no package comment"}},
		},
	},
	{
		"a name hides no file", "Go builds x_arm.go and x_arm_test.go for 32-bit ARM alone, so such tests never run",
		hiddenFiles,
		[]sourceSample{
			{"an architecture", "a/a_arm_test.go", "package a\n", []string{"a/a_arm_test.go"}},
			{"a system", "a/a_windows.go", "package a\n", []string{"a/a_windows.go"}},
			{"the usual ones", "a/a_linux.go", "package a\n-- a/a_linux_amd64_test.go\npackage a\n", nil},
			{"a whole name", "a/arm.go", "package a\n-- a/arm_test.go\npackage a\n", nil},
		},
	},
	{
		"tests of real time are marked", "only they may be run again, so a reader must see which they are",
		unmarkedRealTime,
		[]sourceSample{
			{"a condition", "a/a_test.go",
				"package a\nimport \"time\"\nfunc TestA() { for time.Now().Before(end) {} }\n", nil},
			{"elapsed time", "a/a_test.go",
				"package a\nimport \"time\"\nfunc TestA() { if d := time.Since(t); d > 3 {} }\n",
				[]string{"a/a_test.go:3: TestA"}},
			{"without a variable", "a/a_test.go",
				"package a\nimport \"time\"\nfunc TestA() { if 3 < time.Since(t) {} }\n",
				[]string{"a/a_test.go:3: TestA"}},
			{"marked", "a/a_test.go", "package a\nimport \"time\"\nfunc TestA() { rttest.RealTime(t); if d := " +
				"time.Since(t); d > 3 {} }\n", nil},
			{"at least so long", "a/a_test.go",
				"package a\nimport \"time\"\nfunc TestA() { if d := time.Since(t); d < 3 {} }\n", nil},
			{"the end of a test that hangs", "a/a_test.go",
				"package a\nimport \"time\"\nfunc TestA() { if time.Since(t) > patience {} }\n", nil},
		},
	},
	{
		"sleeps in tests have a reason",
		"a sleep that is too short fails on a busy machine, one that is long enough costs everybody",
		unexplainedSleeps,
		[]sourceSample{
			{"with none", "a/a_test.go", "package a\nimport \"time\"\nfunc TestA() { time.Sleep(1) }\n",
				[]string{"a/a_test.go:3: a sleep"}},
			{"on its line", "a/a_test.go",
				"package a\nimport \"time\"\nfunc TestA() {\ntime.Sleep(1) // the device's own time\n}\n", nil},
			{"above it", "a/a_test.go", "package a\nimport \"time\"\nfunc TestA() {\n// the device's own " +
				"time\ntime.Sleep(1)\n}\n", nil},
			{"virtual time", "a/a_test.go", "package a\nimport (\n\"testing/synctest\"\n\"time\"\n)\nfunc TestA() { " +
				"synctest.Test(nil, nil); time.Sleep(1) }\n", nil},
		},
	},
	{
		"packages are nouns", "a package without a subject collects everything",
		bannedNames,
		[]sourceSample{
			{"a noun", "servo/a.go", "package servo\n", nil},
			{"a drawer", "servo/utils/a.go", "package utils\n", []string{"servo/utils"}},
			{"a drawer in disguise", "servo/a.go", "package common\n", []string{"servo: package common"}},
		},
	},
	{
		"goroutines", "see starters",
		strayGoroutines,
		[]sourceSample{
			{"a process", "edge/a.go", "package edge\nfunc f() { go f() }\n", nil},
			{"a library", "chunk/a.go", "package chunk\nfunc f() { go f() }\n", []string{"chunk/a.go:2: go statement"}},
			{"a library, hidden in a group", "policy/a.go", "package policy\nfunc f() { g.Go(func() {}) }\n",
				[]string{"policy/a.go:2: go statement"}},
			{"a part of the transport", "wire/zenoh/link/a.go", "package link\nfunc f() { go f() }\n", nil},
			{"the codec beside it", "wire/a.go", "package wire\nfunc f() { go f() }\n", []string{"wire/a.go:2"}},
			{"a test", "chunk/a_test.go", "package chunk\nfunc f() { go f() }\n", nil},
		},
	},
}

type sourceSample struct {
	name, path, src string
	want            []string
}

// starters are the folders that may start goroutines, each with its reason.
var starters = []string{
	"rt",                // PrefillRuntime starts goroutines only to fill the runtime's free lists
	"edge",              // a process owns its threads
	"bringup",           // a command owns its threads
	"camera/pipe",       // the goroutine waits for the end of a program
	"sim/scene",         // the scene serves other processes
	"server",            // a process owns its threads
	"bench",             // a benchmark drives processes
	"stage",             // a stage drives processes
	"internal/terminal", // the goroutine that shows the lines may block; the writers may not
	"internal/child",    // one thread starts all processes, and never ends before this process
	"cmd",               // for signals
	"tools",             // a program owns its threads
	"wire/zenoh",        // each link has a receiver and a sender
	"wire/zenohgo",      // a goroutine waits for the C library
	"wire/foxglove",     // each viewer has a sender
	"wire/otlp",         // a collector may be slow; the threads that fill the spans may not wait
	"record/timeline",   // a command asks a page for several things at their own rates
	"sim/netfault",      // the proxy delivers held messages later
	"sim/servosim",      // the motors run beside the program that talks to them
}

// suffixes are the ends of names that Go builds only for architectures and systems on which nothing of ours runs.
var suffixes = strings.Fields("386 arm armbe arm64be loong64 mips mipsle mips64 mips64le ppc ppc64 ppc64le riscv " +
	"riscv64 s390 s390x sparc sparc64 wasm aix android darwin dragonfly freebsd hurd illumos ios js netbsd openbsd " +
	"plan9 solaris wasip1 windows zos")

// hiddenFiles returns the files that are built only for such an architecture or system.
func hiddenFiles(t *tree) (hidden []string) {
	for _, f := range t.files {
		name := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.path), ".go"), "_test")
		if i := strings.LastIndexByte(name, '_'); i > 0 && slices.Contains(suffixes, name[i+1:]) {
			hidden = append(hidden, f.path)
		}
	}
	return hidden
}

func longFiles(t *tree) (findings []string) {
	for _, f := range t.files {
		if !f.test && f.lines > maxFileLines {
			findings = append(findings, fmt.Sprintf("%s: %d lines, want at most %d", f.path, f.lines, maxFileLines))
		}
	}
	return findings
}

func manyFiles(t *tree) (findings []string) {
	dirs, files := t.dirs()
	for _, dir := range dirs {
		n := 0
		for _, f := range files[dir] {
			if !strings.HasSuffix(f.path, "_other.go") {
				n++
			}
		}
		if n > maxFiles {
			findings = append(findings, fmt.Sprintf("%s: %d files, want at most %d", dir, n, maxFiles))
		}
	}
	return findings
}

// manySources returns a sample's text with n files in all.
func manySources(n int) string {
	src := "package a\n"
	for i := range n - 1 {
		src += fmt.Sprintf("-- a/a%d.go\npackage a\n", i)
	}
	return src
}

func packageComments(t *tree) (findings []string) {
	dirs, files := t.dirs()
	for _, dir := range dirs {
		comments := 0
		for _, f := range files[dir] {
			text := f.ast.Doc.Text() // the text without directives
			if text == "" {
				continue
			}
			comments++
			begin := "Package " + f.ast.Name.Name + " "
			if f.ast.Name.Name != "main" && !strings.HasPrefix(text, begin) {
				findings = append(findings, fmt.Sprintf("%s: package comment, want it to begin %q", f.path, begin))
			}
		}
		switch comments {
		case 0:
			findings = append(findings, dir+": no package comment")
		case 1:
		default:
			findings = append(findings, fmt.Sprintf("%s: %d package comments, want 1", dir, comments))
		}
	}
	return findings
}

var drawers = []string{"util", "utils", "common", "helper", "helpers", "base", "core", "types", "interfaces", "manager",
	"misc", "shared", "lib"}

func bannedNames(t *tree) (findings []string) {
	dirs, files := t.dirs()
	for _, dir := range dirs {
		if name := files[dir][0].ast.Name.Name; slices.Contains(drawers, name) ||
			slices.Contains(drawers, path.Base(dir)) {
			findings = append(findings, fmt.Sprintf("%s: package %s, want a noun a robot engineer would say", dir,
				name))
		}
	}
	return findings
}

func strayGoroutines(t *tree) (findings []string) {
	report := func(p token.Pos) {
		findings = append(findings,
			t.at(p)+": go statement, but only processes and the packages listed as starters start goroutines")
	}
	for _, f := range t.files {
		if f.test || within(f.dir, starters) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				report(n.Pos())
			case *ast.CallExpr: // also sync.WaitGroup.Go and similar methods
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" && len(n.Args) == 1 {
					report(n.Pos())
				}
			}
			return true
		})
	}
	return findings
}

func TestSourceRules(t *testing.T) {
	for _, r := range sourceRules {
		t.Run(r.name, func(t *testing.T) {
			for _, f := range r.check(theModule(t)) {
				t.Errorf("%s (%s)", f, r.why)
			}
		})
	}
}

func TestSourceRulesBite(t *testing.T) {
	for _, r := range sourceRules {
		for _, s := range r.samples {
			t.Run(r.name+"/"+s.name, func(t *testing.T) {
				files := map[string]string{}
				name, rest := s.path, s.src
				for {
					text, next, more := strings.Cut(rest, "-- ")
					files[name] = text
					if !more {
						break
					}
					name, rest, _ = strings.Cut(next, "\n")
				}
				want(t, r.check(sample(t, files)), s.want)
			})
		}
	}
}
