package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage"
)

// fakeGo puts a go command before the real one in $PATH. In its n-th run the command prints the n-th of these texts, or
// the last text if there is no n-th. The returned function lists the arguments of all runs.
func fakeGo(t *testing.T, says ...string) func() []string {
	t.Helper()
	dir := t.TempDir()
	for i, text := range says {
		rttest.WriteFile(t, dir, fmt.Sprint(i+1), text)
	}
	script := `#!/bin/sh
d=` + dir + `
echo "$EDGERT_REAL_TIME" "$@" >>$d/runs
n=$(wc -l <$d/runs)
[ -f $d/$n ] || n=` + fmt.Sprint(len(says)) + `
cat $d/$n
! grep -q '"fail"' $d/$n
`
	rttest.WriteFile(t, dir, "go", script)
	// The output is discarded, since a reader would take it for the result of these tests.
	calm, out = func(time.Duration) bool { return true }, io.Discard
	t.Cleanup(func() { calm, out = stage.Calm, os.Stdout })
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv(rttest.RealTimeEnv, "") // this test itself may run with the variable set
	return func() []string {
		runs := rttest.ReadFile(t, filepath.Join(dir, "runs"))
		return strings.Split(strings.TrimSuffix(runs, "\n"), "\n")
	}
}

// says returns the output of go test -json for a package with these tests. A test is its name or,
// if it failed, NAME:OUTPUT.
func says(ok bool, tests ...string) string {
	var b strings.Builder
	line := func(action, test, output string) {
		fmt.Fprintf(&b, `{"Action":%q,"Package":"github.com/edge-rt/edge-rt/rt","Test":%q,"Output":%q}`+"\n", action,
			test, output)
	}
	for _, t := range tests {
		name, output, failed := strings.Cut(t, ":")
		line("output", name, "=== RUN   "+name+"\n")
		if name != "TestUnmarked" {
			fmt.Fprintf(&b,
				`{"Action":"attr","Package":"github.com/edge-rt/edge-rt/rt","Test":"%s/sub","Key":%q,"Value":"true"}`+
					"\n", name, rttest.RealTimeAttr)
		}
		action := "pass"
		if failed {
			action = "fail"
			line("output", name+"/sub", output+"\n")
			line("fail", name+"/sub", "")
		}
		line(action, name, "")
	}
	if ok {
		line("output", "", "ok  \tgithub.com/edge-rt/edge-rt/rt\t1.0s\n")
		line("pass", "", "")
	} else {
		line("output", "", "FAIL\tgithub.com/edge-rt/edge-rt/rt\t1.0s\n")
		line("fail", "", "")
	}
	return b.String()
}

func TestMarkedTestsFollowAndOnlyFailedOnesRunAgain(t *testing.T) {
	runs := fakeGo(t, says(true, "TestA", "TestUnmarked", "TestB", "TestC", "TestD"),
		says(false, "TestA", "TestB:late", "TestC:late", "TestD"), says(false, "TestB:late", "TestC"),
		says(true, "TestB"))
	rttest.Do(t, run([]string{"-short", "./..."}))
	want := []string{"later test -json -short -p 5 ./...",
		" test -json -short -p 3 -run ^(TestA|TestB|TestC|TestD)$ github.com/edge-rt/edge-rt/rt",
		" test -json -short -run ^(TestB|TestC)$ github.com/edge-rt/edge-rt/rt",
		" test -json -short -run ^(TestB)$ github.com/edge-rt/edge-rt/rt"}
	rttest.Want(t, strings.Join(runs(), "\n"), strings.Join(want, "\n"), "runs")
}

// A failure that a busy host does not cause is not repeated, and no test is repeated without end.
func TestWhatIsNotRunAgain(t *testing.T) {
	var many []string
	for i := range manyTests + 1 {
		many = append(many, fmt.Sprintf("Test%d:late", i))
	}
	for _, tt := range []struct {
		name, says string
		runs       int
	}{
		{"passed", says(true, "TestX"), 2},
		{"passed, without a mark", says(true, "TestUnmarked"), 1},
		{"it judges no real time", says(false, "TestX:late", "TestUnmarked:wrong"), 1},
		{"it fails always", says(false, "TestX:wrong"), 2 + atMost},
		{"a race", says(false, "TestX:WARNING: DATA RACE"), 1},
		{"a panic", says(false, "TestX:panic: runtime error: index out of range [1] with length 1"), 1},
		{"a dead runtime", says(false, "TestX:fatal error: all goroutines are asleep - deadlock!"), 1},
		{"everything", says(false, many...), 2},
		{"an exit", says(false, "TestX"), 1},
		{"it does not build", `{"Action":"build-fail","ImportPath":"github.com/edge-rt/edge-rt/rt"}` + "\n" +
			says(false), 1},
		{"no packages", `{"Action":"start"}`, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runs := fakeGo(t, tt.says)
			err := run([]string{"./..."})
			if ok := !strings.Contains(tt.says, `"fail"`); (err == nil) != ok {
				t.Errorf("%v, want success %v", err, ok)
			}
			rttest.Want(t, len(runs()), tt.runs, "runs")
		})
	}
}

// The tests to put off are recognised by the attribute that rttest.RealTime sets.
func TestTheMark(t *testing.T) {
	if realTime != rttest.RealTimeAttr || realTimeLater != rttest.RealTimeEnv+"=later" {
		t.Errorf("looks for %q and sets %q; rttest uses %q and %q", realTime, realTimeLater, rttest.RealTimeAttr,
			rttest.RealTimeEnv)
	}
}

// Packages that take long are named first, so that they begin first.
func TestTheOrderIsThatOfThePatterns(t *testing.T) {
	got := tests{"rt/servo": nil, "rt/cmd/edge-rt": nil, "rt/server": nil}.packages("./server", "./cmd/...", "./...")
	if want := "rt/server rt/cmd/edge-rt rt/servo"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}
