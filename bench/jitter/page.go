package jitter

import (
	"fmt"
	"html/template"
	"io"
	"strings"

	"edgert/bench"
)

// page is the report for a browser: one file that loads nothing.
var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width"/>
<title>bench jitter</title>
<style>
:root { color-scheme: light dark; --subject: #0b6bcb; --reference: #c4511a; --line: #8884; }
@media (prefers-color-scheme: dark) { :root { --subject: #5aa9ff; --reference: #ff9a5c; } }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.figure { font-size: 1.1rem; border-left: .25rem solid var(--subject); padding-left: .8rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: pre; }
th:first-child, td:first-child { text-align: left; }
.facts td { text-align: left; white-space: normal; }
.scroll { overflow-x: auto; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1rem; }
svg { width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
.grid { stroke: var(--line); } .subject { fill: var(--subject); fill-opacity: .35; stroke: var(--subject); stroke-width: 1.5; }
.reference { fill: none; stroke: var(--reference); stroke-width: 1.5; } .mark { stroke: var(--subject); stroke-width: 2; }
.of-subject { fill: var(--subject); } .of-reference { fill: var(--reference); }
</style>
</head>
<body>
<h1>How late a tick wakes, at {{.Report.FPS}} Hz, load {{.Report.Load}}</h1>
{{with .Report.Figure}}<p class="figure">{{.}}</p>{{end}}
{{range .Forms}}<h2>{{.Title}}</h2>
<div class="charts">{{range .Charts}}<figure>{{.}}</figure>{{end}}</div>
<div class="scroll"><table><tr>{{range .Columns}}<th>{{.}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table></div>
{{end}}<h2>Reading it</h2>
<p>Lateness is waking less the scheduled instant, in microseconds. "&gt;1ms/10k" is how many of 10,000 ticks were a millisecond late or more; "x" is the ratio to cyclictest,
of the same seconds where it ran beside. "own" and "host" are ticks that ran past the next deadline by our doing and by the machine's. In the form
"beside" the subject starts a second or two before cyclictest, for its rhythm must be known first; those ticks count for the subject.</p>
<ul>{{range .Notes}}<li>{{.}}</li>{{end}}</ul>
<h2>Machine</h2>
<table class="facts">{{range .Facts}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table>
</body>
</html>
`))

// form is one heading's part of the page.
type form struct {
	Title   string
	Columns []string
	Rows    [][]string
	Charts  []template.HTML
}

// WriteHTML writes the report as one page with the histograms side by side.
func (r *Report) WriteHTML(w io.Writer) error {
	var forms []form
	axes := axesOf(r)
	for _, name := range []string{Apart, Beside} {
		f := form{Title: formTitles[name], Columns: columns}
		for _, row := range r.rowsOf(name) {
			f.Rows = append(f.Rows, row.cells())
			if row.of != nil {
				f.Charts = append(f.Charts, template.HTML(axes.chart(row.of))) // of numbers and our own titles
			}
		}
		if f.Rows != nil {
			forms = append(forms, f)
		}
	}
	return page.Execute(w, struct {
		Report *Report
		Forms  []form
		Notes  []string
		Facts  [][2]string
	}{r, forms, r.notes(), r.Machine.Rows()})
}

// chart draws a result's histogram, and in outline the cyclictest's beside it.
func (a axes) chart(res *Result) string {
	var b strings.Builder
	title := subjectTitles[res.Subject] + ", " + res.Form
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s"><text x="%d" y="16">%s</text>`, chartWidth, chartHeight, title, left, title)
	a.grid(&b)
	if res.Tally != nil {
		fmt.Fprintf(&b, `<path class="subject" d="%s"/>`, a.outline(res.Tally))
	} else {
		q := res.Lateness
		for _, us := range []float64{q.P50, q.P99, q.P999, q.Max} {
			fmt.Fprintf(&b, `<line class="mark" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, a.x(us), a.x(us), top, bottom)
		}
	}
	legend(&b, "of-subject", subjectTitles[res.Subject], res.Lateness, 32)
	if ref := res.Reference; ref != nil && ref.Tally != nil {
		fmt.Fprintf(&b, `<path class="reference" d="%s"/>`, a.outline(ref.Tally))
		legend(&b, "of-reference", subjectTitles[Cyclictest], ref.Lateness, 46)
	}
	b.WriteString("</svg>")
	return b.String()
}

func legend(b *strings.Builder, class, name string, q bench.Quantiles, y int) {
	fmt.Fprintf(b, `<text class="%s" x="%d" y="%d" text-anchor="end">%s: p50 %.0f, p99 %.0f, max %.0f</text>`, class, right, y, name, q.P50, q.P99, q.Max)
}
