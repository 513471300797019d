package jitter

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
)

// LoopPart is the bare loop in a process of its own: Measure starts it as `bench part loop`.
type LoopPart struct {
	FPS      float64       `name:"fps" required:""`
	Duration time.Duration `required:""`
	CPU      int           `name:"cpu" required:""`
	Require  bool          // true: fail when real time is refused
}

// loopResult is the measurement of a LoopPart.
type loopResult struct {
	Lateness     *bench.Tally    `json:"lateness_us"`
	Jitter       bench.Quantiles `json:"period_jitter_us"` // difference between the time since the last tick and the period
	OverrunsOwn  uint64          `json:"overruns_own"`
	OverrunsHost uint64          `json:"overruns_host"`
	Skipped      uint64          `json:"ticks_skipped"`
	Granted      bool            `json:"granted"`
	Why          string          `json:"why"`
	Seconds      float64         `json:"seconds"`
	GCCycles     uint64          `json:"gc_cycles"`
	Faults       int64           `json:"page_faults"`          // in the tick's thread, after the first tick
	Involuntary  int64           `json:"involuntary_switches"` // in the tick's thread, after the first tick
}

// niceOthers is edge-rt's nice value for all threads except the tick's.
const niceOthers = -10

// Run sets up the process like edge-rt, runs the loop on the kernel's clock and writes a loopResult
// as JSON.
func (p LoopPart) Run(w io.Writer) error {
	runtime.GOMAXPROCS(runtime.NumCPU() + 2)
	period := time.Duration(float64(time.Second) / p.FPS)
	ticks := uint64(p.Duration / period)
	counts := newLoopCounts(period)
	mode := rt.ModeAuto
	if p.Require {
		mode = rt.ModeRequire
	}
	loop := rt.NewLoop(rt.LoopConfig{
		Clock:  rt.KernelClock(),
		Period: period,
		Mode:   mode,
		CPU:    p.CPU,
	})
	rt.NiceProcess(niceOthers) // as far as permitted; the report shows the classes
	rt.LockMemory()
	defer rt.HoldGC(0).Release()
	heap, began := rt.ReadHeap(), time.Now()

	var stop atomic.Bool
	var faults, switches int64
	err := loop.Run(&stop, func(t rt.Tick) rt.Wait {
		if counts.late.n == 0 {
			faults, switches = threadUse()
		}
		counts.add(t.Deadline, t.Woke)
		if counts.late.n >= ticks {
			lastFaults, lastSwitches := threadUse()
			faults, switches = lastFaults-faults, lastSwitches-switches
			stop.Store(true)
		}
		return rt.Wait{}
	})
	if err != nil {
		return exit.With(exit.RealTime, err)
	}
	seconds, after := time.Since(began).Seconds(), rt.ReadHeap()
	stats, grant := loop.Stats(), loop.Grant()
	return json.NewEncoder(w).Encode(loopResult{
		Lateness:     counts.late.tally(),
		Jitter:       counts.jitter.tally().Quantiles(),
		OverrunsOwn:  stats.OverrunsOwn,
		OverrunsHost: stats.OverrunsHost,
		Skipped:      stats.Skipped,
		Granted:      grant.Granted,
		Why:          grant.Why,
		Seconds:      seconds,
		GCCycles:     after.Cycles - heap.Cycles,
		Faults:       faults,
		Involuntary:  switches,
	})
}

// loopCounts counts the ticks' lateness, and the jitter between consecutive ticks, in memory that
// does not grow with the number of ticks.
type loopCounts struct {
	period         time.Duration
	deadline, woke rt.Instant // instants of the last tick
	late, jitter   microseconds
}

func newLoopCounts(period time.Duration) *loopCounts {
	c := &loopCounts{period: period}
	clear(c.late.bins[:]) // so that the tick finds these pages in memory
	clear(c.jitter.bins[:])
	return c
}

func (c *loopCounts) add(deadline, woke rt.Instant) {
	c.late.add(woke.Sub(deadline))
	if c.late.n > 1 && deadline.Sub(c.deadline) == c.period {
		c.jitter.add((woke.Sub(c.woke) - c.period).Abs())
	}
	c.deadline, c.woke = deadline, woke
}

// microseconds counts times by whole microseconds. Like cyclictest, it only counts the times beyond its bins. A
// quantile among these times is given as the longest time.
type microseconds struct {
	bins    [histogramUS]uint32
	n, over uint64
	longest time.Duration
}

func (m *microseconds) add(d time.Duration) {
	if us := max(d, 0) / time.Microsecond; us < histogramUS {
		m.bins[us]++
	} else {
		m.over++
	}
	m.n++
	m.longest = max(m.longest, d)
}

func (m *microseconds) tally() *bench.Tally {
	t := &bench.Tally{}
	for us, n := range m.bins[:] {
		t.AddUS(float64(us), uint64(n))
	}
	longest := float64(m.longest) / float64(time.Microsecond)
	t.AddUS(longest, m.over)
	t.RaiseMax(longest)
	return t
}

// loopSubject runs the bare loop in a process of its own.
type loopSubject struct {
	fps float64
	cpu int
}

func (l *loopSubject) start(d time.Duration, require bool) (*process, error) {
	args := []string{"loop", "--fps", strconv.FormatFloat(l.fps, 'g', -1, 64), "--duration", d.String(),
		"--cpu=" + strconv.Itoa(l.cpu)}
	if require {
		args = append(args, "--require")
	}
	return start(bench.Part(args...))
}

func (l *loopSubject) result(c *process) (*Run, error) {
	var r loopResult
	if err := json.Unmarshal(c.Stdout(), &r); err != nil || r.Lateness == nil {
		return nil, fmt.Errorf("the bare loop's result is unreadable: %w", err)
	}
	return &Run{
		Count: Count{
			Ticks:        r.Lateness.Count(),
			Seconds:      r.Seconds,
			Lateness:     r.Lateness.Quantiles(),
			Tally:        r.Lateness,
			OverrunsOwn:  &r.OverrunsOwn,
			OverrunsHost: &r.OverrunsHost,
		},
		Granted: r.Granted,
		Why:     r.Why,
		Detail:  c.Stdout(),
	}, nil
}
