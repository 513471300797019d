package report

import (
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestTable(t *testing.T) {
	table := Table{Left: 1, Columns: []string{"", "p50", "µs"}}
	table.Add("loop", "7", "12345")
	table.Add("whole edge", "1234", "")
	const want = "             p50     µs\nloop           7  12345\nwhole edge  1234\n"
	rttest.Want(t, table.String(), want, "table")
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}} {
		rttest.Want(t, Median(tt.in), tt.want, "Median(%v)", tt.in)
	}
}

func TestAxis(t *testing.T) {
	log := Axis{Low: 1, High: 10_000, From: 50, To: 450, Log: true}
	flat := Axis{Low: 100, High: 300, From: 262, To: 62} // a vertical axis, whose high end is at the top
	for _, tt := range []struct {
		name     string
		axis     Axis
		at, want float64
	}{
		{"the lower end", log, 1, 50}, {"the upper end", log, 10_000, 450}, {"between", log, 100, 250},
		{"beyond", log, 1e9, 450}, {"below", log, 0, 50},
		{"flat, the lower end", flat, 100, 262}, {"flat, between", flat, 150, 212}, {"flat, beyond", flat, 500, 62},
		{"no length", Axis{Low: 3, High: 3, From: 7, To: 9}, 3, 7},
	} {
		rttest.Want(t, tt.axis.At(tt.at), tt.want, "%s: At(%v)", tt.name, tt.at)
	}
	if got := log.ticks(); len(got) != 5 || got[0] != 1 || got[4] != 10_000 {
		t.Errorf("ticks = %v, want the powers of ten", got)
	}
	if got := flat.ticks(); len(got) != linearTicks+1 || got[0] != 100 || got[4] != 200 {
		t.Errorf("ticks = %v, want equal parts", got)
	}
}

func TestMicroseconds(t *testing.T) {
	for us, want := range map[float64]string{1: "1 us", 100: "100 us", 1000: "1 ms", 1062.5: "1062 us", 1e5: "100 ms",
		1e6: "1 s", 1.1e6: "1100 ms"} {
		rttest.Want(t, microseconds(us), want, "microseconds(%v)", us)
	}
}

// Every time between the ends of the axis is counted once, and no other.
func TestCounts(t *testing.T) {
	var tally bench.Tally
	for _, us := range []float64{0, 1, 5, 5, 99, 100, 101, 5000} {
		tally.AddUS(us, 1)
	}
	for _, tt := range []struct {
		axis Axis
		bins int
		want []float64
	}{
		{Axis{Low: 1, High: 1000, Log: true}, 3, []float64{4, 1, 2}},
		{Axis{Low: 0, High: 200}, 2, []float64{5, 2}},
		{Axis{Low: 50, High: 101}, 1, []float64{2}},
	} {
		got := Counts(&tally, tt.axis, tt.bins)
		for i, want := range tt.want {
			if got[i] != want {
				t.Errorf("%+v: counts %v, want %v", tt.axis, got, tt.want)
				break
			}
		}
	}
}

func TestHistogram(t *testing.T) {
	var tally bench.Tally
	tally.AddUS(10, 100)
	h := NewHistogram("a <b>", "label", XAxis(460, 1, 1000, true), 72, 100)
	h.Add("ours", "x", &tally, tally.Quantiles())
	svg := string(h.SVG())
	for what, n := range map[string]int{"<path": 1, "a &lt;b&gt;": 2,
		"x: p50 10, p99 10, max 10 us": 1, ">100 us<": 1} {
		rttest.Want(t, strings.Count(svg, what), n, "%q in\n%s: count", what, svg)
	}
}
