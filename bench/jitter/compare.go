package jitter

import (
	"fmt"
	"io"
	"slices"

	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/userfile"
)

const (
	maxReport = 256 << 20 // bytes; a day at 60 Hz has 100 MB

	// compared is the confidence of a whole comparison. When two programs are equal, this share of
	// their comparisons finds no quantile that differs.
	compared = 0.95
)

// Verdicts on a change.
const (
	withinSpread  = "within the spread"
	beyondLater   = "beyond the spread: later"
	beyondEarlier = "beyond the spread: earlier"
	noVerdict     = "unknown: fewer than five slices"
)

// Comparison is two reports side by side.
type Comparison struct {
	Bench   string       `json:"bench"`   // jitter-compare
	Old     string       `json:"old"`     // file of the older report
	New     string       `json:"new"`     // file of the newer report
	Differs []Difference `json:"differs"` // facts in which the reports differ, besides the figures
	Changes []Change     `json:"changes"`
	Beyond  int          `json:"beyond"` // changes beyond the spread
}

// Difference is a fact of the measurement or the machine in which two reports differ.
type Difference struct {
	Fact string `json:"fact"` // its name
	Old  string `json:"old"`  // its value in the older report
	New  string `json:"new"`  // its value in the newer report
}

// Change is one quantile in both reports.
type Change struct {
	Subject  string    `json:"subject"`            // cyclictest, loop, edge or lerobot
	Form     string    `json:"form"`               // apart, or beside cyclictest
	Quantity string    `json:"quantity"`           // lateness in us, or ratio to cyclictest's
	Quantile string    `json:"quantile"`           // p50, p99, p999 or p9999
	Old      float64   `json:"old"`                // ratio, or us of lateness, in the older report
	New      float64   `json:"new"`                // ratio, or us of lateness, in the newer report
	Factor   float64   `json:"factor"`             // ratio, newer over older
	Interval *Interval `json:"interval,omitempty"` // ends of the factor's interval; absent with too few slices
	Verdict  string    `json:"verdict"`            // within the spread, beyond the spread: later or earlier, or unknown
}

// Compare compares two files of `bench jitter --json`. Its errors have exit code 3.
func Compare(oldFile, newFile string) (*Comparison, error) {
	older, err := readReport(oldFile)
	if err != nil {
		return nil, err
	}
	newer, err := readReport(newFile)
	if err != nil {
		return nil, err
	}
	c := &Comparison{
		Bench:   "jitter-compare",
		Old:     oldFile,
		New:     newFile,
		Differs: differences(older, newer),
	}
	c.judge(older, newer)
	if len(c.Changes) == 0 {
		return nil, exit.Errorf(exit.Config, "%s and %s have no subject in common with ticks enough for a quantile",
			oldFile, newFile)
	}
	return c, nil
}

func readReport(name string) (*Report, error) {
	text, err := userfile.Read(name, maxReport)
	if err != nil {
		return nil, exit.With(exit.Config, err)
	}
	r, err := parseReport(text)
	if err != nil {
		return nil, exit.Errorf(exit.Config, "%s: want a whole file of bench jitter --json: %w", name, err)
	}
	return r, nil
}

// parseReport reads a report and checks the part of it that Compare uses.
func parseReport(text []byte) (*Report, error) {
	r := &Report{}
	if err := userfile.ParseJSON(text, r); err != nil {
		return nil, err
	}
	if r.Bench != "jitter" {
		return nil, fmt.Errorf("its bench is %q", r.Bench)
	}
	for i, s := range r.Slices {
		if !slices.Contains(allKinds, kind{s.Subject, s.Form}) || !s.Run.counted() ||
			s.Form == Beside && !s.Reference.counted() {
			return nil, fmt.Errorf("slice %d, %q %q, has no histogram of its ticks", i+1, s.Subject, s.Form)
		}
	}
	return r, nil
}

// judge compares every quantile that both reports show. With more quantiles the interval of each is wider, so that all
// of them together have the confidence in the constant compared.
func (c *Comparison) judge(older, newer *Report) {
	count := 0
	var judges []func(share float64) []Change
	for _, k := range allKinds {
		a, b := newSide(k, older.Slices, 1), newSide(k, newer.Slices, 2)
		if a == nil || b == nil {
			continue
		}
		p := &pair{
			kind:   k,
			old:    a,
			new:    b,
			levels: knownLevels(min(a.ticks, b.ticks)),
		}
		for _, q := range p.quantities() {
			judges = append(judges, func(share float64) []Change { return p.changes(&q, share) })
			count += p.levels
		}
	}
	for _, changes := range judges {
		c.Changes = append(c.Changes, changes(1-(1-compared)/float64(count))...)
	}
	for i := range c.Changes {
		if v := c.Changes[i].Verdict; v == beyondLater || v == beyondEarlier {
			c.Beyond++
		}
	}
}

func (r *Run) counted() bool { return r != nil && r.Tally != nil && r.Tally.Count() > 0 }

