package recipe

import (
	"os"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/stage"
)

// shareMeter sums the CPU time of the process's real-time threads.
type shareMeter struct {
	used        map[int]time.Duration // by thread: its CPU time at the last reading
	sum, before time.Duration         // sum: CPU time since the instant began; before: the sum at the instant marked
	began       time.Time
	marked      time.Time // beginning of the present interval for peak
	peak        float64
}

// read adds the CPU time that the real-time threads have used since the last call.
func (m *shareMeter) read(threads []bench.Thread) {
	now := time.Now()
	if m.used == nil {
		m.used = map[int]time.Duration{}
		m.began = now
		m.marked = now
	}
	ran := bench.RunTimes(os.Getpid())
	for _, t := range threads {
		used, ok := ran[t.TID]
		if t.Priority == 0 || !ok {
			continue
		}
		if last, known := m.used[t.TID]; known {
			m.sum += used - last
		}
		m.used[t.TID] = used
	}
	// If this goroutine was delayed, the counters may include time after now, and their increase
	// may exceed the interval.
	if d := now.Sub(m.marked); d >= shareEvery && time.Since(now) < shareEvery/25 {
		m.peak = max(m.peak, stage.ShareOfCPUs(m.sum-m.before, d))
		m.marked, m.before = now, m.sum
	}
}

func (m *shareMeter) total() float64 { return stage.ShareOfCPUs(m.before, m.marked.Sub(m.began)) }
