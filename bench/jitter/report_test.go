package jitter

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// run returns a program's run with one tick of each lateness.
func run(us ...float64) *Run {
	t := tallyOf(us...)
	var own uint64 = 1
	return &Run{
		Count:   Count{Ticks: t.Count(), Seconds: 1, Lateness: t.Quantiles(), Tally: t, OverrunsOwn: &own},
		Granted: true,
	}
}

// edgeRun returns a run of the whole edge.
func edgeRun(us ...float64) *Run {
	r := run(us...)
	r.Bus = &Bus{P50: 1000, P99: 2000}
	return r
}

func sampleReport() *Report {
	all := []Slice{
		{Round: 1, Subject: Cyclictest, Form: apart, Run: run(10, 10, 10, 20)},
		{Round: 1, Subject: Loop, Form: apart, Run: run(20, 20, 20, 80)},
		{Round: 1, Subject: Loop, Form: Beside, Run: run(20, 20, 20, 30), Reference: run(10, 10, 10, 20)},
		{Round: 1, Subject: Edge, Form: apart, Run: edgeRun(30, 30, 30, 60)},
		{Round: 1, Subject: Edge, Form: Beside, Run: edgeRun(30, 30, 30, 60), Reference: run(10, 10, 10, 20)},
		{Round: 2, Subject: Cyclictest, Form: apart, Run: run(10, 10, 10, 1500), StealShare: 0.5},
		{Round: 2, Subject: Loop, Form: apart, Run: run(20, 20, 20, 4000), StealShare: 0.03},
		{
			Round:      2,
			Subject:    Loop,
			Form:       Beside,
			Run:        run(20, 20, 20, 3000),
			Reference:  run(10, 10, 10, 6000),
			StealShare: 0.03,
		},
		{Round: 2, Subject: Edge, Form: apart, Run: edgeRun(50, 50, 50, 100)},
		{Round: 2, Subject: Edge, Form: Beside, Run: edgeRun(50, 50, 50, 120), Reference: run(10, 10, 10, 20)},
	}
	r := newReport(Config{
		FPS:      60,
		Load:     "none",
		Subjects: []string{Loop, Edge},
		Env:      bench.Env{Version: "v<1>", Command: "bench jitter --slice 8s"},
	}, 8e9, Reference{Version: "2.40"}, all)
	r.Machine = bench.Machine{Kernel: "6.1", Preempt: "PREEMPT_RT", Cores: 4, CPU: `Cortex <A76> & "co"`, Virtual: "no"}
	return r
}

func TestResults(t *testing.T) {
	far := func(v float64) *float64 { return &v }
	r := sampleReport()
	tests := []struct {
		subject, form string
		ticks         uint64
		pooled        bool
		p50, p99, max float64
		far           *float64
		ratio         *Ratio
		calm          *Ratio
		disturbed     int
	}{
		{Cyclictest, apart, 8, true, 10, 1500, 1500, far(1250), nil, nil, 1},
		{Loop, apart, 8, true, 20, 4000, 4000, far(1250), &Ratio{P50: 2, P99: 4000.0 / 1500}, &Ratio{P50: 2, P99: 4},
			1},
		{Edge, apart, 8, true, 50, 100, 100, far(0), &Ratio{P50: 5, P99: 100.0 / 1500}, nil, 0},
		{Loop, Beside, 8, true, 20, 3000, 3000, far(1250), &Ratio{P50: 2, P99: 0.5}, &Ratio{P50: 2, P99: 1.5}, 1},
		{Edge, Beside, 8, true, 50, 120, 120, far(0), &Ratio{P50: 5, P99: 6}, nil, 0},
	}
	if len(r.Results) != len(tests) {
		t.Fatalf("%d results, want %d", len(r.Results), len(tests))
	}
	same := func(a, b *Ratio) bool {
		return (a == nil) == (b == nil) && (a == nil || a.P50 == b.P50 && a.P99 == b.P99 && a.P999 == 0 && a.P9999 == 0)
	}
	for i, tt := range tests {
		got := r.Results[i]
		if got.Subject != tt.subject || got.Form != tt.form || got.Ticks != tt.ticks || got.Pooled != tt.pooled ||
			got.Slices != 2 || got.Disturbed != tt.disturbed {
			t.Errorf("result %d = %s %s, %d ticks of %d slices, pooled %t, disturbed %d; want %+v", i, got.Subject,
				got.Form, got.Ticks, got.Slices, got.Pooled, got.Disturbed, tt)
		}
		if q := got.Lateness; q.P50 != tt.p50 || q.P99 != tt.p99 || q.Max != tt.max {
			t.Errorf("%s %s: lateness %+v, want p50 %v, p99 %v, max %v", tt.subject, tt.form, q, tt.p50, tt.p99, tt.max)
		}
		if (got.FarLate == nil) != (tt.far == nil) || tt.far != nil && *got.FarLate != *tt.far {
			t.Errorf("%s %s: later than 1 ms %v, want %v", tt.subject, tt.form, got.FarLate, tt.far)
		}
		if !same(got.Ratio, tt.ratio) {
			t.Errorf("%s %s: ratio %+v, want %+v", tt.subject, tt.form, got.Ratio, tt.ratio)
		}
		if calm := got.Undisturbed; (calm != nil) != (tt.disturbed > 0) || calm != nil && !same(calm.Ratio, tt.calm) {
			t.Errorf("%s %s: undisturbed %+v, want the ratio %+v", tt.subject, tt.form, calm, tt.calm)
		}
	}
	if f := r.Figure; f == nil || f.Subject != Edge || f.P99 != 120 || f.CyclictestP99 != 20 ||
		!same(&f.Ratio, &Ratio{P50: 5, P99: 6}) {
		t.Errorf("figure %+v, want the edge's beside", f)
	}
	if own := r.Results[1].OverrunsOwn; own == nil || *own != 2 {
		t.Errorf("overruns of two slices %v, want 2", own)
	}
}

