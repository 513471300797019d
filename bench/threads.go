package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/stage"
	"github.com/prometheus/procfs"
)

// Thread is the kernel's scheduling of one thread, and its CPU time so far.
type Thread struct {
	TID, Policy, Priority, Nice int
	CPU                         time.Duration // time in user and kernel mode
}

// Scheduling policies by number.
//
// Source: sched(7), include/uapi/linux/sched.h.
var policies = map[int]string{0: "OTHER", 1: "FIFO", 2: "RR", 3: "BATCH", 5: "IDLE", 6: "DEADLINE"}

const policyFIFO = 1

// ThreadsOf lists the threads of a process; the list is empty when the process has ended.
func ThreadsOf(pid int) (all []Thread) {
	threads, _ := procfs.AllThreads(pid)
	for _, t := range threads {
		if s, err := t.Stat(); err == nil {
			all = append(all, Thread{
				TID:      s.PID,
				Policy:   int(s.Policy),
				Priority: int(s.RTPriority),
				Nice:     s.Nice,
				CPU:      time.Duration(s.UTime+s.STime) * stage.StatTick,
			})
		}
	}
	return all
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
	slices.SortFunc(words, func(a, b string) int { // real-time threads come first
		return strings.Compare(strings.TrimLeft(a, "0123456789 "), strings.TrimLeft(b, "0123456789 "))
	})
	return strings.Join(words, ", ")
}

// SleepsOf returns how often the thread has gone to sleep so far.
func SleepsOf(tid int) (uint64, error) {
	thread, err := procfs.NewProc(tid)
	if err != nil {
		return 0, err
	}
	status, err := thread.NewStatus()
	return status.VoluntaryCtxtSwitches, err
}

// RunTimes returns how long each thread of a process has run on a CPU, by its id; it is empty where
// the kernel does not report it.
//
// Source: Documentation/scheduler/sched-stats.rst, the first number, in nanoseconds.
func RunTimes(pid int) map[int]time.Duration {
	times := map[int]time.Duration{}
	threads, _ := procfs.AllThreads(pid)
	for _, t := range threads {
		if s, err := t.Schedstat(); err == nil {
			times[t.PID] = time.Duration(s.RunningNanoseconds)
		}
	}
	return times
}
