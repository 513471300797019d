package faults

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/edge-rt/edge-rt/bench/report"
)

var page = report.NewPage("bench faults", `<h1>Schedules under identical faults</h1>
<p>{{.Report.Episodes}} paired episodes of {{.Report.Seconds}} s in each cell, world {{.Report.World}}, {{.How}}. Bars are means over episodes with their 95 % intervals,
orange that of the first schedule.</p>
{{if gt (len .Cells) 1}}<h2>Overview</h2>
<p>Success per leg in %, then starved ticks per minute.</p>
<div class="scroll"><table><tr><th>faults</th>{{range .Schedules}}<th>{{.}}</th>{{end}}</tr>
{{range .Cells}}<tr><td><a href="#{{.Name}}">{{.Name}}</a></td>{{range .Overview}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table></div>
{{end}}{{range .Cells}}<h2 id="{{.Name}}">{{.Name}}: {{.Title}}</h2>
<div class="plots">{{range .Bars}}{{.}}{{end}}</div>
{{template "table" .Table}}<div class="wide">{{range .Figures}}<figure>{{.}}</figure>
{{end}}</div>
{{end}}<h2>Reading it</h2>
<p>A leg succeeds when the target is reached and the post was never touched. <b>starved</b>: ticks on which an action was due and none was there,
counted from the tick on which the first one runs when nothing is lost. <b>recovery</b>: from the
first message lost to the next merged chunk. <b>seam</b>: how far a chunk's first executed action lies from where the two before it lead. <b>switches</b>: new plans
that pass the post on another side than the plan before. <b>age</b>: of the executed action's observation. <b>less best</b>: the paired difference of success to
the contender with the highest mean; an interval that includes 0 means no proven difference.</p>
`)

// cellPage is one scenario's part of the page.
type cellPage struct {
	Name, Title string
	Overview    []string // one for each contender
	Bars        []template.HTML
	Table       report.Table
	Figures     []template.HTML
}

// WriteHTML writes the report as one page with plots. It draws an episode of the first contender of
// each scenario, or one of every contender if there is one scenario.
func (r *Report) WriteHTML(w io.Writer) error {
	var cells []cellPage
	for s := range r.Cells {
		cell := &r.Cells[s]
		p := cellPage{Name: cell.Faults, Title: cell.Title, Table: cell.table()}
		for _, m := range metrics {
			if svg := drawBars(m, cell.Rows); svg != "" {
				p.Bars = append(p.Bars, template.HTML(svg)) // the SVG consists of numbers and escaped names only
			}
		}
		for i := range cell.Rows {
			p.Overview = append(p.Overview, cell.Rows[i].short())
			if len(r.traces) > 0 && len(r.traces[r.cfg.cell(s, i)]) > 0 && (i == 0 || len(r.Cells) == 1) {
				p.Figures = append(p.Figures, template.HTML(r.episode(s, i)))
			}
		}
		cells = append(cells, p)
	}
	return page.Execute(w, struct {
		Report    *Report
		How       string
		Cells     []cellPage
		Schedules []string
	}{r, r.how(), cells, r.schedules()})
}

func (r *Report) schedules() (names []string) {
	for _, row := range r.Cells[0].Rows {
		names = append(names, row.Schedule)
	}
	return names
}

func (r *Report) episode(scenario, contender int) string {
	cell := &r.Cells[scenario]
	ticks := r.traces[r.cfg.cell(scenario, contender)]
	title := fmt.Sprintf("%s, %s, seed %d", cell.Rows[contender].Schedule, cell.Title, ticks[0].Seed)
	return drawEpisode(title, ticks, r.cfg.Scenarios[scenario].Script)
}

// WriteSVG writes the figure of the first episode of the first cell.
func (r *Report) WriteSVG(w io.Writer) error {
	if len(r.traces[0]) == 0 {
		return errNoTicks
	}
	_, err := io.WriteString(w, r.episode(0, 0)+"\n")
	return err
}

// WriteQueues writes a drawing of how many actions are left over time, in each contender's first
// episode of the first scenario.
func (r *Report) WriteQueues(w io.Writer) error {
	if len(r.traces[0]) == 0 {
		return errNoTicks
	}
	title := fmt.Sprintf("Actions left: %s, %s", r.Cells[0].Title, r.how())
	_, err := io.WriteString(w, drawQueues(title, r.schedules(), r.traces)+"\n")
	return err
}

// short formats a number with three digits, or as a whole number from 100 on.
func short(v float64) string {
	if math.Abs(v) >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func (e *Entry) short() string {
	return short(e.Metrics["success"].Mean) + " · " + short(e.Metrics["starved_ticks"].Mean)
}

const barHeight, barsLeft, barsRight = 18, 130, 420

// drawBars draws one metric of all contenders. It returns "" when no contender has the metric.
func drawBars(m metric, rows []Entry) string {
	high := math.Inf(-1)
	for i := range rows {
		if v := rows[i].Metrics[m.Key]; v.N > 0 {
			high = max(high, v.High, v.Mean)
		}
	}
	if math.IsInf(high, -1) {
		return ""
	}
	if m.Unit == "%" { // with few episodes the interval may extend beyond the possible values
		high = 100
	}
	high = max(high, 1e-9)
	x := report.Axis{High: high, From: barsLeft, To: barsRight - 70}.At
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img"><text x="0" y="14" font-weight="600">%s (%s)</text>`,
		barsRight, 26+barHeight*len(rows), template.HTMLEscapeString(m.Title), template.HTMLEscapeString(m.Unit))
	for i := range rows {
		y := 22 + barHeight*i
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, barsLeft-6, y+12,
			template.HTMLEscapeString(rows[i].Schedule))
		v := rows[i].Metrics[m.Key]
		if v.N == 0 {
			fmt.Fprintf(&b, `<text x="%d" y="%d">none</text>`, barsLeft+4, y+12)
			continue
		}
		class := "bar"
		if i == 0 {
			class = "first"
		}
		middle := float64(y) + barHeight/2 - 1
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`, class, barsLeft, y+1,
			x(v.Mean)-barsLeft, barHeight-4)
		fmt.Fprintf(&b, `<path class="interval" d="M%.1f %.1fH%.1fM%.1f %dv8M%.1f %dv8"/>`, x(v.Low), middle, x(v.High),
			x(v.Low), y+4, x(v.High), y+4)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`, x(max(v.High, v.Mean))+4, y+12, short(v.Mean))
	}
	b.WriteString("</svg>")
	return b.String()
}
