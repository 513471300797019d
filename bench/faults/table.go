package faults

import (
	"fmt"
	"io"

	"github.com/edge-rt/edge-rt/bench/report"
)

// WriteTable writes one block per scenario with the means; success also has its interval and the
// paired difference from the best contender.
func (r *Report) WriteTable(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%d paired episodes of %g s per cell, world %s, %s; means, success with its 95 %% "+
		"interval\n",
		r.Episodes, r.Seconds, r.World, r.how())
	for _, c := range r.Cells {
		_, err = fmt.Fprintf(w, "\n%s: %s\n%v", c.Faults, c.Title, c.table())
	}
	return err
}

// how states whether the episodes were played in virtual or in real time.
func (r *Report) how() string {
	if r.Virtual {
		return fmt.Sprintf("virtual time, %.0f ms of network each way, %.0f ms for the policy", r.NetworkMs,
			r.ComputeMs)
	}
	return fmt.Sprintf("real time, edge-rt and lean-server; %d tries again because an edge found no motors", r.Again)
}

func (c *Cell) table() report.Table {
	t := report.Table{Left: 1, Columns: []string{"schedule"}}
	for _, m := range metrics {
		if m.Column != "" {
			t.Columns = append(t.Columns, m.Column)
		}
	}
	t.Columns = append(t.Columns, "less best, 95 %")
	for i := range c.Rows {
		t.Rows = append(t.Rows, c.Rows[i].cells())
	}
	return t
}

func (e *Entry) cells() []string {
	cells := []string{e.Schedule}
	for _, col := range metrics {
		m := e.Metrics[col.Key]
		text := "-"
		switch {
		case col.Column == "":
			continue
		case m.N > 0:
			text = fmt.Sprintf(col.Format, m.Mean)
		}
		if col.Key == "success" && m.N > 0 {
			text += fmt.Sprintf(" [%.1f, %.1f]", m.Low, m.High)
		}
		cells = append(cells, text)
	}
	return append(cells, fmt.Sprintf("%+.1f [%+.1f, %+.1f]", e.SuccessLessBest.Mean, e.SuccessLessBest.Low,
		e.SuccessLessBest.High))
}
