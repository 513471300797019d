package jitter

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// manySlices returns slices of the edge beside cyclictest. The edge's ticks are factor times as late as
// cyclictest's. The slices differ from each other, as on a machine that is disturbed for seconds.
func manySlices(n, ticks int, factor float64, seed uint64) (all []Slice) {
	random := rand.New(rand.NewPCG(seed, 7))
	lateness := func(scale float64) *Run {
		t := &bench.Tally{}
		for range ticks {
			t.AddUS(scale*20*math.Exp(0.5*random.NormFloat64()), 1)
		}
		return &Run{Count: Count{Ticks: t.Count(), Seconds: 1, Lateness: t.Quantiles(), Tally: t}, Granted: true}
	}
	for i := range n {
		disturbed := 1 + random.ExpFloat64()
		all = append(all, Slice{
			Round:     i + 1,
			Subject:   Edge,
			Form:      Beside,
			Run:       lateness(factor * disturbed),
			Reference: lateness(disturbed),
		})
	}
	return all
}

// Drawing every slice once gives the quantiles of all ticks.
func TestBlocksAreTheTally(t *testing.T) {
	all := manySlices(7, 3000, 1, 1)
	q, ticks := blocksOf(runs(all)).all()
	want := total(runs(all)).Tally
	for i, level := range levels {
		rttest.Want(t, q[i], want.Quantile(level), "p%v", 100*level)
	}
	rttest.Want(t, ticks, 21_000, "ticks")
}

// In 40 measurements the 95 % interval of the median and of p99 contains the true ratio about as often
// as it should. A disturbance hardly changes the ratio, because slices of the edge and of cyclictest
// from the same seconds are drawn together.
func TestIntervalsHoldTheRatio(t *testing.T) {
	const trials, truth = 40, 1.5
	held := map[string]int{}
	for seed := range uint64(trials) {
		_, ratio := compare(kind{Edge, Beside}, manySlices(20, 400, truth, seed), nil)
		for name, ends := range ratio.Intervals {
			if ends[0] <= truth && truth <= ends[1] {
				held[name]++
			}
			if ends[0] > ends[1] {
				t.Errorf("%s: %v", name, ends)
			}
		}
	}
	for _, name := range []string{"p50", "p99"} {
		if held[name] < trials*80/100 {
			t.Errorf("%s: %d of %d intervals hold the ratio", name, held[name], trials)
		}
	}
}

// A report has p99.9 and p99.99 only if at least one tick lies beyond them, and intervals only if there
// are at least five slices.
func TestTailsWantTicks(t *testing.T) {
	for _, tt := range []struct {
		slices, ticks int
		known         string
	}{{5, 1999, "p50 p99 p999"}, {5, 2000, "p50 p99 p999 p9999"}, {5, 100, "p50 p99"}, {4, 3000, ""}} {
		_, ratio := compare(kind{Edge, Beside}, manySlices(tt.slices, tt.ticks, 1, 3), nil)
		var known []string
		for _, name := range levelNames {
			if _, ok := ratio.Intervals[name]; ok {
				known = append(known, name)
			}
		}
		n := tt.slices * tt.ticks
		if got := strings.Join(known, " "); got != tt.known || (ratio.P999 > 0) != (n >= 1000) ||
			(ratio.P9999 > 0) != (n >= 10_000) {
			t.Errorf("%d slices of %d: intervals of %q, ratio %+v; want %q", tt.slices, tt.ticks, got, ratio, tt.known)
		}
	}
}

// writeReport writes a report of these slices, as --json does.
func writeReport(t *testing.T, all []Slice, change func(*Report)) string {
	t.Helper()
	r := newReport(Config{FPS: 60, Load: "none"}, 8e9, Reference{Version: "2.40"}, all)
	if change != nil {
		change(r)
	}
	text := rttest.Must(json.Marshal(r))(t)
	name := rttest.WriteFile(t, t.TempDir(), "report.json", text)
	return name
}

// Two measurements of one program are within the spread; a program that is 1.5 times as late is later
// beyond the spread, and in the other order earlier.
func TestCompare(t *testing.T) {
	before := writeReport(t, manySlices(20, 600, 1, 1), nil)
	for _, tt := range []struct {
		factor float64
		want   string
	}{{1, withinSpread}, {1.5, beyondLater}, {0.6, beyondEarlier}} {
		after := writeReport(t, manySlices(20, 600, tt.factor, 2), func(r *Report) { r.Load = "stress" })
		c := rttest.Must(Compare(before, after))(t)
		for _, x := range c.Changes {
			if x.Quantity == "ratio" && x.Quantile == "p50" && x.Verdict != tt.want {
				t.Errorf("factor %v: %+v, want %s", tt.factor, x, tt.want)
			}
		}
		if len(c.Changes) != 2*4 || (c.Beyond > 0) != (tt.factor != 1) {
			t.Errorf("factor %v: %d changes, %d beyond", tt.factor, len(c.Changes), c.Beyond)
		}
		if len(c.Differs) != 1 || c.Differs[0] != (Difference{"load", "none", "stress"}) {
			t.Errorf("differences %+v, want the load", c.Differs)
		}
		var text strings.Builder
		if err := c.WriteTable(&text); err != nil || !strings.Contains(text.String(), tt.want) {
			t.Errorf("table: %v\n%s", err, text.String())
		}
	}
	few := writeReport(t, manySlices(4, 600, 1, 1), nil)
	if c, err := Compare(before, few); err != nil || c.Changes[0].Verdict != noVerdict || c.Beyond != 0 {
		t.Errorf("four slices: %v, %+v", err, c)
	}
}

// Compare refuses a file that is not a report or has no ticks to compare, and names the file.
func TestCompareRefuses(t *testing.T) {
	good := writeReport(t, manySlices(5, 200, 1, 1), nil)
	file := func(text string) string {
		name := rttest.WriteFile(t, t.TempDir(), "x.json", text)
		return name
	}
	for name, bad := range map[string]string{
		"missing":       "/none/x.json",
		"empty":         file(""),
		"another bench": file(`{"bench":"bus"}`),
		"no slices":     file(`{"bench":"jitter"}`),
		"no histogram":  file(`{"bench":"jitter","slices":[{"subject":"edge","form":"apart","run":{"ticks":5}}]}`),
		"no run":        file(`{"bench":"jitter","slices":[{"subject":"edge","form":"apart"}]}`),
		"no cyclictest": file(
			`{"bench":"jitter","slices":[{"subject":"edge","form":"beside","run":{"histogram_us":{"5":9}}}]}`),
		"a strange kind": file(
			`{"bench":"jitter","slices":[{"subject":"moon","form":"apart","run":{"histogram_us":{"5":9}}}]}`),
		"negative": file(
			`{"bench":"jitter","slices":[{"subject":"edge","form":"apart","run":{"histogram_us":{"-5":9}}}]}`),
		"nothing in common": writeReport(t, []Slice{{Subject: Loop, Form: apart, Run: run(1, 2, 3)}}, nil),
	} {
		for _, files := range [][2]string{{good, bad}, {bad, good}} {
			rttest.Want(t, exit.Of(rttest.Err(Compare(files[0], files[1]))), exit.Config, "the code of %s", name)
		}
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add([]byte(`{"bench":"jitter","slices":[{"subject":"edge","form":"apart","run":{"histogram_us":{"5":9}}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) { // Property: no panic, and no accepted report differs from itself.
		r, err := parseReport(b)
		if err != nil {
			return
		}
		c := Comparison{}
		if c.judge(r, r); c.Beyond > 0 {
			t.Fatalf("a report differs from itself: %+v", c.Changes)
		}
	})
}
