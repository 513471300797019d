package recipe

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"edgert/bench"
)

func ownThreads() []bench.Thread { return bench.ThreadsOf(os.Getpid()) }

// shareMeter sums what the process's real-time threads take of the CPUs.
type shareMeter struct {
	used        map[int]time.Duration // by thread, at the last reading
	sum, before time.Duration         // since began; at marked
	began       time.Time
	marked      time.Time // the last reading that was not held up
	peak        float64
}

// read adds what was used since the last reading.
func (m *shareMeter) read() {
	now := time.Now()
	if m.used == nil {
		m.used, m.began, m.marked = map[int]time.Duration{}, now, now
	}
	for _, t := range ownThreads() {
		if t.Priority == 0 {
			continue
		}
		used, err := threadUse(t.TID)
		if err != nil {
			continue // it has ended
		}
		if last, known := m.used[t.TID]; known {
			m.sum += used - last
		}
		m.used[t.TID] = used
	}
	// A reader that is kept from reading would count more than the interval had.
	if d := now.Sub(m.marked); d >= shareEvery && time.Since(now) < shareEvery/25 {
		m.peak = max(m.peak, share(m.sum-m.before, d))
		m.marked, m.before = now, m.sum
	}
}

func (m *shareMeter) total() float64 { return share(m.before, m.marked.Sub(m.began)) }

func share(used, of time.Duration) float64 {
	if of <= 0 {
		return 0
	}
	return used.Seconds() / of.Seconds() / float64(runtime.NumCPU())
}

// threadUse is the CPU time of one of our threads.
//
// Source: Documentation/scheduler/sched-stats.rst, the first field, in ns.
func threadUse(tid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", tid))
	if err != nil {
		return 0, err
	}
	first, _, _ := bytes.Cut(b, []byte(" "))
	ns, err := strconv.ParseInt(string(first), 10, 64)
	return time.Duration(ns), err
}
