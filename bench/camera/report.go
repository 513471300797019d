package camera

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"edgert/bench"
	"edgert/rt"
)

// Report is what Measure found.
type Report struct {
	Bench   string        `json:"bench"`
	Version string        `json:"version"`
	FPS     float64       `json:"fps"`
	Slices  int           `json:"slices"` // of each kind
	StealMS float64       `json:"host_steal_ms"`
	Machine bench.Machine `json:"machine"`
	Cameras []Camera      `json:"cameras"`
	With    Ticks         `json:"with"`    // the tick beside the cameras
	Without Ticks         `json:"without"` // and alone
}

// Camera is one camera; its latency is from the instant that the picture was
// taken until it stands in a message.
type Camera struct {
	Name       string  `json:"name"`
	Picked     string  `json:"picked"`
	How        string  `json:"how"` // what is done to the pictures
	Captured   uint64  `json:"captured"`
	Dropped    uint64  `json:"dropped"`
	Broken     uint64  `json:"broken"`
	Errors     uint64  `json:"errors"`
	Pictures   uint64  `json:"pictures"` // that stood in messages
	Bytes      float64 `json:"bytes"`    // of a message: mean
	Latency    Spread  `json:"capture_to_wire_ms"`
	CaptureCPU float64 `json:"capture_cpu_percent"` // of one core
	DevelopCPU float64 `json:"develop_cpu_percent"`
	DevelopMS  float64 `json:"develop_ms"` // CPU time for each picture
	Allocs     float64 `json:"allocs"`     // objects of the whole process for each picture
}

// Spread is a histogram in three figures.
type Spread struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Ticks is the loop.
type Ticks struct {
	Ticks     uint64            `json:"ticks"`
	Own       uint64            `json:"overruns_own"`
	Host      uint64            `json:"overruns_host"`
	Lateness  Spread            `json:"lateness_us"`
	P999      float64           `json:"lateness_us_p999"`
	Histogram map[string]uint64 `json:"lateness_histogram_us"` // upper bound: ticks
	Granted   bool              `json:"rt_granted"`
	Why       string            `json:"rt_why,omitempty"`
}

func spread(h *rt.Hist, unit time.Duration) Spread {
	return Spread{in(h.Quantile(0.5), unit), in(h.Quantile(0.99), unit), in(h.Max(), unit)}
}

func in(d, unit time.Duration) float64 { return round(float64(d) / float64(unit)) }

func round(v float64) float64 { return float64(int64(v*1000+0.5)) / 1000 }

func (s *station) summary() Camera {
	t := s.eye.Tally()
	c := Camera{
		Name: s.eye.Name, Picked: s.picked, How: s.developer.String(), Captured: t.Captured, Dropped: t.Dropped, Broken: t.Torn + t.Undecoded + t.Source.Broken, Errors: t.Errors,
		Pictures: s.pictures, Latency: spread(s.latency, time.Millisecond),
	}
	if s.seconds > 0 {
		c.CaptureCPU, c.DevelopCPU = round(100*s.captureCPU.Seconds()/s.seconds), round(100*s.developCPU.Seconds()/s.seconds)
	}
	if n := float64(s.pictures); n > 0 {
		c.Bytes, c.DevelopMS, c.Allocs = round(float64(s.bytes)/n), round(s.developCPU.Seconds()*1e3/n), round(float64(s.allocs)/n)
	}
	return c
}

func (t *ticks) summary() Ticks {
	out := Ticks{
		Ticks: t.count, Own: t.own, Host: t.host, Lateness: spread(t.late, time.Microsecond), P999: in(t.late.Quantile(0.999), time.Microsecond),
		Histogram: map[string]uint64{}, Granted: t.granted, Why: t.grantedWhy,
	}
	for upper, n := range t.late.Buckets {
		out.Histogram[strconv.FormatFloat(float64(upper)/1e3, 'f', -1, 64)] += n
	}
	return out
}

// WriteJSON writes the report, one object, indented.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// decades are the columns of the lateness table.
var decades = []time.Duration{20 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, time.Minute}

// WriteTable writes what a person reads.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "camera\tpictures\tdropped\tkB\tto wire p50\tp99\tmax ms\tcapture CPU\tencode CPU\tms each\tallocations\t")
	for _, c := range r.Cameras {
		fmt.Fprintf(t, "%s\t%d\t%d\t%.1f\t%.2f\t%.2f\t%.2f\t%.1f %%\t%.1f %%\t%.2f\t%.1f\t\n", c.Name, c.Pictures, c.Dropped, c.Bytes/1e3,
			c.Latency.P50, c.Latency.P99, c.Latency.Max, c.CaptureCPU, c.DevelopCPU, c.DevelopMS, c.Allocs)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range r.Cameras {
		fmt.Fprintf(w, "%s: %s; %s\n", c.Name, c.Picked, c.How)
	}
	fmt.Fprintf(w, "\ntick at %v Hz beside the cameras and alone, %d slices each, ticks by lateness; the host stole %.0f ms\n", r.FPS, r.Slices, r.StealMS)
	fmt.Fprint(t, "\tticks\town overruns\thost\tp50\tp99\tmax us\t")
	for _, d := range decades[:len(decades)-1] {
		fmt.Fprintf(t, "<%v\t", d)
	}
	fmt.Fprintln(t, "more\t")
	for _, row := range []struct {
		name string
		t    *Ticks
	}{{"with", &r.With}, {"without", &r.Without}} {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.0f\t%.0f\t%.0f\t", row.name, row.t.Ticks, row.t.Own, row.t.Host, row.t.Lateness.P50, row.t.Lateness.P99, row.t.Lateness.Max)
		for _, n := range row.t.columns() {
			fmt.Fprintf(t, "%d\t", n)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if !r.With.Granted {
		fmt.Fprintf(w, "no real-time priority: %s\n", r.With.Why)
	}
	return nil
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
