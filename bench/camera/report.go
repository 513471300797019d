package camera

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/rt"
)

// Report is the result of Measure.
type Report struct {
	Bench   string        `json:"bench"`         // camera
	Version string        `json:"version"`       // version of bench
	FPS     float64       `json:"fps"`           // Hz, ticks per second
	Slices  int           `json:"slices"`        // slices of each kind
	StealMS float64       `json:"host_steal_ms"` // ms, taken by the host
	Machine bench.Machine `json:"machine"`
	Cameras []Camera      `json:"cameras"`
	With    Ticks         `json:"with"`    // the tick beside the cameras
	Without Ticks         `json:"without"` // the tick alone
}

// Camera is one camera; its latency is the time from the picture's capture until it is in a
// message.
type Camera struct {
	Name       string       `json:"name"`                // name of the camera
	Picked     string       `json:"picked"`              // format, size and rate
	How        string       `json:"how"`                 // the work on the pictures
	Captured   uint64       `json:"captured"`            // captured pictures, as in edge-rt's `frames`
	Dropped    uint64       `json:"dropped"`             // dropped pictures, as in edge-rt's `frames`
	Broken     uint64       `json:"broken"`              // broken pictures, as in edge-rt's `frames`
	Errors     uint64       `json:"errors"`              // errors, as in edge-rt's `frames`
	Pictures   uint64       `json:"pictures"`            // pictures put into messages
	Bytes      float64      `json:"bytes"`               // bytes, mean size of a message
	Latency    bench.Spread `json:"capture_to_wire_ms"`  // ms, from the capture of a picture until it is in a message
	CaptureCPU float64      `json:"capture_cpu_percent"` // %, of one core, to capture
	DevelopCPU float64      `json:"develop_cpu_percent"` // %, of one core, to encode
	DevelopMS  float64      `json:"develop_ms"`          // ms, CPU time for each picture
	Allocs     float64      `json:"allocs"`              // objects, allocated by the whole process for each picture
}

// Ticks describes the loop's ticks.
type Ticks struct {
	Ticks     uint64            `json:"ticks"`                 // ticks that ran
	Own       uint64            `json:"overruns_own"`          // own overruns, as in edge-rt's summary
	Host      uint64            `json:"overruns_host"`         // host overruns, as in edge-rt's summary
	Lateness  bench.Spread      `json:"lateness_us"`           // us, from a tick's deadline to its start
	P999      float64           `json:"lateness_us_p999"`      // us, 99.9th percentile
	Histogram map[string]uint64 `json:"lateness_histogram_us"` // [us] ticks by the upper bound of their lateness
	Granted   bool              `json:"rt_granted"`            // the tick had real-time priority
	Why       string            `json:"rt_why,omitempty"`      // why it had not

	late *rt.Hist
}

func newTicks() Ticks {
	return Ticks{late: rt.NewHist(), Granted: true, Histogram: map[string]uint64{}}
}

func (t *Ticks) add(s rt.LoopStats, g rt.Grant) {
	t.Ticks += s.Ticks
	t.Own += s.OverrunsOwn
	t.Host += s.OverrunsHost
	t.Granted = t.Granted && g.Granted
	t.Why = g.Why
}

func (p *pipeline) summary() Camera {
	t := p.camera.Stats()
	c := Camera{
		Name:     p.camera.Name,
		Picked:   p.picked,
		How:      p.encoder.String(),
		Captured: t.Captured,
		Dropped:  t.Dropped,
		Broken:   t.Torn + t.Undecoded + t.Source.Broken,
		Errors:   t.Errors,
		Pictures: p.pictures,
		Latency:  bench.In(p.latency, time.Millisecond),
	}
	if p.seconds > 0 {
		c.CaptureCPU, c.DevelopCPU = bench.Round(100*p.captureCPU.Seconds()/p.seconds),
			bench.Round(100*p.encodeCPU.Seconds()/p.seconds)
	}
	if n := float64(p.pictures); n > 0 {
		c.Bytes = bench.Round(float64(p.bytes) / n)
		c.DevelopMS = bench.Round(p.encodeCPU.Seconds() * 1e3 / n)
		c.Allocs = bench.Round(float64(p.allocs) / n)
	}
	return c
}

func (t *Ticks) finish() {
	t.Lateness = bench.In(t.late, time.Microsecond)
	t.P999 = bench.Round(float64(t.late.Quantile(0.999)) / float64(time.Microsecond))
	for upper, n := range t.late.Buckets {
		t.Histogram[strconv.FormatFloat(float64(upper)/1e3, 'f', -1, 64)] += n
	}
}

// decades are the columns of the lateness table.
var decades = []time.Duration{20 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond,
	200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, time.Minute}

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	cameras := report.Table{Left: 1, Columns: []string{"camera", "pictures", "dropped", "kB", "to wire p50", "p99",
		"max ms", "capture CPU", "encode CPU", "ms each", "allocations"}}
	for _, c := range r.Cameras {
		cameras.Addf("%s\t%d\t%d\t%.1f\t%.2f\t%.2f\t%.2f\t%.1f %%\t%.1f %%\t%.2f\t%.1f", c.Name, c.Pictures, c.Dropped,
			c.Bytes/1e3, c.Latency.P50, c.Latency.P99, c.Latency.Max, c.CaptureCPU, c.DevelopCPU, c.DevelopMS, c.Allocs)
	}
	fmt.Fprint(w, cameras)
	for _, c := range r.Cameras {
		fmt.Fprintf(w, "%s: %s; %s\n", c.Name, c.Picked, c.How)
	}
	fmt.Fprintf(w, "\ntick at %v Hz beside the cameras and alone, %d slices each, ticks by lateness; the host stole "+
		"%.0f ms\n", r.FPS, r.Slices, r.StealMS)
	ticks := report.Table{Left: 1, Columns: []string{"", "ticks", "own overruns", "host", "p50", "p99", "max us"}}
	for _, d := range decades[:len(decades)-1] {
		ticks.Columns = append(ticks.Columns, fmt.Sprintf("<%v", d))
	}
	ticks.Columns = append(ticks.Columns, "more")
	r.With.row(&ticks, "with")
	r.Without.row(&ticks, "without")
	_, err := fmt.Fprint(w, ticks)
	if !r.With.Granted {
		_, err = fmt.Fprintf(w, "no real-time priority: %s\n", r.With.Why)
	}
	return err
}

// row adds a row to the lateness table.
func (t *Ticks) row(table *report.Table, name string) {
	counts := strings.ReplaceAll(strings.Trim(fmt.Sprint(t.columns()), "[]"), " ", "\t")
	table.Addf("%s\t%d\t%d\t%d\t%.0f\t%.0f\t%.0f\t%s", name, t.Ticks, t.Own, t.Host, t.Lateness.P50, t.Lateness.P99,
		t.Lateness.Max, counts)
}

// columns adds the histogram up into decades.
func (t *Ticks) columns() []uint64 {
	out := make([]uint64, len(decades))
	for text, n := range t.Histogram {
		us, _ := strconv.ParseFloat(text, 64)
		for i, d := range decades {
			if us*1e3 <= float64(d) || i == len(decades)-1 {
				out[i] += n
				break
			}
		}
	}
	return out
}
