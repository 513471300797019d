package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

// Thread is the kernel's scheduling of one thread, and its CPU time so far.
type Thread struct {
	TID, Policy, Priority, Nice int
	CPU                         time.Duration // in user and kernel mode
}

// Scheduling policies by number.
//
// Source: sched(7), include/uapi/linux/sched.h.
var policies = map[int]string{0: "OTHER", 1: "FIFO", 2: "RR", 3: "BATCH", 5: "IDLE", 6: "DEADLINE"}

const policyFIFO = 1

// ThreadsOf lists the threads of a process; the list is empty when the process has ended.
func ThreadsOf(pid int) (all []Thread) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range files {
		if b, err := os.ReadFile(name); err == nil {
			if t, ok := parseStat(b); ok {
				all = append(all, t)
			}
		}
	}
	return all
}

// Positions in /proc/PID/task/TID/stat after the name, which may contain any character.
//
// Source: proc_pid_stat(5), fields 14, 15, 19, 40 and 41; the state is field 3.
const (
	statUser     = 14 - 3
	statSystem   = 15 - 3
	statNice     = 19 - 3
	statPriority = 40 - 3
	statPolicy   = 41 - 3
)

// parseStat reads one thread's line; ok is false for other text.
func parseStat(b []byte) (t Thread, ok bool) {
	tid, _, _ := bytes.Cut(b, []byte(" "))
	end := bytes.LastIndexByte(b, ')')
	fields := strings.Fields(string(b[end+1:]))
	if end < 0 || len(fields) <= statPolicy {
		return t, false
	}
	var errs [6]error
	var user, system int64
	t.TID, errs[0] = strconv.Atoi(string(tid))
	t.Nice, errs[1] = strconv.Atoi(fields[statNice])
	t.Priority, errs[2] = strconv.Atoi(fields[statPriority])
	t.Policy, errs[3] = strconv.Atoi(fields[statPolicy])
	user, errs[4] = strconv.ParseInt(fields[statUser], 10, 64)
	system, errs[5] = strconv.ParseInt(fields[statSystem], 10, 64)
	t.CPU = time.Duration(user+system) * stage.StatTick
	return t, errs == [6]error{}
}

// TickThread finds the thread that ticks, by SCHED_FIFO and this priority.
func TickThread(threads []Thread, priority int) (tid int, ok bool) {
	for _, t := range threads {
		if t.Policy == policyFIFO && t.Priority == priority {
			return t.TID, true
		}
	}
	return 0, false
}

// class returns the thread's scheduling, such as "OTHER nice -10".
func (t Thread) class() string {
	class := policies[t.Policy]
	switch {
	case class == "":
		class = fmt.Sprintf("policy %d", t.Policy)
	case t.Priority > 0:
		class += fmt.Sprintf(" %d", t.Priority)
	case t.Nice != 0:
		class += fmt.Sprintf(" nice %d", t.Nice)
	}
	return class
}

// ClassOf returns a thread's scheduling from its stat file in /proc.
func ClassOf(stat []byte) string {
	t, ok := parseStat(stat)
	if !ok {
		return "unknown"
	}
	return t.class()
}

// ClassesOf counts the threads of each scheduling, such as "1 FIFO 80, 12 OTHER nice -10".
func ClassesOf(threads []Thread) string {
	counts := map[string]int{}
	for _, t := range threads {
		counts[t.class()]++
	}
	var words []string
	for class, n := range counts {
		words = append(words, fmt.Sprintf("%d %s", n, class))
	}
	slices.SortFunc(words, func(a, b string) int { // the real-time ones first
		return strings.Compare(strings.TrimLeft(a, "0123456789 "), strings.TrimLeft(b, "0123456789 "))
	})
	return strings.Join(words, ", ")
}

// SleepsOf returns how often the thread has gone to sleep so far.
func SleepsOf(pid, tid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
	if err != nil {
		return 0, err
	}
	return parseSleeps(b)
}

func parseSleeps(status []byte) (uint64, error) {
	const key = "\nvoluntary_ctxt_switches:"
	_, rest, ok := bytes.Cut(status, []byte(key))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	if !ok {
		return 0, fmt.Errorf("the kernel does not count %s", key[1:])
	}
	return strconv.ParseUint(string(bytes.TrimSpace(line)), 10, 64)
}

// RunTimes returns how long each thread of a process has run on a CPU, by its id; it is empty where
// the kernel does not report it.
//
// Source: Documentation/scheduler/sched-stats.rst, the first number, in nanoseconds.
func RunTimes(pid int) map[int]time.Duration {
	times := map[int]time.Duration{}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, name := range files {
		b, err := os.ReadFile(name)
		first, _, _ := strings.Cut(string(b), " ")
		ns, parseErr := strconv.ParseInt(first, 10, 64)
		tid, tidErr := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil && parseErr == nil && tidErr == nil {
			times[tid] = time.Duration(ns)
		}
	}
	return times
}