// differences lists the facts of measurement and machine in which the reports differ.
func differences(older, newer *Report) []Difference {
	facts := func(r *Report) [][]string {
		return append([][]string{
			{"version", r.Version}, {"robot", r.Robot}, {"ticks per second", fmt.Sprint(r.FPS)}, {"load", r.Load},
			{"slice", fmt.Sprintf("%g s", r.SliceS)}, {"cyclictest", r.Reference.Version},
			{"LeRobot", r.LeRobot.Version},
		}, r.Machine.Rows()...)
	}
	values := map[string]string{}
	for _, row := range facts(newer) {
		values[row[0]] = row[1]
	}
	all := []Difference{}
	for _, row := range facts(older) {
		if value := values[row[0]]; value != row[1] {
			all = append(all, Difference{row[0], row[1], value})
		}
	}
	return all
}

// side is one report's slices of a kind.
type side struct {
	*spread
	ticks       uint64
	late, ratio quantiles
}

// newSide returns the side of kind k; nil if there is no slice of that kind.
func newSide(k kind, all []Slice, seed uint64) *side {
	mine := slicesOf(all, k.subject, k.form)
	if len(mine) == 0 {
		return nil
	}
	of := referencesOf(k, mine, slicesOf(all, Cyclictest, apart))
	s := &side{spread: newSpread(runs(mine), of, k.form == Beside, seed)}
	s.late, s.ticks = s.mine.all()
	if s.of != nil {
		reference, ticks := s.of.all()
		s.ratio, s.ticks = s.late.over(reference, leastUS), min(s.ticks, ticks)
	}
	return s
}

// all returns the quantiles and the number of all ticks.
func (b *blocks) all() (q quantiles, ticks uint64) {
	once := make([]uint64, len(b.ticks))
	for i, n := range b.ticks {
		once[i] = 1
		ticks += n
	}
	return b.quantiles(once), ticks
}

// pair is a kind in both reports.
type pair struct {
	kind     kind
	old, new *side
	levels   int // number of levels that the ticks of both reports show
}

const quantityLateness = "lateness"

// quantity is a compared quantity, such as the lateness, with its quantiles in the old and the new report.
type quantity struct {
	name     string
	least    float64 // smallest divisor
	old, new quantiles
	draws    []quantiles // draws of the factors, newer over older
}

// quantities returns the lateness and, if both reports have a cyclictest, the ratio to its lateness. If both
// reports have enough slices, each quantity also has draws of the slices of both.
func (p *pair) quantities() []quantity {
	all := []quantity{{name: quantityLateness, least: leastUS, old: p.old.late, new: p.new.late}}
	if p.old.of != nil && p.new.of != nil {
		all = append(all, quantity{
			name:  "ratio",
			least: leastRatio,
			old:   p.old.ratio,
			new:   p.new.ratio,
		})
	}
	if !p.old.enough() || !p.new.enough() {
		return all
	}
	for range resamples {
		var older, newer [2]quantiles
		older[0], older[1] = p.old.sample()
		newer[0], newer[1] = p.new.sample()
		for i := range all {
			all[i].draws = append(all[i].draws, newer[i].over(older[i], all[i].least))
		}
	}
	return all
}

// changes judges each quantile. A quantile has changed if 1 is outside the range of the middle
// share of its drawn factors.
func (p *pair) changes(q *quantity, share float64) (all []Change) {
	factors := q.new.over(q.old, q.least)
	for i := range p.levels {
		c := Change{
			Subject:  p.kind.subject,
			Form:     p.kind.form,
			Quantity: q.name,
			Quantile: levelNames[i],
			Old:      q.old[i],
			New:      q.new[i],
			Factor:   factors[i],
			Verdict:  noVerdict,
		}
		if q.draws != nil {
			ends := middle(q.draws, i, share)
			c.Interval, c.Verdict = &ends, verdictOn(ends)
		}
		all = append(all, c)
	}
	return all
}

func verdictOn(ends Interval) string {
	switch {
	case ends[0] > 1:
		return beyondLater
	case ends[1] < 1:
		return beyondEarlier
	}
	return withinSpread
}

// WriteTable writes the comparison for a terminal.
func (c *Comparison) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "bench jitter --compare: %s, then %s\n", c.Old, c.New)
	if len(c.Differs) > 0 {
		differs := report.Table{Left: 3, Columns: []string{"differs", "old", "new"}}
		for _, d := range c.Differs {
			differs.Add(d.Fact, d.Old, d.New)
		}
		fmt.Fprintf(w, "\n%v", differs)
	}
	t := report.Table{Left: 2, Columns: []string{"", "", "old", "new", "new / old", "interval", "verdict"}}
	for i := range c.Changes {
		x := &c.Changes[i]
		ends, digits := "", "%.2f"
		if x.Quantity == quantityLateness {
			digits = "%.0f"
		}
		if x.Interval != nil {
			ends = fmt.Sprintf("%.2f to %.2f", x.Interval[0], x.Interval[1])
		}
		t.Add(subjectTitles[x.Subject]+", "+x.Form, x.Quantity+" "+levelTexts[slices.Index(levelNames[:], x.Quantile)],
			fmt.Sprintf(digits, x.Old), fmt.Sprintf(digits, x.New), fmt.Sprintf("%.2f", x.Factor), ends, x.Verdict)
	}
	_, err := fmt.Fprintf(w, "\n%v\n%d of %d are beyond the spread. Lateness in us; the interval of new / old is "+
		"that of "+
		"%d draws of whole slices, so wide that\ntwo runs of one program on one machine differ in none of them with a "+
		"probability of %.0f %%.\n", t, c.Beyond, len(c.Changes), resamples, 100*compared)
	return err
}
