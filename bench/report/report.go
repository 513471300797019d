// Package report writes the results of all measurements as JSON and as a table for a terminal.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// WriteJSON writes a report, one object, indented.
func WriteJSON(w io.Writer, report any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(report)
}

// Table is rows of cells below the names of their columns.
type Table struct {
	Columns []string // empty: rows only
	Rows    [][]string
	Left    int // number of columns from the left that are words; all others are figures, aligned right
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Addf formats a row, in which tabs separate the cells, and appends it.
func (t *Table) Addf(format string, args ...any) {
	t.Add(strings.Split(fmt.Sprintf(format, args...), "\t")...)
}

// String returns the table for a terminal.
func (t Table) String() string {
	rows := t.Rows
	if t.Columns != nil {
		rows = slices.Concat([][]string{t.Columns}, rows)
	}
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				line.WriteString("  ")
			}
			if i < t.Left {
				line.WriteString(cell + space)
			} else {
				line.WriteString(space + cell)
			}
		}
		fmt.Fprintln(&text, strings.TrimRight(line.String(), " "))
	}
	return text.String()
}

// WriteBelow replaces the text below a heading, up to the next "## ", in the page of the given
// name. It returns an error for a page without the heading. With an empty text it only checks the
// page.
func WriteBelow(name, heading, text string) error {
	page, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	above, below, found := strings.Cut(string(page), "\n"+heading+"\n")
	if !found {
		return fmt.Errorf("%s: it has no heading %q", name, heading)
	}
	if text == "" {
		return nil
	}
	if _, next, more := strings.Cut(below, "\n## "); more {
		text += "\n## " + next
	}
	return os.WriteFile(name, []byte(above+"\n"+heading+"\n\n"+text), 0o644)
}

// Facts returns the table at the beginning of a terminal's report: the subject and the machine's facts.
func Facts(name, what string, machine [][]string) *Table {
	return &Table{Left: 2, Rows: append([][]string{{name, what}}, machine...)}
}

// Median returns the middle value, or the mean of the two middle values. Without values it returns
// 0.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
