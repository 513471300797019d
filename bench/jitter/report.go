package jitter

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/report"
)

const (
	// disturbedShare is a share of the CPUs' time. When the host took more than this, a slice
	// describes the host rather than the subject.
	disturbedShare = 0.02

	farLate = time.Millisecond // least lateness of a tick that counts as far too late
	perMany = 10_000           // number of ticks for which the counts of far too late ticks are given
)

// Report is the result of Measure; its JSON has the table's content and the slices that it is
// computed from.
type Report struct {
	Bench     string          `json:"bench"`            // jitter
	Version   string          `json:"version"`          // version of bench
	Robot     string          `json:"robot"`            // the edge's
	Command   string          `json:"command"`          // command that measured it
	FPS       float64         `json:"fps"`              // Hz, ticks per second
	Load      string          `json:"load"`             // --load
	SliceS    float64         `json:"slice_s"`          // s, length of a slice
	Figure    *Figure         `json:"figure,omitempty"` // the one figure to quote
	Machine   bench.Machine   `json:"machine"`
	Reference Reference       `json:"cyclictest"`
	LeRobot   LeRobot         `json:"lerobot"`
	Results   []Result        `json:"results"`
	Slices    []Slice         `json:"slices"`
	Retried   []string        `json:"retried,omitempty"` // why a subject did not start and was started again
	Failed    []string        `json:"failed,omitempty"`  // slices that broke off and are left out, with the reason
	Server    json.RawMessage `json:"server,omitempty"`  // lean-server's summary
}

// Figure is the one figure to quote: the lateness of the whole edge beside cyclictest in the same
// seconds. If the edge was not measured, it is the lateness of the bare loop.
type Figure struct {
	Subject       string  `json:"subject"`           // its subject
	Ticks         uint64  `json:"ticks"`             // its ticks
	P99           float64 `json:"p99_us"`            // us, its lateness
	CyclictestP99 float64 `json:"cyclictest_p99_us"` // us, p99 of cyclictest in the same seconds
	Ratio         Ratio   `json:"ratio"`             // ratio, of the two
}

// Ratio is a subject's lateness as a multiple of cyclictest's. It has no ratio of the longest
// latenesses, which would mean nothing on a virtual machine.
type Ratio struct {
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999,omitempty"`  // absent with fewer than 1,000 ticks of either
	P9999 float64 `json:"p9999,omitempty"` // absent with fewer than 10,000
	// [quantile] the ends of its 95 % interval, from 2,000 draws of whole slices; absent with fewer than five slices
	Intervals map[string]Interval `json:"intervals_95,omitempty"`
}

// Result adds up the slices of one subject in one form.
type Result struct {
	Subject string  `json:"subject"`     // cyclictest, loop, edge or lerobot
	Form    string  `json:"form"`        // apart, or beside cyclictest
	Slices  int     `json:"slices"`      // slices that the result adds up
	Steal   float64 `json:"steal_share"` // share, of all CPUs' time, taken by the host
	Total
	// cyclictest's results in the same seconds, by which the ratio divides; absent for apart, whose ratio divides by
	// the result of cyclictest apart
	Reference *Total `json:"cyclictest,omitempty"`
	Ratio     *Ratio `json:"ratio,omitempty"` // ratio, to cyclictest
	// the slices that the host did not disturb; absent if these are all slices or none
	Undisturbed *Calm   `json:"undisturbed,omitempty"`
	Disturbed   int     `json:"disturbed_slices"`        // slices in which the host took more than 2 % of the CPUs
	Starved     uint64  `json:"starved_ticks,omitempty"` // ticks on which the edge had no action
	BusP50      float64 `json:"bus_us_p50,omitempty"`    // us, median over the slices
	BusP99      float64 `json:"bus_us_p99,omitempty"`    // us, median over the slices
	// [phase] us, parts of a tick: medians over the slices, and the longest
	Phases  Phases `json:"phases_us,omitempty"`
	Refused string `json:"real_time_refused,omitempty"` // why the kernel refused real time
}

// Total covers one program over several slices.
type Total struct {
	Count
	Pooled bool `json:"pooled"` // always true: the quantiles are of all ticks
	// ticks, how many of 10,000 started more than 1 ms late
	FarLate *float64 `json:"over_1ms_per_10000,omitempty"`
}

// Calm is a result without the slices that the host disturbed.
type Calm struct {
	Slices   int             `json:"slices"`          // number of them
	Lateness bench.Quantiles `json:"lateness_us"`     // us, from a tick's deadline to its start
	Ratio    *Ratio          `json:"ratio,omitempty"` // ratio, to cyclictest
}

func newReport(cfg Config, length time.Duration, reference Reference, all []Slice) *Report {
	r := &Report{
		Bench:     "jitter",
		Version:   cfg.Version,
		Command:   cfg.Command,
		Robot:     cfg.Robot,
		FPS:       cfg.FPS,
		Load:      cfg.Load,
		SliceS:    length.Seconds(),
		Reference: reference,
		Slices:    all,
	}
	alone := slicesOf(all, Cyclictest, apart)
	for _, k := range allKinds {
		if mine := slicesOf(all, k.subject, k.form); len(mine) > 0 {
			r.Results = append(r.Results, newResult(k, mine, alone))
		}
	}
	r.Figure = figureOf(r.Results)
	return r
}

