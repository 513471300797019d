package jitter

import (
	"html/template"
	"io"
	"math"

	"github.com/edge-rt/edge-rt/bench/report"
)

var page = report.NewPage("bench jitter", `<h1>How late a tick wakes, at {{.Report.FPS}} Hz, load {{.Report.Load}}</h1>
{{with .Report.Figure}}<p class="figure">{{.}}</p>{{end}}
{{range .Forms}}<h2>{{.Title}}</h2>
<div class="plots">{{range .Charts}}<figure>{{.}}</figure>{{end}}</div>
{{template "table" .Table}}{{end}}{{if .Ratios.Rows}}<h2>{{.RatiosTitle}}</h2>
{{template "table" .Ratios}}{{end}}<h2>Reading it</h2>
<p>Lateness is waking less the scheduled instant, in microseconds. "&gt;1ms/10k" is how many of 10,000 ticks were a millisecond late or more; "x" is the ratio to cyclictest,
of the same seconds where it ran beside. "own" and "host" are ticks that ran past the next deadline by our doing and by the machine's. In the form
"beside" the subject starts a second or two before cyclictest, for its rhythm must be known first; those ticks count
for the subject. An interval holds the middle 95 % of {{.Resamples}} draws with replacement of as many slices as were
measured: a slice is drawn
as a whole, for its ticks share their disturbances, and beside cyclictest together with its cyclictest.</p>
<ul>{{range .Notes}}<li>{{.}}</li>{{end}}</ul>
{{template "machine" .Report.Machine.Rows}}<h2>Repeat it</h2>
<p>With the wheel or the Debian packages of edge-rt, and <code>sudo apt install rt-tests stress-ng</code>; as root,
or with <code>ulimit -r 80</code>:</p>
<pre>{{.Report.Command}}
bench jitter --duration 1h --load stress --json new.json --html new.html
bench jitter --compare old.json new.json</pre>
<p>bench {{.Report.Version}}{{with .Report.Reference.Version}}, cyclictest
{{.}}{{end}}{{with .Report.LeRobot.Version}}, LeRobot {{.}}{{end}}.</p>
`)

// formPage is one form's part of the page.
type formPage struct {
	Title  string
	Table  report.Table
	Charts []template.HTML
}

// WriteHTML writes the report as one page with the histograms side by side.
func (r *Report) WriteHTML(w io.Writer) error {
	var forms []formPage
	axis := r.axis()
	most := r.fullestBin(axis)
	for _, form := range []string{apart, Beside} {
		f := formPage{Title: formTitles[form], Table: r.table(form)}
		for i := range r.Results {
			if res := &r.Results[i]; res.Form == form {
				f.Charts = append(f.Charts, res.chart(axis, most))
			}
		}
		if f.Charts != nil {
			forms = append(forms, f)
		}
	}
	return page.Execute(w, struct {
		Report      *Report
		Forms       []formPage
		Ratios      report.Table
		RatiosTitle string
		Resamples   int
		Notes       []string
	}{
		Report:      r,
		Forms:       forms,
		Ratios:      r.ratios(),
		RatiosTitle: ratiosTitle,
		Resamples:   resamples,
		Notes:       r.notes(),
	})
}

const (
	chartWidth = 460

	// binsPerDecade is the number of bins in a decade of latenesses; bins of single microseconds
	// would be lines too thin to see.
	binsPerDecade = 24
)

func (r *Report) totals() (all []*Total) {
	for i := range r.Results {
		all = append(all, &r.Results[i].Total)
		if ref := r.Results[i].Reference; ref != nil {
			all = append(all, ref)
		}
	}
	return all
}

// axis returns the axis of all charts, between powers of ten: it includes a quarter of the smallest
// median, and the longest lateness.
func (r *Report) axis() report.Axis {
	low, high := math.Inf(1), 1.0
	for _, t := range r.totals() {
		low = min(low, math.Floor(math.Log10(max(t.Lateness.P50/4, 1))))
		high = max(high, math.Ceil(math.Log10(max(t.Lateness.Max, 1))))
	}
	low = min(low, high-1)
	return report.XAxis(chartWidth, math.Pow(10, low), math.Pow(10, high), true)
}

// bins returns the number of bins on the axis.
func bins(axis report.Axis) int {
	return binsPerDecade * int(math.Round(math.Log10(axis.High/axis.Low)))
}

func (r *Report) fullestBin(axis report.Axis) (most float64) {
	for _, t := range r.totals() {
		for _, n := range report.Counts(t.Tally, axis, bins(axis)) {
			most = max(most, n)
		}
	}
	return most
}

// chart draws the subject's histogram and, if a cyclictest ran in the same seconds, the outline of its histogram.
func (res *Result) chart(axis report.Axis, most float64) template.HTML {
	name := subjectTitles[res.Subject]
	h := report.NewHistogram(name+", "+res.Form, "lateness (x) and ticks (y)", axis, bins(axis), most)
	h.Add("ours", name, res.Tally, res.Lateness)
	if ref := res.Reference; ref != nil {
		h.Add("other", subjectTitles[Cyclictest], ref.Tally, ref.Lateness)
	}
	return h.SVG()
}
