package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// thread is how the kernel schedules one thread.
type thread struct {
	tid, policy, priority, nice int
}

// Scheduling policies by number.
//
// Source: sched(7), include/uapi/linux/sched.h.
var policies = map[int]string{0: "OTHER", 1: "FIFO", 2: "RR", 3: "BATCH", 5: "IDLE", 6: "DEADLINE"}

const policyFIFO = 1

// threadsOf lists the threads of a process, none when it is gone.
func threadsOf(pid int) (all []thread) {
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

// Positions in /proc/PID/task/TID/stat behind the name, which may hold anything.
//
// Source: proc_pid_stat(5), fields 19, 40 and 41; the state is field 3.
const (
	statNice     = 19 - 3
	statPriority = 40 - 3
	statPolicy   = 41 - 3
)

// parseStat reads one thread's line; ok is false when it is not one.
func parseStat(b []byte) (t thread, ok bool) {
	tid, _, _ := bytes.Cut(b, []byte(" "))
	end := bytes.LastIndexByte(b, ')')
	fields := strings.Fields(string(b[end+1:]))
	if end < 0 || len(fields) <= statPolicy {
		return t, false
	}
	var errs [4]error
	t.tid, errs[0] = strconv.Atoi(string(tid))
	t.nice, errs[1] = strconv.Atoi(fields[statNice])
	t.priority, errs[2] = strconv.Atoi(fields[statPriority])
	t.policy, errs[3] = strconv.Atoi(fields[statPolicy])
	return t, errs == [4]error{}
}

// tickThread finds the thread that measures: the one at SCHED_FIFO with the
// subjects' priority.
func tickThread(threads []thread) (tid int, ok bool) {
	for _, t := range threads {
		if t.policy == policyFIFO && t.priority == subjectPriority {
			return t.tid, true
		}
	}
	return 0, false
}

// classesOf says how many threads are scheduled how, such as
// "1 FIFO 80, 12 OTHER nice -10".
func classesOf(threads []thread) string {
	counts := map[string]int{}
	for _, t := range threads {
		class := policies[t.policy]
		switch {
		case class == "":
			class = fmt.Sprintf("policy %d", t.policy)
		case t.priority > 0:
			class += fmt.Sprintf(" %d", t.priority)
		case t.nice != 0:
			class += fmt.Sprintf(" nice %d", t.nice)
		}
		counts[class]++
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

// sleepsOf returns how often the thread went to sleep so far.
func sleepsOf(pid, tid int) (uint64, error) {
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