func slicesOf(all []Slice, subject, form string) (some []Slice) {
	for _, s := range all {
		if s.Subject == subject && s.Form == form {
			some = append(some, s)
		}
	}
	return some
}

// newResult adds up the slices of one kind, which are in mine. The parameter alone has the slices in which cyclictest
// ran without a subject.
func newResult(k kind, mine, alone []Slice) Result {
	r := Result{
		Subject: k.subject,
		Form:    k.form,
		Slices:  len(mine),
		Total:   total(runs(mine)),
	}
	var busP50, busP99 []float64
	calm := []Slice(nil)
	for _, s := range mine {
		r.Steal += s.StealShare / float64(len(mine))
		r.Starved += s.Run.Starved
		if s.Run.Bus != nil {
			busP50, busP99 = append(busP50, s.Run.Bus.P50), append(busP99, s.Run.Bus.P99)
		}
		if k.subject != Cyclictest && k.subject != leRobotLoop && !s.Run.Granted {
			r.Refused = s.Run.Why
		}
		if s.StealShare <= disturbedShare {
			calm = append(calm, s)
		}
	}
	r.BusP50, r.BusP99 = report.Median(busP50), report.Median(busP99)
	r.Phases = phasesOf(runs(mine))
	r.Reference, r.Ratio = compare(k, mine, alone)
	r.Disturbed = len(mine) - len(calm)
	if r.Disturbed > 0 && len(calm) > 0 {
		_, ratio := compare(k, calm, slices.DeleteFunc(slices.Clone(alone), func(s Slice) bool {
			return s.StealShare > disturbedShare
		}))
		r.Undisturbed = &Calm{len(calm), total(runs(calm)).Lateness, ratio}
	}
	return r
}

// compare divides the lateness in mine by that of cyclictest: in the same seconds, or, for a subject that ran without
// cyclictest beside it, in the slices of the parameter alone.
func compare(k kind, mine, alone []Slice) (*Total, *Ratio) {
	of := referencesOf(k, mine, alone)
	if len(of) == 0 {
		return nil, nil
	}
	subject, reference := total(runs(mine)), total(of)
	ratio := ratioOf(subject.Lateness, reference.Lateness)
	if ratio != nil {
		known := knownLevels(min(subject.Ticks, reference.Ticks))
		if known < 4 {
			ratio.P9999 = 0
		}
		if known < 3 {
			ratio.P999 = 0
		}
		ratio.Intervals = newSpread(runs(mine), of, k.form == Beside, 0).intervals(max(known, 2))
	}
	if k.form == apart {
		return nil, ratio
	}
	return &reference, ratio
}

// referencesOf returns the runs of cyclictest with which the slices mine are compared. It returns none for cyclictest
// itself.
func referencesOf(k kind, mine, alone []Slice) (of []*Run) {
	switch {
	case k.subject == Cyclictest:
		return nil
	case k.form == apart:
		return runs(alone)
	}
	for _, s := range mine {
		of = append(of, s.Reference)
	}
	return of
}

// ratioOf returns nil when the reference is too small to divide by.
func ratioOf(subject, reference bench.Quantiles) *Ratio {
	if reference.P50 < 1 || reference.P99 < 1 {
		return nil
	}
	return &Ratio{
		P50:   subject.P50 / reference.P50,
		P99:   subject.P99 / reference.P99,
		P999:  subject.P999 / reference.P999,
		P9999: subject.P9999 / max(reference.P9999, 1),
	}
}

// quantiles returns the ratio at each level; 0 where it is missing.
func (r *Ratio) quantiles() quantiles { return quantiles{r.P50, r.P99, r.P999, r.P9999} }

func runs(of []Slice) (all []*Run) {
	for _, s := range of {
		all = append(all, s.Run)
	}
	return all
}

func total(of []*Run) (t Total) {
	t.Pooled, t.Tally = true, new(bench.Tally)
	for _, r := range of {
		t.Ticks += r.Ticks
		t.Seconds += r.Seconds
		t.Threads = r.Threads
		t.OverrunsOwn, t.OverrunsHost = sum(t.OverrunsOwn, r.OverrunsOwn), sum(t.OverrunsHost, r.OverrunsHost)
		t.Lateness.Max = max(t.Lateness.Max, r.Lateness.Max)
		t.Tally.Merge(r.Tally)
	}
	t.Lateness = t.Tally.Quantiles().UpTo(t.Lateness.Max)
	if n := t.Tally.Count(); n > 0 {
		far := float64(t.Tally.Above(farLate)) / float64(n) * perMany
		t.FarLate = &far
	}
	return t
}

func sum(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return b
	}
	both := *a + *b
	return &both
}

// figureOf returns the edge's figure; without a result of the edge it returns the bare loop's.
func figureOf(results []Result) (f *Figure) {
	for _, r := range results {
		if r.Form == Beside && r.Ratio != nil && (f == nil || r.Subject == Edge) {
			f = &Figure{r.Subject, r.Ticks, r.Lateness.P99, r.Reference.Lateness.P99, *r.Ratio}
		}
	}
	return f
}
