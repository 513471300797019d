package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"edgert/bench"
)

// Report is what Measure found; its JSON is what the table shows, and the turns
// it comes from.
type Report struct {
	Bench      string        `json:"bench"`
	Version    string        `json:"version"`
	Rounds     int           `json:"rounds"`
	Machine    bench.Machine `json:"machine"`
	Missing    []string      `json:"missing,omitempty"`
	RoundTrips []Result      `json:"round_trips"`
	Floods     []Result      `json:"floods"`
	Turns      []Turn        `json:"turns"`
}

// Result adds up the turns of one subject on one path at one size.
type Result struct {
	Subject string   `json:"subject"`
	Path    string   `json:"path"`
	Bytes   int      `json:"bytes"`
	Count   int      `json:"count"`
	Lost    int      `json:"lost,omitempty"`
	P50     float64  `json:"p50_us,omitempty"` // of all round trips
	P99     float64  `json:"p99_us,omitempty"`
	Min     float64  `json:"min_us,omitempty"`
	Rate    float64  `json:"per_s,omitempty"` // messages of a flood, median over the turns
	MBytes  float64  `json:"mb_per_s,omitempty"`
	XRust   float64  `json:"x_rust,omitempty"` // p50, or rate, over Rust's in the same round: median
	XTCP    float64  `json:"x_tcp,omitempty"`
	CPU     float64  `json:"cpu_us"`            // of both ends, for each round trip or message; median over the turns
	Mallocs *float64 `json:"mallocs,omitempty"` // of both ends, for each
}

func newReport(cfg Config, machine bench.Machine, missing []string, turns []Turn) *Report {
	r := &Report{Bench: "wire", Version: cfg.Version, Machine: machine, Missing: missing, Turns: turns}
	for _, t := range turns {
		r.Rounds = max(r.Rounds, t.Round)
	}
	for _, path := range []string{Direct, Routed} {
		for _, size := range cfg.Sizes {
			for _, subject := range []string{TCP, Native, Rust, Python} {
				for _, flood := range []bool{false, true} {
					mine := turnsOf(turns, subject, path, size, flood)
					if len(mine) == 0 {
						continue
					}
					res := newResult(mine)
					res.XRust = ratio(mine, turnsOf(turns, Rust, path, size, flood))
					res.XTCP = ratio(mine, turnsOf(turns, TCP, Direct, size, flood))
					if flood {
						r.Floods = append(r.Floods, res)
					} else {
						r.RoundTrips = append(r.RoundTrips, res)
					}
				}
			}
		}
	}
	return r
}

func turnsOf(turns []Turn, subject, path string, size int, flood bool) (some []Turn) {
	for _, t := range turns {
		if t.Subject == subject && t.Path == path && t.Bytes == size && t.Flood == flood {
			some = append(some, t)
		}
	}
	return some
}

func newResult(mine []Turn) Result {
	first := mine[0]
	r := Result{Subject: first.Subject, Path: first.Path, Bytes: first.Bytes}
	var all []int64
	var rates, cpus []float64
	var mallocs uint64
	counted := true
	for _, t := range mine {
		r.Count += t.Count
		r.Lost += t.Lost
		all = append(all, t.ns...)
		rates = append(rates, t.rate())
		cpus = append(cpus, t.CPU)
		if counted = counted && t.Mallocs != nil; counted {
			mallocs += *t.Mallocs
		}
	}
	r.CPU = median(cpus)
	if counted {
		each := float64(mallocs) / float64(r.Count)
		r.Mallocs = &each
	}
	if first.Flood {
		r.Rate = median(rates)
		r.MBytes = r.Rate * float64(r.Bytes) / 1e6
		return r
	}
	slices.Sort(all)
	us := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))]) / 1e3 }
	r.P50, r.P99, r.Min = us(0.5), us(0.99), us(0)
	return r
}

// rate is messages in a second.
func (t Turn) rate() float64 { return float64(t.Count-t.Lost) / t.Seconds }

// ratio compares turns of the same round: the median of the quotients of the
// median round trips, or of the rates; 0 without any.
func ratio(mine, theirs []Turn) float64 {
	var all []float64
	for _, m := range mine {
		for _, t := range theirs {
			switch {
			case m.Round != t.Round:
			case m.Flood:
				all = append(all, m.rate()/t.rate())
			default:
				all = append(all, m.P50/t.P50)
			}
		}
	}
	return median(all)
}

// median is the middle, of an even number the mean of the two; 0 of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// WriteJSON writes the report, one object, indented.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

var (
	tripColumns  = []string{"round trip", "path", "bytes", "trips", "min us", "p50 us", "p99 us", "x rust", "x tcp", "cpu us", "mallocs"}
	floodColumns = []string{"one way", "path", "bytes", "messages", "lost", "per s", "MB/s", "x rust", "x tcp", "cpu us", "mallocs"}
)

func (r *Result) tripCells() []string {
	return append([]string{r.Subject, r.Path, fmt.Sprint(r.Bytes), fmt.Sprint(r.Count), fmt.Sprintf("%.0f", r.Min),
		fmt.Sprintf("%.0f", r.P50), fmt.Sprintf("%.0f", r.P99)}, r.lastCells()...)
}

func (r *Result) floodCells() []string {
	return append([]string{r.Subject, r.Path, fmt.Sprint(r.Bytes), fmt.Sprint(r.Count), fmt.Sprint(r.Lost),
		fmt.Sprintf("%.0f", r.Rate), fmt.Sprintf("%.0f", r.MBytes)}, r.lastCells()...)
}

func (r *Result) lastCells() []string {
	quotient := func(x float64) string {
		if x == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", x)
	}
	mallocs := ""
	if r.Mallocs != nil {
		mallocs = fmt.Sprintf("%.2f", *r.Mallocs)
	}
	return []string{quotient(r.XRust), quotient(r.XTCP), fmt.Sprintf("%.1f", r.CPU), mallocs}
}

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "bench wire\t%d rounds\n", r.Rounds)
	for _, fact := range r.Machine.Rows() {
		fmt.Fprintf(t, "%s\t%s\n", fact[0], fact[1])
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := table(w, tripColumns, r.RoundTrips, (*Result).tripCells); err != nil {
		return err
	}
	if err := table(w, floodColumns, r.Floods, (*Result).floodCells); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nx rust and x tcp: against the official Rust implementation on the same path, and a plain TCP echo, in the same rounds (median of the rounds).\n"+
		"cpu us and mallocs: both ends together, for each round trip or message, without the router.\n")
	for _, m := range r.Missing {
		fmt.Fprintf(w, "%s\n", m)
	}
	return nil
}

func table(w io.Writer, columns []string, rows []Result, cells func(*Result) []string) error {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	write := func(cells []string) {
		fmt.Fprintf(t, "%-10s\t%s\t", cells[0], cells[1])
		for _, c := range cells[2:] {
			fmt.Fprintf(t, "%s\t", c)
		}
		fmt.Fprintln(t)
	}
	write(columns)
	for i := range rows {
		write(cells(&rows[i]))
	}
	return t.Flush()
}
