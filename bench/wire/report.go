package wire

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/report"
)

// Report is the result of Measure; its JSON has the table's content and the turns that it is
// computed from.
type Report struct {
	Bench      string        `json:"bench"`   // wire
	Version    string        `json:"version"` // version of bench
	Rounds     int           `json:"rounds"`  // rounds of all subjects
	Machine    bench.Machine `json:"machine"`
	Missing    []string      `json:"missing,omitempty"` // subjects that could not take part, and how to get them
	RoundTrips []Result      `json:"round_trips"`
	Floods     []Result      `json:"floods"` // one way, as fast as possible
	Turns      []Turn        `json:"turns"`  // results of one subject in one round
}

// Result adds up the turns of one subject on one path at one size.
type Result struct {
	Subject string  `json:"subject"`            // native (ours), rust, python or tcp (no protocol)
	Path    string  `json:"path"`               // direct or router
	Bytes   int     `json:"bytes"`              // bytes, of a message
	Count   int     `json:"count"`              // messages
	Lost    int     `json:"lost,omitempty"`     // lost messages
	P50     float64 `json:"p50_us,omitempty"`   // us, median of all round trips
	P99     float64 `json:"p99_us,omitempty"`   // us, 99th percentile
	Min     float64 `json:"min_us,omitempty"`   // us, the shortest
	Rate    float64 `json:"per_s,omitempty"`    // 1/s, messages of a flood, median over the turns
	MBytes  float64 `json:"mb_per_s,omitempty"` // MB/s, of a flood
	XRust   float64 `json:"x_rust,omitempty"`   // ratio, median time or rate to Rust's in the same round
	XTCP    float64 `json:"x_tcp,omitempty"`    // ratio, the same to TCP's
	// us, CPU time of both ends for each round trip or message; median over the turns
	CPU     float64  `json:"cpu_us"`
	Mallocs *float64 `json:"mallocs,omitempty"` // objects, allocated by both ends for each round trip or message
}

func newReport(cfg Config, machine bench.Machine, missing []string, turns []Turn) *Report {
	r := &Report{
		Bench:   "wire",
		Version: cfg.Version,
		Machine: machine,
		Missing: missing,
		Turns:   turns,
	}
	for _, t := range turns {
		r.Rounds = max(r.Rounds, t.Round)
	}
	for _, path := range []string{direct, routed} {
		for _, size := range cfg.Sizes {
			for _, subject := range []string{tcp, native, rust, Python} {
				for _, flood := range []bool{false, true} {
					mine := turnsOf(turns, subject, path, size, flood)
					if len(mine) == 0 {
						continue
					}
					res := newResult(mine)
					res.XRust = ratio(mine, turnsOf(turns, rust, path, size, flood))
					res.XTCP = ratio(mine, turnsOf(turns, tcp, direct, size, flood))
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
	r.CPU = report.Median(cpus)
	if counted {
		each := float64(mallocs) / float64(r.Count)
		r.Mallocs = &each
	}
	if first.Flood {
		r.Rate = report.Median(rates)
		r.MBytes = r.Rate * float64(r.Bytes) / 1e6
		return r
	}
	slices.Sort(all)
	us := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))]) / 1e3 }
	r.P50 = us(0.5)
	r.P99 = us(0.99)
	r.Min = us(0)
	return r
}

func (t Turn) rate() float64 { return float64(t.Count-t.Lost) / t.Seconds }

// ratio returns the median over the rounds of a quotient, mine by theirs: of the rates for floods,
// otherwise of the median times. It returns 0 if the two share no round.
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
	return report.Median(all)
}

// row adds a row to t, the table of round trips or of floods; a, b and c fill the three columns that only t has.
func (r *Result) row(t *report.Table, a, b, c float64) {
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
	t.Addf("%s\t%s\t%d\t%d\t%.0f\t%.0f\t%.0f\t%s\t%s\t%.1f\t%s", r.Subject, r.Path, r.Bytes, r.Count, a, b, c,
		quotient(r.XRust), quotient(r.XTCP), r.CPU, mallocs)
}

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	trips := report.Table{Left: 2, Columns: []string{"round trip", "path", "bytes", "trips", "min us", "p50 us",
		"p99 us",
		"x rust", "x tcp", "cpu us", "mallocs"}}
	for _, res := range r.RoundTrips {
		res.row(&trips, res.Min, res.P50, res.P99)
	}
	floods := report.Table{Left: 2, Columns: []string{"one way", "path", "bytes", "messages", "lost", "per s", "MB/s",
		"x rust", "x tcp", "cpu us", "mallocs"}}
	for _, res := range r.Floods {
		res.row(&floods, float64(res.Lost), res.Rate, res.MBytes)
	}
	_, err := fmt.Fprintf(w, "%v\n%v\n%v\nx rust and x tcp: against the official Rust implementation on the same "+
		"path, and a plain TCP "+
		"echo, in the same rounds (median of the rounds).\n"+
		"cpu us and mallocs: both ends together, for each round trip or message, without the router.\n%s",
		report.Facts("bench wire", fmt.Sprintf("%d rounds", r.Rounds), r.Machine.Rows()), trips, floods,
		strings.Join(append(r.Missing, ""), "\n"))
	return err
}
