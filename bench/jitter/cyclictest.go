package jitter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/stage"
)

// Settings of cyclictest.
const (
	subjectPriority = 80      // SCHED_FIFO priority, that of rt.Loop
	histogramUS     = 100_000 // us; a longer lateness is not in the histogram, and counts as cyclictest's maximum
)

// notInstalled is the reason why a machine without cyclictest has no reference.
const notInstalled = "cyclictest is not installed, so there is nothing to compare with: `apt-get install rt-tests` " +
	"(Debian, Ubuntu, Raspberry Pi OS)"

// Reference describes the cyclictest of this machine.
type Reference struct {
	Path    string `json:"path,omitempty"`    // file of the program
	Version string `json:"version,omitempty"` // its version
	Missing string `json:"missing,omitempty"` // why cyclictest cannot be used, and the remedy
}

// FindCyclictest searches for cyclictest and tests whether the kernel permits it to run. If not,
// Reference.Missing has the reason.
func FindCyclictest(ctx context.Context) Reference {
	path, err := exec.LookPath("cyclictest")
	if err != nil {
		return Reference{Missing: notInstalled}
	}
	// The exit code is 0 or 1, depending on the version.
	help, _ := exec.CommandContext(ctx, path, "--help").CombinedOutput()
	r := Reference{Path: path, Version: versionIn(string(help))}
	var said strings.Builder
	try := exec.CommandContext(ctx, path, "-q", "-t", "1", "-p", strconv.Itoa(subjectPriority), "-i", "1000", "-l", "1")
	try.Stderr = &said
	if err := try.Run(); err != nil && ctx.Err() == nil {
		why, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		r.Missing = fmt.Sprintf("cyclictest may not run here (%v: %s), so there is nothing to compare with: run as "+
			"root, or raise `ulimit -r` to %d", err, why, subjectPriority)
	}
	return r
}

// versionIn returns the number in "cyclictest V 2.40"; "" if there is no version.
func versionIn(help string) string {
	first, _, _ := strings.Cut(help, "\n")
	_, version, _ := strings.Cut(first, " V ")
	return strings.TrimSpace(version)
}

// cyclictestRun is one run under way.
type cyclictestRun struct {
	child  *process
	before time.Time
}

// start starts cyclictest with the subject's period, bound to cpu unless cpu is negative. offset is
// the phase as in --secaligned; a negative offset means no phase. cyclictest may keep the CPUs
// awake only if tuned is set.
func (r Reference) start(period, offset time.Duration, cpu int, tuned bool) (*cyclictestRun, error) {
	args := []string{"-q", "-m", "-t", "1", "-p", strconv.Itoa(subjectPriority),
		"-i", strconv.FormatInt(intervalOf(period).Microseconds(), 10), "-h", strconv.Itoa(histogramUS)}
	if offset >= 0 {
		args = append(args, "--secaligned="+strconv.FormatInt(offset.Microseconds(), 10))
	}
	if cpu >= 0 {
		args = append(args, "-a", strconv.Itoa(cpu))
	}
	if !tuned {
		args = append(args, "--default-system")
	}
	before := time.Now()
	child, err := start(exec.Command(r.Path, args...))
	return &cyclictestRun{child, before}, err
}

// intervalOf rounds the period to whole microseconds, the resolution of cyclictest.
func intervalOf(period time.Duration) time.Duration { return period.Round(time.Microsecond) }

func (r *cyclictestRun) finish() (*Run, error) {
	r.child.Interrupt()
	if err := r.child.Wait(stage.StopLimit); err != nil {
		return nil, fmt.Errorf("cyclictest: %w", err)
	}
	run := &Run{Count: Count{Seconds: time.Since(r.before).Seconds(), Threads: r.child.threads}}
	tally, err := parseCyclictest(r.child.Stdout())
	if err != nil {
		return nil, err
	}
	run.Tally = &tally
	run.Lateness = tally.Quantiles()
	run.Ticks = tally.Count()
	return run, nil
}

// parseCyclictest reads the output of `cyclictest -q -h N`: per bin one line of microseconds and a
// count for each thread, and a summary in lines with #.
func parseCyclictest(text []byte) (t bench.Tally, err error) {
	var maxima, overflows []int64
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if list, ok := strings.CutPrefix(line, "# Max Latencies:"); ok {
			maxima, err = numbers(list)
		} else if list, ok := strings.CutPrefix(line, "# Histogram Overflows:"); ok {
			overflows, err = numbers(list)
		} else if line != "" && line[0] >= '0' && line[0] <= '9' {
			var row []int64
			if row, err = numbers(line); err == nil {
				for _, n := range row[1:] {
					t.AddUS(float64(row[0]), uint64(n))
				}
			}
		}
		if err != nil {
			return t, fmt.Errorf("cyclictest's line %q: %w", line, err)
		}
	}
	if len(overflows) > len(maxima) {
		return t, fmt.Errorf("cyclictest counts overflows of %d threads and names the maxima of %d", len(overflows),
			len(maxima))
	}
	for i, n := range overflows {
		t.AddUS(float64(maxima[i]), uint64(n))
	}
	if t.Count() == 0 {
		return t, errors.New("cyclictest printed no latency: did it run for less than a period?")
	}
	if len(maxima) > 0 {
		t.RaiseMax(float64(slices.Max(maxima)))
	}
	return t, lines.Err()
}

func numbers(list string) ([]int64, error) {
	var all []int64
	for _, word := range strings.Fields(list) {
		n, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q, want a number", word)
		}
		all = append(all, int64(n))
	}
	return all, nil
}
