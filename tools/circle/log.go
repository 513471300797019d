package main

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// markdown returns the round as a section of a document.
func (r *round) markdown(err error) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	f := &r.Found
	line("Command: `%s`, begun %s.\n", command(flag.CommandLine), r.Began.Format("2006-01-02 15:04 MST"))
	line("| stage | what | s | found |\n|---|---|---|---|")
	for _, s := range stages {
		seconds, done := r.Seconds[s.name]
		if !done {
			line("| %s | %s | | not done |", s.name, s.what)
			continue
		}
		line("| %s | %s | %.0f | %s |", s.name, s.what, seconds, f.of(s.name))
	}
	line("")
	if _, done := r.Seconds["run"]; done {
		line("Success before the corrections: **%s**.", f.Judged[1])
	}
	if _, done := r.Seconds["rerun"]; done {
		line("Success after them: **%s**.", f.Judged[2])
	}
	if err != nil {
		line("\nIt ended with: %v", err)
	}
	return b.String()
}

// of returns the result of the stage of that name in one line.
func (f *found) of(name string) string {
	data := func(e exported) string {
		return fmt.Sprintf("%d episodes, %d frames at %d per second, %d of them interventions", e.Episodes, e.Frames,
			e.FPS, e.Intervention)
	}
	training := func(t trained) string {
		return fmt.Sprintf("%d steps of %d frames, loss %.3f to %.3f", t.Steps, batch, t.First, t.Last)
	}
	bundle := func(b bundled) string {
		return fmt.Sprintf("worst error %.1e deviations, sha256 %.12s, golden sets reproduced", b.Worst, b.SHA256)
	}
	switch name {
	case "demonstrate":
		return fmt.Sprintf("%d episodes in %d worlds, %d recorded again, %.1f MB", f.Demonstrated.Episodes,
			f.Demonstrated.Worlds, f.Demonstrated.Again, float64(f.Demonstrated.Bytes)/1e6)
	case "export":
		return data(f.Exported[1])
	case "append":
		return data(f.Exported[2])
	case "train":
		return training(f.Trained[1])
	case "retrain":
		return training(f.Trained[2])
	case "bundle":
		return bundle(f.Bundled[1])
	case "rebundle":
		return bundle(f.Bundled[2])
	case "run":
		return fmt.Sprintf("%s, %d chunks", f.Judged[1], f.Judged[1].Chunks)
	case "rerun":
		return fmt.Sprintf("%s, %d chunks", f.Judged[2], f.Judged[2].Chunks)
	case "correct":
		return fmt.Sprintf("%d corrections, %.1f s of the teacher, %d chunks between them; why: %s",
			f.Corrected.Corrections, float64(f.Corrected.Ticks)/fps, f.Corrected.Chunks, counts(f.Corrected.Why))
	}
	return ""
}

// command returns the command for a round like this one, without paths, which belong to one
// machine.
func command(flags *flag.FlagSet) string {
	var given []string
	words := "make circle"
	flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "bin", "env", "out", "log":
		case "short":
			given = append(given, "--short")
		default:
			given = append(given, "--"+f.Name+" "+f.Value.String())
		}
	})
	if len(given) == 0 {
		return words
	}
	return words + " CIRCLE='" + strings.Join(given, " ") + "'"
}

// counts lists the words in alphabetical order, each with its count.
func counts(of map[string]int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, of[what]))
	}
	return strings.Join(parts, ", ")
}
