package bus

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"edgert/bench"
)

// page is the report for a browser: one file that loads nothing.
var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width"/>
<title>bench bus</title>
<style>
:root { color-scheme: light dark; --driver: #0b6bcb; --echo: #c4511a; --line: #8884; }
@media (prefers-color-scheme: dark) { :root { --driver: #5aa9ff; --echo: #ff9a5c; } }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
.facts td { text-align: left; }
svg { width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
.grid { stroke: var(--line); } .floor { stroke: currentColor; stroke-dasharray: 3 3; }
.driver { fill: var(--driver); fill-opacity: .3; stroke: var(--driver); } .echo { fill: none; stroke: var(--echo); stroke-width: 1.5; }
</style>
</head>
<body>
<h1>A cycle on the servo bus</h1>
<p>{{.Title}}. {{.BytesOut}} bytes out and {{.BytesIn}} in take {{printf "%.0f" .Wire}} us on the wire, {{printf "%.0f" .Floor}} us with the servos' answering times (dashed).</p>
{{.Clean}}
<table><tr>{{range .Columns}}<th>{{.}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table>
<ul>{{range .Notes}}<li>{{.}}</li>{{end}}</ul>
{{with .Lost}}<h2>Cycles with a lost reply</h2>
{{.}}{{end}}
<h2>Machine</h2>
<table class="facts">{{range .Facts}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table>
</body>
</html>
`))

// WriteHTML writes the report as a page with histograms.
func (r *Report) WriteHTML(w io.Writer) error {
	var lost template.HTML
	if r.LostReply != nil && r.LostReply.Lost > 0 {
		lost = template.HTML(chart(r.FloorUS, series{"driver", r.LostReply.Tally}))
	}
	return page.Execute(w, struct {
		Title             string
		BytesOut, BytesIn int
		Wire, Floor       float64
		Clean, Lost       template.HTML // of numbers and our own titles
		Columns           []string
		Rows              [][]string
		Notes             []string
		Facts             [][2]string
	}{r.title(), r.BytesOut, r.BytesIn, r.WireUS, r.FloorUS,
		template.HTML(chart(r.FloorUS, series{"driver", r.Driver.Tally}, series{"echo", r.Echo.Tally})), lost, columns, r.rows(), r.notes(), r.Machine.Rows()})
}

// series is one histogram of a chart; its class is its name.
type series struct {
	class string
	tally *bench.Tally
}

// The chart's layout, in SVG units.
const (
	chartWidth, chartHeight  = 900, 300
	left, right, top, bottom = 50, 880, 16, 262
	chartBins                = 160
	ticksAcross              = 8
)

// chart draws histograms over the same axes: the length of a cycle, up to the
// 99.9th percentile, and the logarithm of how many there were.
func chart(floor float64, all ...series) string {
	from, to := floor*0.9, floor*1.1
	for _, s := range all {
		to = max(to, 1.05*s.tally.Quantile(0.999))
	}
	width := (to - from) / chartBins
	most := 1.0
	counts := make([][chartBins]float64, len(all))
	for i, s := range all {
		for v, n := range s.tally.Bins() {
			k := int((float64(v) - from) / width)
			if k >= 0 && k < chartBins {
				counts[i][k] += float64(n)
				most = max(most, counts[i][k])
			}
		}
	}
	x := func(v float64) float64 { return left + (v-from)/(to-from)*(right-left) }
	y := func(n float64) float64 {
		return bottom - math.Log10(max(n, 0.5)/0.5)/math.Log10(most/0.5)*(bottom-top)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="histogram">`, chartWidth, chartHeight)
	for i := range ticksAcross + 1 {
		v := from + float64(i)*(to-from)/ticksAcross
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/><text x="%.1f" y="%d" text-anchor="middle">%.0f us</text>`, x(v), x(v), top, bottom, x(v), bottom+16, v)
	}
	for n := 1.0; n <= most; n *= 10 {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%.0f</text>`, left, right, y(n), y(n), left-5, y(n)+4, n)
	}
	for i, s := range all {
		fmt.Fprintf(&b, `<path class="%s" d="M%d %d`, s.class, left, bottom)
		for k, n := range counts[i] {
			v := from + float64(k)*width
			fmt.Fprintf(&b, "L%.1f %.1fL%.1f %.1f", x(v), y(n), x(v+width), y(n))
		}
		fmt.Fprintf(&b, `L%d %dZ"/><text x="%d" y="%d" text-anchor="end">%s: p50 %.0f, p99 %.0f us</text>`,
			right, bottom, right, top+14*(i+1), s.class, s.tally.Quantile(0.5), s.tally.Quantile(0.99))
	}
	fmt.Fprintf(&b, `<line class="floor" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/></svg>`, x(floor), x(floor), top, bottom)
	return b.String()
}
