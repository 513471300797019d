package bus

import (
	"html/template"
	"io"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/report"
)

var page = report.NewPage("bench bus", `<h1>A cycle on the servo bus</h1>
<p>{{.Title}}. {{.Report.BytesOut}} bytes out and {{.Report.BytesIn}} in take {{printf "%.0f" .Report.WireUS}} us on the wire, {{printf "%.0f" .Report.FloorUS}} us with the servos' answering times (dashed).</p>
<div class="wide">{{.Clean}}</div>
{{template "table" .Table}}
<ul>{{range .Notes}}<li>{{.}}</li>{{end}}</ul>
{{with .Lost}}<h2>Cycles with a lost reply</h2>
<div class="wide">{{.}}</div>{{end}}
{{template "machine" .Report.Machine.Rows}}`)

// WriteHTML writes the report as a page with histograms.
func (r *Report) WriteHTML(w io.Writer) error {
	var lost template.HTML
	if r.LostReply != nil && r.LostReply.Lost > 0 {
		lost = r.chart(r.LostReply.Tally)
	}
	return page.Execute(w, struct {
		Report      *Report
		Title       string
		Clean, Lost template.HTML
		Table       report.Table
		Notes       []string
	}{r, r.title(), r.chart(r.Driver.Tally, r.Echo.Tally), lost, r.table(), r.notes()})
}

const (
	chartWidth = 900
	chartBins  = 160
)

// chart draws the driver's cycles, and the echo's, up to the 99.9th percentile.
func (r *Report) chart(tallies ...*bench.Tally) template.HTML {
	low := r.FloorUS * 0.9
	high := r.FloorUS * 1.1
	most := 0.0
	for _, t := range tallies {
		high = max(high, 1.05*t.Quantile(0.999))
	}
	axis := report.XAxis(chartWidth, low, high, false)
	for _, t := range tallies {
		for _, n := range report.Counts(t, axis, chartBins) {
			most = max(most, n)
		}
	}
	h := report.NewHistogram("", "length (x) and cycles (y)", axis, chartBins, most)
	h.Line("limit", r.FloorUS)
	for i, t := range tallies {
		h.Add([]string{"ours", "other"}[i], []string{"driver", "C echo"}[i], t, t.Quantiles())
	}
	return h.SVG()
}
