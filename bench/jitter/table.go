package jitter

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// The headings of the two forms, for people.
var formTitles = map[string]string{
	Apart:  "apart: one at a time, idle CPUs as the system keeps them",
	Beside: "beside: the same seconds, half a period apart, idle CPUs kept awake by cyclictest",
}

var subjectTitles = map[string]string{Cyclictest: "cyclictest", Loop: "bare loop", Edge: "whole edge"}

// row is one line of the table: a subject, or the cyclictest beside it.
type row struct {
	title string
	total *Total
	of    *Result // nil for the cyclictest beside a subject
}

// rowsOf lists the lines of one form.
func (r *Report) rowsOf(form string) (rows []row) {
	for i := range r.Results {
		if res := &r.Results[i]; res.Form == form {
			rows = append(rows, row{subjectTitles[res.Subject], &res.Total, res})
			if res.Reference != nil {
				rows = append(rows, row{"  " + subjectTitles[Cyclictest], res.Reference, nil})
			}
		}
	}
	return rows
}

var columns = []string{"", "ticks", "p50", "p90", "p99", "p99.9", "max us", ">1ms/10k", "x p50", "x p99", "own", "host", "steal"}

// cells are what stands below columns.
func (r row) cells() []string {
	q := r.total.Lateness
	us := func(v float64) string {
		if v == 0 {
			return "-"
		}
		return fmt.Sprintf("%.0f", v)
	}
	far := "-"
	if r.total.FarLate != nil {
		far = fmt.Sprintf("%.1f", *r.total.FarLate)
	}
	x50, x99, steal := "", "", ""
	if r.of != nil {
		steal = fmt.Sprintf("%.1f%%", 100*r.of.Steal)
		if r.of.Ratio != nil {
			x50, x99 = fmt.Sprintf("%.2f", r.of.Ratio.P50), fmt.Sprintf("%.2f", r.of.Ratio.P99)
		}
	}
	return []string{r.title, fmt.Sprint(r.total.Ticks), us(q.P50), us(q.P90), us(q.P99), us(q.P999), us(q.Max), far, x50, x99,
		count(r.total.OverrunsOwn), count(r.total.OverrunsHost), steal}
}

func count(n *uint64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

// notes are the sentences below the table.
func (r *Report) notes() (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if r.Reference.Missing != "" {
		say("%s.", r.Reference.Missing)
	}
	for _, why := range r.Retried {
		say("Started again: %s.", why)
	}
	for _, res := range r.Results {
		name := subjectTitles[res.Subject] + " " + res.Form
		if !res.Pooled {
			say("%s: the program gives quantiles only, so these are medians over its slices (%d).", name, res.Slices)
		}
		if res.BusP50 > 0 {
			say("%s: read and write of the bus p50 %.0f us, p99 %.0f us; %d ticks without an action.", name, res.BusP50, res.BusP99, res.Starved)
		}
		if len(res.Phases) > 0 {
			say("%s: parts of a tick: %s.", name, res.Phases)
		}
		if res.Refused != "" {
			say("%s: the kernel refused real time: %s.", name, res.Refused)
		}
		if res.Disturbed > 0 {
			say("%s: the host took more than %.0f %% of the CPUs in %d of %d slices.", name, 100*disturbedShare, res.Disturbed, res.Slices)
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

// String is how the ratio continues a sentence; nil says nothing.
func (r *Ratio) String() string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf(", x %.2f and x %.2f of cyclictest's", r.P50, r.P99)
}

// String is the figure as a sentence.
func (f *Figure) String() string {
	return fmt.Sprintf("%s: lateness p99 %.0f us beside cyclictest's %.0f us in the same seconds, a ratio of %.2f (p50 %.2f), from %d ticks",
		subjectTitles[f.Subject], f.P99, f.CyclictestP99, f.Ratio.P99, f.Ratio.P50, f.Ticks)
}

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "bench jitter\t%g Hz, load %s, slices of %.1f s\n", r.FPS, r.Load, r.SliceS)
	for _, fact := range r.Machine.Rows() {
		fmt.Fprintf(t, "%s\t%s\n", fact[0], fact[1])
	}
	if r.Reference.Version != "" {
		fmt.Fprintf(t, "cyclictest\t%s\n", r.Reference.Version)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, form := range []string{Apart, Beside} {
		rows := r.rowsOf(form)
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s\n", formTitles[form])
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		line(t, columns)
		for _, r := range rows {
			line(t, r.cells())
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, n := range r.notes() {
		fmt.Fprintln(w, n)
	}
	if r.Figure != nil {
		fmt.Fprintf(w, "\n%s\n", r.Figure)
	}
	return nil
}

// nameWidth is of the first column, which is left-aligned among right-aligned
// ones.
const nameWidth = 14

func line(w io.Writer, cells []string) {
	fmt.Fprintf(w, "%-*s", nameWidth, cells[0])
	for _, c := range cells[1:] {
		fmt.Fprintf(w, "\t%s", c)
	}
	fmt.Fprintln(w, "\t")
}
