package jitter

import (
	"fmt"
	"io"
	"strings"

	"github.com/edge-rt/edge-rt/bench/report"
)

// The headings of the two forms, for people.
var formTitles = map[string]string{
	apart:  "apart: one at a time, idle CPUs as the system keeps them",
	Beside: "beside: the same seconds, half a period apart, idle CPUs kept awake by cyclictest",
}

var subjectTitles = map[string]string{
	Cyclictest:  "cyclictest",
	Loop:        "bare loop",
	Edge:        "whole edge",
	leRobotLoop: "LeRobot's loop",
}

// ratiosTitle is the heading of the table of ratios.
const ratiosTitle = "ratio to cyclictest's, with its 95 % interval from draws of whole slices"

// table returns the table of one form: its subjects, each with the cyclictest beside it.
func (r *Report) table(form string) report.Table {
	t := report.Table{Left: 1, Columns: []string{"", "ticks", "p50", "p90", "p99", "p99.9", "p99.99", "max us",
		">1ms/10k", "x p50", "x p99", "own", "host", "steal"}}
	for i := range r.Results {
		res := &r.Results[i]
		if res.Form != form {
			continue
		}
		x50, x99 := "", ""
		if res.Ratio != nil {
			x50, x99 = fmt.Sprintf("%.2f", res.Ratio.P50), fmt.Sprintf("%.2f", res.Ratio.P99)
		}
		res.row(&t, subjectTitles[res.Subject], x50, x99, fmt.Sprintf("%.1f%%", 100*res.Steal))
		if res.Reference != nil {
			res.Reference.row(&t, "  "+subjectTitles[Cyclictest], "", "", "")
		}
	}
	return t
}

// row adds a row to the table.
func (t *Total) row(table *report.Table, title, x50, x99, steal string) {
	us := func(v float64) string {
		if v == 0 {
			return "-"
		}
		return fmt.Sprintf("%.0f", v)
	}
	count := func(n *uint64) string {
		if n == nil {
			return ""
		}
		return fmt.Sprint(*n)
	}
	far := "-"
	if t.FarLate != nil {
		far = fmt.Sprintf("%.1f", *t.FarLate)
	}
	q := t.Lateness
	table.Add(title, fmt.Sprint(t.Ticks), us(q.P50), us(q.P90), us(q.P99), us(q.P999), us(q.P9999), us(q.Max), far, x50,
		x99,
		count(t.OverrunsOwn), count(t.OverrunsHost), steal)
}

// ratios returns the table of all ratios.
func (r *Report) ratios() report.Table {
	t := report.Table{Left: 1, Columns: append([]string{""}, levelTexts[:]...)}
	for i := range r.Results {
		res := &r.Results[i]
		if res.Ratio == nil {
			continue
		}
		row := []string{subjectTitles[res.Subject] + ", " + res.Form}
		for level, ratio := range res.Ratio.quantiles() {
			row = append(row, within(ratio, res.Ratio.Intervals[levelNames[level]]))
		}
		t.Add(row...)
	}
	return t
}

// within formats a ratio and its interval, as far as they are known.
func within(ratio float64, ends Interval) string {
	switch {
	case ratio == 0:
		return "-"
	case ends == Interval{}:
		return fmt.Sprintf("%.2f", ratio)
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", ratio, ends[0], ends[1])
}

// tailNotes explains the limits of the ratios in the table.
func (r *Report) tailNotes(say func(format string, args ...any)) {
	noTail, noSpread := false, false
	for i := range r.Results {
		res := &r.Results[i]
		if res.Ratio == nil {
			continue
		}
		noTail = noTail || res.Ratio.P9999 == 0
		noSpread = noSpread || res.Ratio.Intervals == nil
		if n := beyond(len(levels)-1, res.Tally.Count()); res.Ratio.P9999 > 0 && n < fewBeyond {
			say("%s %s: p99.99 rests on the latest %.0f ticks: its interval is too narrow, for no draw has a "+
				"later one.", subjectTitles[res.Subject], res.Form, n)
		}
	}
	if noTail {
		say("A ratio of p99.9 wants 1,000 ticks of the subject and of cyclictest, one of p99.99 wants 10,000: a " +
			"longer --duration.")
	}
	if noSpread {
		say("An interval wants %d slices of the subject and of cyclictest: a longer --duration, or a shorter --slice.",
			minSlices)
	}
}

func (r *Report) notes() (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if r.Reference.Missing != "" {
		say("%s.", r.Reference.Missing)
	}
	if r.LeRobot.Missing != "" {
		say("LeRobot's loop was not measured: %s.", r.LeRobot.Missing)
	}
	for _, why := range r.Retried {
		say("Started again: %s.", why)
	}
	for _, why := range r.Failed {
		say("Left out: %s.", why)
	}
	r.tailNotes(say)
	for _, res := range r.Results {
		name := subjectTitles[res.Subject] + " " + res.Form
		if res.BusP50 > 0 {
			say("%s: read and write of the bus p50 %.0f us, p99 %.0f us; %d ticks without an action.", name, res.BusP50,
				res.BusP99, res.Starved)
		}
		if len(res.Phases) > 0 {
			say("%s: parts of a tick: %s.", name, res.Phases)
		}
		if res.Refused != "" {
			say("%s: the kernel refused real time: %s.", name, res.Refused)
		}
		if res.Disturbed > 0 {
			say("%s: the host took more than %.0f %% of the CPUs in %d of %d slices.", name, 100*disturbedShare,
				res.Disturbed, res.Slices)
		}
		if c := res.Undisturbed; c != nil {
			say("%s, without those: p50 %.0f us, p99 %.0f us%s.", name, c.Lateness.P50, c.Lateness.P99, c.Ratio)
		}
		if res.Threads != "" {
			say("%s: threads %s.", name, res.Threads)
		}
	}
	return all
}

// String returns the ratio as the end of a sentence; nil gives "".
func (r *Ratio) String() string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf(", x %.2f and x %.2f of cyclictest's", r.P50, r.P99)
}

// String returns the figure as a sentence.
func (f *Figure) String() string {
	return fmt.Sprintf("%s: lateness p99 %.0f us beside cyclictest's %.0f us in the same seconds, a ratio of %s; "+
		"p50 %.2f, from %d ticks",
		subjectTitles[f.Subject], f.P99, f.CyclictestP99, within(f.Ratio.P99, f.Ratio.Intervals["p99"]), f.Ratio.P50,
		f.Ticks)
}

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	facts := report.Facts("bench jitter", fmt.Sprintf("%s, %g Hz, load %s, slices of %.1f s", r.Robot, r.FPS, r.Load,
		r.SliceS),
		r.Machine.Rows())
	if r.Reference.Version != "" {
		facts.Add("cyclictest", r.Reference.Version)
	}
	if r.LeRobot.Version != "" {
		facts.Add("LeRobot", r.LeRobot.Version)
	}
	fmt.Fprint(w, facts)
	for _, form := range []string{apart, Beside} {
		if t := r.table(form); len(t.Rows) > 0 {
			fmt.Fprintf(w, "\n%s\n%v", formTitles[form], t)
		}
	}
	if t := r.ratios(); len(t.Rows) > 0 {
		fmt.Fprintf(w, "\n%s\n%v", ratiosTitle, t)
	}
	_, err := fmt.Fprintf(w, "\n%s", strings.Join(append(r.notes(), ""), "\n"))
	if r.Figure != nil {
		_, err = fmt.Fprintf(w, "\n%s\n", r.Figure)
	}
	return err
}
