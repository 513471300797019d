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
	Lateness     *bench.Tally `json:"lateness_us"`
	OverrunsOwn  uint64       `json:"overruns_own"`
	OverrunsHost uint64       `json:"overruns_host"`
	Granted      bool         `json:"granted"`
	Why          string       `json:"why"`
	Seconds      float64      `json:"seconds"`
	GCCycles     uint64       `json:"gc_cycles"`
}

// niceOthers is edge-rt's nice value for all threads except the tick's.
const niceOthers = -10

// Run sets up the process like edge-rt, runs the loop on the kernel's clock and writes a loopResult
// as JSON.
func (p LoopPart) Run(w io.Writer) error {
	runtime.GOMAXPROCS(runtime.NumCPU() + 2)
	period := time.Duration(float64(time.Second) / p.FPS)
	ticks := uint64(p.Duration / period)
	var late microseconds
	clear(late.bins[:]) // so that the tick finds these pages in memory
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
	err := loop.Run(&stop, func(t rt.Tick) rt.Wait {
		late.add(t.Woke.Sub(t.Deadline))
		if late.n >= ticks {
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
		Lateness:     late.tally(),
		OverrunsOwn:  stats.OverrunsOwn,
		OverrunsHost: stats.OverrunsHost,
		Granted:      grant.Granted,
		Why:          grant.Why,
		Seconds:      seconds,
		GCCycles:     after.Cycles - heap.Cycles,
	})
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
			Threads:      c.threads,
		},
		Granted: r.Granted,
		Why:     r.Why,
		Detail:  c.Stdout(),
	}, nil
}
