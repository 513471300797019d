package jpeg

import (
	"fmt"
	"io"
	"slices"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/report"
)

// Report is the result of Measure.
type Report struct {
	Bench   string        `json:"bench"`            // jpeg
	Version string        `json:"version"`          // version of bench
	Size    string        `json:"size"`             // WxH of the picture
	Quality int           `json:"quality"`          // quality of the JPEG
	Rounds  int           `json:"rounds"`           // rounds of all subjects
	Shared  string        `json:"shared,omitempty"` // why the subjects ran without real-time priority
	Machine bench.Machine `json:"machine"`
	Results []Result      `json:"results"`
}

// Result is one subject.
type Result struct {
	Name      string  `json:"name"`                      // the work
	MS        float64 `json:"ms"`                        // ms, time for a picture: median of the turns
	BestMS    float64 `json:"best_ms"`                   // ms, the best turn
	Tjbench   float64 `json:"tjbench_ms,omitempty"`      // ms, tjbench's median
	BestTheir float64 `json:"tjbench_best_ms,omitempty"` // ms, tjbench's best turn
	Ratio     float64 `json:"ratio,omitempty"`           // ratio, of ms to tjbench's time in adjacent turns: median
	BestRatio float64 `json:"best_ratio,omitempty"`      // ratio, of the best turns
	Allocs    float64 `json:"allocs"`                    // objects, for each picture, the most in a turn

	// ms, the same work by pixiv/go-libjpeg, in a build with -tags pixiv: median
	Pixiv       float64 `json:"pixiv_ms,omitempty"`
	PixivBest   float64 `json:"pixiv_best_ms,omitempty"` // ms, its best turn
	PixivRatio  float64 `json:"pixiv_ratio,omitempty"`   // ratio, go-libjpeg's to ours in adjacent turns: median
	PixivAllocs float64 `json:"pixiv_allocs,omitempty"`  // objects, of go-libjpeg for each picture, the most in a turn

	ours, theirs, ratios, pixiv, pixivRatios []float64
}

func newReport(cfg Config, subjects []subject) *Report {
	r := &Report{
		Bench:   "jpeg",
		Version: cfg.Version,
		Size:    cfg.Size.String(),
		Quality: cfg.Quality,
	}
	for _, s := range subjects {
		r.Results = append(r.Results, Result{Name: s.name})
	}
	return r
}

// add adds the time of one turn of package jpeg (ours) and of the preceding turn of tjbench (theirs; 0 without
// tjbench). Times are in milliseconds.
func (r *Report) add(name string, ours, theirs, allocs float64) {
	res := r.result(name)
	res.ours, res.Allocs = append(res.ours, ours), max(res.Allocs, allocs)
	if theirs > 0 {
		res.theirs, res.ratios = append(res.theirs, theirs), append(res.ratios, ours/theirs)
	}
}

// addPixiv adds a turn of go-libjpeg, and the ratio of its time to the time of our turn before it.
func (r *Report) addPixiv(name string, ours, theirs, allocs float64) {
	res := r.result(name)
	res.pixiv, res.pixivRatios = append(res.pixiv, theirs), append(res.pixivRatios, theirs/ours)
	res.PixivAllocs = max(res.PixivAllocs, float64(int(allocs)))
}

func (r *Report) result(name string) *Result {
	return &r.Results[slices.IndexFunc(r.Results, func(res Result) bool { return res.Name == name })]
}

func (r *Report) finish() {
	for i := range r.Results {
		res := &r.Results[i]
		res.MS, res.BestMS = report.Median(res.ours), slices.Min(res.ours)
		// The runtime itself may allocate a few objects in a turn. They are fewer than the turn's
		// pictures, and rounding down leaves them out.
		res.Allocs = float64(int(res.Allocs))
		if len(res.theirs) > 0 {
			res.Tjbench = report.Median(res.theirs)
			res.BestTheir = slices.Min(res.theirs)
			res.Ratio = report.Median(res.ratios)
			res.BestRatio = res.BestMS / res.BestTheir
		}
		if len(res.pixiv) > 0 {
			res.Pixiv = report.Median(res.pixiv)
			res.PixivBest = slices.Min(res.pixiv)
			res.PixivRatio = report.Median(res.pixivRatios)
		}
	}
}

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	t := report.Table{Left: 1, Columns: []string{"", "ours", "tjbench", "ratio", "best ours", "best tjbench",
		"ratio", "allocations"}}
	for i := range r.Results {
		res := &r.Results[i]
		if res.Tjbench == 0 {
			t.Addf("%s\t%.4f\t\t\t%.4f\t\t\t%.0f", res.Name, res.MS, res.BestMS, res.Allocs)
			continue
		}
		t.Addf("%s\t%.3f\t%.3f\t%.2f\t%.3f\t%.3f\t%.2f\t%.0f", res.Name, res.MS, res.Tjbench, res.Ratio, res.BestMS,
			res.BestTheir, res.BestRatio, res.Allocs)
	}
	_, err := fmt.Fprintf(w, "%s at quality %d, %d rounds, ms for a picture on %s\n%v", r.Size, r.Quality, r.Rounds,
		r.Machine.CPU, t)
	pixiv := report.Table{Left: 1, Columns: []string{"", "go-libjpeg", "over ours", "best", "over ours", "allocations"}}
	for i := range r.Results {
		if res := &r.Results[i]; res.Pixiv > 0 {
			pixiv.Addf("%s\t%.3f\t%.2f\t%.3f\t%.2f\t%.0f", res.Name, res.Pixiv, res.PixivRatio, res.PixivBest,
				res.PixivBest/res.BestMS, res.PixivAllocs)
		}
	}
	if len(pixiv.Rows) > 0 {
		_, err = fmt.Fprint(w, pixiv)
	}
	if r.Shared == "" {
		return err
	}
	_, err = fmt.Fprintf(w, "no real-time priority (%s): what else runs here shows in the figures\n", r.Shared)
	return err
}
