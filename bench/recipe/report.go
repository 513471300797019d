package recipe

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/edge"
)

// Report is the result of Measure; its JSON has the table's content and the slices that it is
// computed from.
type Report struct {
	Bench   string        `json:"bench"`   // recipe
	Version string        `json:"version"` // version of bench
	FPS     float64       `json:"fps"`     // Hz, ticks per second
	SliceS  float64       `json:"slice_s"` // s, length of a slice
	Machine bench.Machine `json:"machine"`
	Cells   []Total       `json:"cells"`
	Slices  []Slice       `json:"slices"`
}

// Total is one cell over all rounds.
type Total struct {
	Cell
	Rounds       int             `json:"rounds"`           // rounds with a result
	Failed       []string        `json:"failed,omitempty"` // why the others have no result
	Ticks        uint64          `json:"ticks"`            // ticks that ran
	Lateness     bench.Quantiles `json:"lateness_us"`      // us, from a tick's deadline to its start
	OverrunsOwn  uint64          `json:"overruns_own"`     // own overruns, as in edge-rt's summary
	OverrunsHost uint64          `json:"overruns_host"`    // host overruns, as in edge-rt's summary
	Starved      uint64          `json:"starved_ticks"`    // starved ticks, as in edge-rt's summary
	BusCycles    uint64          `json:"bus_cycles"`       // bus cycles, as in edge-rt's summary
	BusLost      uint64          `json:"bus_lost"`         // lost replies, of six in each cycle
	BusP50       float64         `json:"bus_us_p50"`       // us, in the worst slice
	BusP99       float64         `json:"bus_us_p99"`       // us, in the worst slice
	GCCycles     uint64          `json:"gc_cycles"`        // collections, as in edge-rt's summary
	GCForced     uint64          `json:"gc_forced"`        // forced collections, as in edge-rt's summary
	// share, of all CPUs' time, taken by real-time threads of the process
	RTShare float64 `json:"rt_share"`
	RTPeak  float64 `json:"rt_peak"`       // share, rt_share in the worst quarter of a second
	StealMS float64 `json:"host_steal_ms"` // ms, taken by the host
	// number of threads in each scheduling class while the arm moved
	Threads string `json:"threads"`
	// scheduling class of a child process that a thread of the edge starts
	Children string `json:"children"`
}

func newReport(cfg Config, cells []Cell, machine bench.Machine, slices []Slice) *Report {
	r := &Report{
		Bench:   "recipe",
		Version: cfg.Version,
		FPS:     cfg.FPS,
		SliceS:  cfg.Slice.Seconds(),
		Machine: machine,
		Slices:  slices,
	}
	for _, cell := range cells {
		r.Cells = append(r.Cells, totalOf(cell, slices))
	}
	return r
}

// totalOf adds up the latenesses of a cell's slices; the bus's figures are those of the worst slice.
func totalOf(cell Cell, slices []Slice) Total {
	t := Total{Cell: cell}
	var late bench.Tally
	for _, s := range slices {
		switch {
		case s.Cell != cell:
			continue
		case s.Result == nil:
			t.Failed = append(t.Failed, s.Failed)
			continue
		}
		t.Rounds++
		t.add(s.Result, &late)
	}
	t.Lateness = late.Quantiles()
	if t.Rounds > 0 {
		t.RTShare /= float64(t.Rounds)
	}
	return t
}

func (t *Total) add(r *Result, late *bench.Tally) {
	e := r.Edge
	t.Ticks += e.Ticks
	t.OverrunsOwn += e.OverrunsOwn
	t.OverrunsHost += e.OverrunsHost
	t.Starved += e.StarvedTicks
	t.BusCycles += e.Bus.Cycles
	t.BusLost += e.Bus.Lost
	t.BusP50, t.BusP99 = max(t.BusP50, e.Bus.P50), max(t.BusP99, e.Bus.P99)
	t.GCCycles += e.GCCycles
	t.GCForced += e.ForcedGC
	t.RTShare += r.RTShare
	t.RTPeak = max(t.RTPeak, r.RTPeak)
	t.StealMS += e.StealMS
	t.Threads, t.Children = r.Threads, r.Children
	pool(late, e)
}

// pool adds the histogram of a summary to late; the histogram's keys are upper bounds in microseconds.
func pool(late *bench.Tally, e *edge.Summary) {
	var part bench.Tally
	b, err := json.Marshal(e.LatenessHist)
	if err == nil && json.Unmarshal(b, &part) == nil {
		late.Merge(&part)
	}
	late.RaiseMax(e.LatenessUS.Max)
}

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	facts := report.Facts("bench recipe", fmt.Sprintf("%g Hz, slices of %v", r.FPS,
		time.Duration(r.SliceS*float64(time.Second))), r.Machine.Rows())
	t := report.Table{Left: 3, Columns: []string{"load", "others", "gc", "ticks", "late p50", "p99", "max us",
		"own", "host", "bus p50", "p99 us", "lost %", "starved", "GC", "RT share", "peak", "steal ms", "children"}}
	for i := range r.Cells {
		r.Cells[i].row(&t)
	}
	_, err := fmt.Fprintf(w, "%v\n%v\n", facts, t)
	for _, c := range r.Cells {
		for _, why := range c.Failed {
			_, err = fmt.Fprintf(w, "others %s, collector %s, load %s: a slice failed: %s\n", c.Others, c.GC, c.Load,
				why)
		}
	}
	return err
}

// row adds a row to the table.
func (t *Total) row(table *report.Table) {
	lost := 0.0
	if t.BusCycles > 0 {
		lost = 100 * float64(t.BusLost) / float64(t.BusCycles*motors)
	}
	table.Addf("%s\t%s\t%s\t%d\t%.0f\t%.0f\t%.0f\t%d\t%d\t%.0f\t%.0f\t%.2f\t%d\t%d\t%.1f%%\t%.1f%%\t%.0f\t%s", t.Load,
		t.Others, t.GC, t.Ticks, t.Lateness.P50, t.Lateness.P99, t.Lateness.Max, t.OverrunsOwn, t.OverrunsHost,
		t.BusP50,
		t.BusP99, lost, t.Starved, t.GCCycles, 100*t.RTShare, 100*t.RTPeak, t.StealMS, t.Children)
}

// motors is the number of motors of the simulated arm.
const motors = 6
