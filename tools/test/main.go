// Test runs go test over the module. Some tests measure real programs by real clocks. They may fail
// although the code is correct, when other programs take the cores for 100 ms. Such a test carries
// the mark rttest.RealTime. All other tests run first, many packages at once, because most of them
// wait. The marked tests follow, few packages at once. A marked test that fails runs again by
// itself, once the host is calm, and is named at the end. Any other failure is final.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

const (
	many      = "5"              // number of packages that run at once, without their tests of real time
	few       = "3"              // number of packages that run at once, with their tests of real time
	atMost    = 2                // repetitions of a failed test
	manyTests = 60               // at this number of failures at once, the host cannot be the cause
	calmFirst = time.Minute      // longest wait for a calm host before the first repetition
	calmLater = 20 * time.Second // longest wait for a calm host before a later repetition
)

// The variables that tests replace.
var (
	calm           = stage.Calm
	out  io.Writer = os.Stdout
)

func main() {
	if len(os.Args) > 1 && slices.Contains([]string{"-h", "-help", "--help"}, os.Args[1]) {
		fmt.Print("Usage: go run ./tools/test [go test's flags] [packages, as ./...]\n\nRuns go test; the tests of " +
			"real time (rttest.RealTime) follow the others, and one that fails is run again by itself, for a " +
			"host that was busy.\n")
		return
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("test:", err)
		os.Exit(1)
	}
}

// run is the program. args are the arguments of go test.
func run(args []string) error {
	flags, packages := split(args)
	later, _, err := goTest(slices.Concat(flags, []string{"-p", many}), packages, nil)
	if err != nil || len(later) == 0 {
		return err
	}
	_, left, err := goTest(slices.Concat(flags, []string{"-p", few}), later.packages(packages...), later.names())
	if err != nil {
		return err
	}
	first := left
	for try, limit := 1, calmFirst; len(left) > 0; try, limit = try+1, calmLater {
		switch {
		case left.count() > manyTests:
			return fmt.Errorf("%d tests failed", left.count())
		case try > atMost:
			return fmt.Errorf("failed %d times: %s", try, left)
		}
		fmt.Fprintf(out, "run again: %s\n", left)
		if !calm(limit) {
			fmt.Fprintf(out, "the host still takes this machine's processors after %v\n", limit)
		}
		again := left
		left = tests{}
		for _, name := range again.packages() {
			_, bad, err := goTest(flags, []string{name}, again[name])
			if err != nil {
				return err
			}
			maps.Copy(left, bad)
		}
	}
	if len(first) > 0 {
		fmt.Fprintf(out, "failed at first: %s\n", first)
	}
	return nil
}

// split separates go test's flags from its packages. Here the packages begin with a dot.
func split(args []string) (flags, packages []string) {
	for _, a := range args {
		if strings.HasPrefix(a, ".") {
			packages = append(packages, a)
		} else {
			flags = append(flags, a)
		}
	}
	return flags, packages
}

// tests are names of tests, by package.
type tests map[string][]string

func (t tests) count() int { return len(t.names()) }

// packages returns the packages, sorted by the first pattern that matches them, and then by name.
func (t tests) packages(patterns ...string) []string {
	named := func(name string) int {
		return slices.IndexFunc(patterns, func(p string) bool {
			return strings.Contains(name+"/", strings.TrimRight(p[1:], "./")+"/")
		})
	}
	return slices.SortedFunc(maps.Keys(t), func(a, b string) int {
		return cmp.Or(cmp.Compare(named(a), named(b)), strings.Compare(a, b))
	})
}

func (t tests) names() []string { return slices.Concat(slices.Collect(maps.Values(t))...) }

func (t tests) String() string {
	var parts []string
	for _, name := range t.packages() {
		parts = append(parts, name+" "+strings.Join(t[name], " "))
	}
	return strings.Join(parts, ", ")
}

// goTest runs the listed tests (parameter only). Without a list it runs all tests of the packages except those of real
// time, which it returns as later. The result failed has the tests of real time that failed. An error is a failure that
// a busy host does not cause.
func goTest(flags, packages, only []string) (later, failed tests, err error) {
	args := append([]string{"test", "-json"}, flags...)
	env := os.Environ()
	if only == nil {
		env = append(env, realTimeLater)
	} else {
		args = append(args, "-run", "^("+strings.Join(only, "|")+")$")
	}
	cmd := exec.Command("go", append(args, packages...)...)
	cmd.Env, cmd.Stderr = env, out
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	r := report{
		out:    out,
		failed: tests{},
		marked: tests{},
		lines:  map[string][]string{},
	}
	r.read(events)
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return nil, nil, err
	}
	switch {
	case r.hard != "":
		return nil, nil, errors.New(r.hard)
	case err != nil && len(r.failed) == 0:
		return nil, nil, fmt.Errorf("go test: %w", err)
	}
	return r.marked, r.failed, nil
}
