package jpeg

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"edgert/bench"
)

// Report is what Measure found.
type Report struct {
	Bench   string        `json:"bench"`
	Version string        `json:"version"`
	Size    string        `json:"size"`
	Quality int           `json:"quality"`
	Rounds  int           `json:"rounds"`
	Shared  string        `json:"shared,omitempty"` // why both ran among ordinary programs
	Machine bench.Machine `json:"machine"`
	Results []Result      `json:"results"`
}

// Result is one subject.
type Result struct {
	Name      string  `json:"name"`
	MS        float64 `json:"ms"`                   // of a picture: median of the turns
	BestMS    float64 `json:"best_ms"`              // in the best turn
	Tjbench   float64 `json:"tjbench_ms,omitempty"` // the same of tjbench
	BestTheir float64 `json:"tjbench_best_ms,omitempty"`
	Ratio     float64 `json:"ratio,omitempty"`      // ours over theirs in neighbouring turns: median
	BestRatio float64 `json:"best_ratio,omitempty"` // of the best turns
	Allocs    float64 `json:"allocs"`               // objects for each picture, the most in a turn

	ours, theirs, ratios []float64
}

func newReport(cfg Config, subjects []subject) *Report {
	r := &Report{Bench: "jpeg", Version: cfg.Version, Size: fmt.Sprintf("%dx%d", cfg.W, cfg.H), Quality: cfg.Quality}
	for _, s := range subjects {
		r.Results = append(r.Results, Result{Name: s.name})
	}
	return r
}

// add books one turn of ours and, unless it is 0, the one of tjbench before it.
func (r *Report) add(name string, ours, theirs, allocs float64) {
	i := slices.IndexFunc(r.Results, func(res Result) bool { return res.Name == name })
	res := &r.Results[i]
	res.ours, res.Allocs = append(res.ours, ours), max(res.Allocs, allocs)
	if theirs > 0 {
		res.theirs, res.ratios = append(res.theirs, theirs), append(res.ratios, ours/theirs)
	}
}

func (r *Report) finish() {
	for i := range r.Results {
		res := &r.Results[i]
		res.MS, res.BestMS = median(res.ours), slices.Min(res.ours)
		// The runtime's own few objects are not the picture's.
		res.Allocs = float64(int(res.Allocs))
		if len(res.theirs) > 0 {
			res.Tjbench, res.BestTheir, res.Ratio = median(res.theirs), slices.Min(res.theirs), median(res.ratios)
			res.BestRatio = res.BestMS / res.BestTheir
		}
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// WriteJSON writes the report, one object, indented.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteTable writes what a person reads.
func (r *Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s at quality %d, %d rounds, ms for a picture on %s\n", r.Size, r.Quality, r.Rounds, r.Machine.CPU)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tours\ttjbench\tratio\tbest ours\tbest tjbench\tratio\tallocations\t")
	for i := range r.Results {
		res := &r.Results[i]
		if res.Tjbench == 0 {
			fmt.Fprintf(t, "%s\t%.4f\t\t\t%.4f\t\t\t%.0f\t\n", res.Name, res.MS, res.BestMS, res.Allocs)
			continue
		}
		fmt.Fprintf(t, "%s\t%.3f\t%.3f\t%.2f\t%.3f\t%.3f\t%.2f\t%.0f\t\n", res.Name, res.MS, res.Tjbench, res.Ratio, res.BestMS, res.BestTheir, res.BestRatio, res.Allocs)
	}
	if err := t.Flush(); err != nil || r.Shared == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "no real-time priority (%s): what else runs here shows in the figures\n", r.Shared)
	return err
}
