package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// markdown returns the round as a section of a document.
func (r *round) markdown(err error) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("Command: `%s`, begun %s.\n", r.given.command(), r.Began.Format("2006-01-02 15:04 MST"))
	line("| stage | what | s | found |\n|---|---|---|---|")
	for _, s := range stages {
		seconds, done := r.Seconds[s.name]
		if !done {
			line("| %s | %s | | not done |", s.name, s.what)
			continue
		}
		line("| %s | %s | %.0f | %s |", s.name, s.what, seconds, r.Results[s.name])
	}
	line("")
	if _, done := r.Seconds["run"]; done {
		line("Success before the corrections: **%s**.", r.Found.Judged[1])
	}
	if _, done := r.Seconds["rerun"]; done {
		line("Success after them: **%s**.", r.Found.Judged[2])
	}
	if err != nil {
		line("\nIt ended with: %v", err)
	}
	return b.String()
}

// command returns the command for a round like this one.
func (o portable) command() string {
	var given []string
	flags := reflect.ValueOf(o)
	for i := range flags.NumField() {
		if value := flags.Field(i); !value.IsZero() {
			text := fmt.Sprintf("--%s %v", strings.ToLower(flags.Type().Field(i).Name), value)
			given = append(given, strings.TrimSuffix(text, " true"))
		}
	}
	if given == nil {
		return "make circle"
	}
	return "make circle CIRCLE='" + strings.Join(given, " ") + "'"
}

// counts lists the words in alphabetical order, each with its count.
func counts(of map[string]int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, of[what]))
	}
	return strings.Join(parts, ", ")
}
