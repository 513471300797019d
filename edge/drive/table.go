package drive

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
)

// Asked returns the cause of a requested end as text. episodes is the number of planned episodes,
// and held the number of ticks on which no joint was driven.
func (r *Run) Asked(episodes int, held uint64) string {
	text := "stopped by signal"
	switch r.Cause() {
	case Itself:
		text = "came to its end"
	case Duration:
		text = fmt.Sprintf("ran for %v as asked", r.cfg.Duration)
	case Operator:
		text = "stopped by an operator"
	case Episodes:
		text = fmt.Sprintf("recorded %d episodes as asked", episodes)
		if episodes == 1 {
			text = "recorded 1 episode as asked"
		}
	}
	if 2*held > r.Stats().Ticks { // no joint was driven for most of the run
		all := slices.Compact(slices.Sorted(maps.Values(r.complaints())))
		text += fmt.Sprintf("; no joint was driven for %.0f s: %s",
			(time.Duration(held) * r.cfg.Loop.Period).Seconds(),
			cmp.Or(strings.Join(all, ", "), "the motors complained"))
	}
	return text
}

// EndingOf returns the summary's exit for err. If err is nil, the end was requested, and asked is its cause.
func EndingOf(err error, asked string) Ending {
	if err != nil {
		return Ending{int(exit.Of(err)), err.Error()}
	}
	return Ending{int(exit.Clean), asked}
}

// WriteJSON writes a summary, one object, indented.
func WriteJSON(w io.Writer, summary any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(summary)
}

// Row writes one row of a table.
type Row func(name, format string, args ...any)

// WriteTable writes a summary for people. It calls special, which writes the rows that only this
// source of motion has.
func WriteTable(w io.Writer, schedule string, s *Status, t *Totals, special func(Row)) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(table, name+"\t"+format+"\n", args...) }
	row("robot", "%s, %.0f s at %.0f Hz, %s", s.ID, t.Seconds, s.FPS, schedule)
	row("ticks", "%d, overruns own %d, host %d", s.Ticks, s.OverrunsOwn, s.OverrunsHost)
	row("lateness", "p50 %.0f us, p99 %.0f us, p99.9 %.0f us, max %.0f us", s.LatenessUS.P50, s.LatenessUS.P99,
		s.LatenessUS.P999, s.LatenessUS.Max)
	row("bus", "%d cycles, p50 %.0f us, p99 %.0f us, lost %d, corrupt %d", t.Bus.Cycles, t.Bus.P50, t.Bus.P99,
		t.Bus.Lost, t.Bus.Corrupt)
	special(row)
	for _, name := range slices.Sorted(maps.Keys(t.Frames)) {
		f := t.Frames[name]
		row("camera "+name, "%d frames, %d dropped, age p99 %.1f ms%s", f.Captured, f.Dropped, f.Age, f.problems())
	}
	if b := t.Base; b != nil {
		row("base", "%d wheels stalled, %d slipped", b.Stalls, b.Slips)
	}
	if p := s.Episodes; p != nil {
		row("episodes", "%d: %d success, %d failure, %d timeout, %d discard, %d rerecord", p.Number, p.Success,
			p.Failure, p.Timeout, p.Discard, p.Rerecord)
	}
	if p := t.Page; p != nil {
		row("page", "%d connections, %d requests, %d pictures, %d refused, %d collections", p.Connections, p.Requests,
			p.Pictures, p.Refused, p.Collections)
	}
	if r := t.Record; r != nil {
		row("record", "%s", recording.Line(r))
	}
	if s.RT.Granted {
		row("real time", "granted")
	} else {
		row("real time", "no: %s", s.RT.Why)
	}
	if len(t.Complaints) > 0 {
		row("complaints", "%s; no joint was driven on %d ticks", List(t.Complaints, "%s"), t.HeldAll)
	}
	row("states", "%s", List(s.InState, "%.1f s"))
	row("targets", "%d reached, %d collisions, %d timed out", s.Targets, s.Collisions, t.Timeouts)
	row("exit", "%d, %s", t.Exit.Code, t.Exit.Reason)
	return table.Flush()
}

// List formats a map's non-zero values in the order of their names.
func List[V uint64 | float64 | string](m map[string]V, format string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if m[name] != *new(V) {
			out = append(out, name+" "+fmt.Sprintf(format, m[name]))
		}
	}
	return cmp.Or(strings.Join(out, ", "), "none")
}

// problems lists the problems of a camera, for the end of a line.
func (f *Frames) problems() (text string) {
	for _, c := range []struct {
		n    uint64
		what string
	}{{f.Broken, "broken"}, {f.Undecoded, "undecodable"}, {f.Warned, "with stray bytes"}, {f.Repeated, "repeated"},
		{f.Restarts, "restarts"}, {f.Stale, "observations with a stale picture"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	return text
}