func TestWithoutCyclictest(t *testing.T) {
	all := []Slice{{Round: 1, Subject: Loop, Form: apart, Run: run(20, 30)}}
	r := newReport(Config{Subjects: []string{Loop}}, 8e9, Reference{Missing: notInstalled}, all)
	if r.Figure != nil || len(r.Results) != 1 || r.Results[0].Ratio != nil {
		t.Errorf("figure %v, results %+v; want no ratio", r.Figure, r.Results)
	}
	var b bytes.Buffer
	if err := r.WriteTable(&b); err != nil || !strings.Contains(b.String(), "apt-get install rt-tests") {
		t.Errorf("the table does not say how to get cyclictest: %v\n%s", err, b.String())
	}
}

// There is no ratio to a cyclictest that is never a microsecond late.
func TestRatioOfNothing(t *testing.T) {
	if r := ratioOf(bench.Quantiles{P50: 5, P99: 9}, bench.Quantiles{P50: 0, P99: 3}); r != nil {
		t.Errorf("ratioOf = %+v, want none", r)
	}
}

// The page is well-formed even as XML, loads nothing, and shows every result.
func TestPage(t *testing.T) {
	var b bytes.Buffer
	rttest.Do(t, sampleReport().WriteHTML(&b))
	text := b.String()
	dec := xml.NewDecoder(strings.NewReader(text))
	charts, paths := 0, 0
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the page is not well-formed: %v", err)
		}
		if e, ok := tok.(xml.StartElement); ok {
			switch e.Name.Local {
			case "svg":
				charts++
			case "path":
				paths++
			case "script", "link", "img", "iframe":
				t.Errorf("the page has a %s element", e.Name.Local)
			}
		}
	}
	// For each of the two subjects beside cyclictest, the chart also has cyclictest's histogram.
	if charts != 5 || paths != 5+2 {
		t.Errorf("%d charts with %d histograms, want 5 with 7", charts, paths)
	}
	rttest.Want(t, regexp.MustCompile(`(src|href|url\(|@import|https?:)`).FindString(text), "",
		"the page refers to something outside")
	rttest.Want(t, regexp.MustCompile(`NaN|Inf|%!`).FindString(text), "", "the page")
	rttest.Contains(t, text, "whole edge, beside", "Cortex &lt;A76&gt;", "ratio of 6.00",
		"<pre>bench jitter --slice 8s", "apt install rt-tests stress-ng", "An interval wants 5 slices")
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	rttest.Do(t, sampleReport().WriteTable(&b))
	rttest.Contains(t, b.String(), "PREEMPT_RT", "apart:", "beside:", "bare loop", "whole edge", "cyclictest", "6.00",
		"bus p50 1000 us")
}

func tallyOf(us ...float64) *bench.Tally {
	t := &bench.Tally{}
	for _, v := range us {
		t.AddUS(v, 1)
	}
	return t
}
