// Test runs go test over the module. Some tests measure real programs by real clocks, and fail on a
// host that takes the cores away for 100 ms although the code is correct. Such a test carries the
// mark rttest.RealTime; when it fails it runs again by itself, once the host is calm, and is named
// at the end. Any other failure is final.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/stage"
)

const (
	anyway    = 2                // repetitions of a failed test on any host
	atMost    = 6                // and on a host that takes this machine's processors
	taken     = 0.01             // the share of the processors from which on that applies
	manyTests = 60               // so many failures at once are not caused by the host
	calmFirst = time.Minute      // longest wait for the host, before the first
	calmLater = 20 * time.Second // and before every later repetition
)

// The variables that tests replace.
var (
	calm           = stage.Calm
	out  io.Writer = os.Stdout
)

func main() {
	if len(os.Args) > 1 && slices.Contains([]string{"-h", "-help", "--help"}, os.Args[1]) {
		fmt.Print("Usage: go run ./tools/test [go test's flags] [packages, as ./...]\n\nRuns go test; a test of real " +
			"time (rttest.RealTime) that fails is run again by itself, for a host that was busy.\n")
		return
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("test:", err)
		os.Exit(1)
	}
}

// run is the program: args are go test's.
func run(args []string) error {
	flags, packages := split(args)
	left, share, err := goTest(flags, packages, nil)
	if err != nil {
		return err
	}
	first := left
	for try, limit := 1, calmFirst; len(left) > 0; try, limit = try+1, calmLater {
		switch {
		case left.tests() > manyTests:
			return fmt.Errorf("%d tests failed", left.tests())
		case try > atMost, try > anyway && share < taken:
			return fmt.Errorf("failed %d times: %s", try, left)
		}
		fmt.Fprintf(out, "run again: %s\n", left)
		if !calm(limit) {
			fmt.Fprintf(out, "the host still takes this machine's processors after %v\n", limit)
		}
		again := left
		left, share = failures{}, 0
		for _, name := range again.packages() {
			bad, stolen, err := goTest(flags, []string{name}, again[name])
			if err != nil {
				return err
			}
			for name, tests := range bad {
				left[name] = tests
			}
			share = max(share, stolen)
		}
	}
	if len(first) > 0 {
		fmt.Fprintf(out, "failed at first: %s\n", first)
	}
	return nil
}

// split separates go test's flags from its packages, which begin with a dot here.
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

// failures are the tests that failed, by package.
type failures map[string][]string

func (f failures) tests() (n int) {
	for _, tests := range f {
		n += len(tests)
	}
	return n
}

func (f failures) packages() (names []string) {
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (f failures) String() string {
	var parts []string
	for _, name := range f.packages() {
		parts = append(parts, name+" "+strings.Join(f[name], " "))
	}
	return strings.Join(parts, ", ")
}

// goTest runs the packages' tests, or only the named ones, and returns the share of the processors
// that the host took. An error is a failure that no host can cause.
func goTest(flags, packages, only []string) (failures, float64, error) {
	args := append([]string{"test", "-json"}, flags...)
	if only != nil {
		args = append(args, "-run", "^("+strings.Join(only, "|")+")$")
	}
	cmd := exec.Command("go", append(args, packages...)...)
	cmd.Stderr = out
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, 0, err
	}
	before, began := rt.StealTime(), time.Now()
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	r := report{
		out:    out,
		failed: failures{},
		marked: map[string]bool{},
		lines:  map[string][]string{},
	}
	r.read(events)
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return nil, 0, err
	}
	share := (rt.StealTime() - before).Seconds() / time.Since(began).Seconds() / float64(runtime.NumCPU())
	switch {
	case r.hard != "":
		return nil, share, errors.New(r.hard)
	case err != nil && len(r.failed) == 0:
		return nil, share, fmt.Errorf("go test: %w", err)
	}
	return r.failed, share, nil
}
