package jitter

import (
	"testing"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestParseEdge(t *testing.T) {
	const summary = `{"ticks":60,"overruns_own":1,"overruns_host":2,"starved_ticks":3,"lateness_us":{"p50":24.9,"p99":52.9,"p999":92.6,"max":92.683},
		"bus":{"cycles":60,"lost":1,"us_p50":1081,"us_p99":1636},"phases_us":{"read":{"p50":900,"p99":1500,"max":1600}},"rt":{"granted":false,"why":"raise it"},"seconds":1.5,"lateness_histogram_us":{"20.1":59,"92.9":1}}`
	r := rttest.Must(parseEdge([]byte(summary)))(t)
	rttest.Want(t, r.Lateness, bench.Quantiles{P50: 20, P90: 20, P99: 92, P999: 92, Max: 92.683}, "lateness")
	if r.Ticks != 60 || *r.OverrunsOwn != 1 || *r.OverrunsHost != 2 || r.Starved != 3 || r.Bus.P99 != 1636 ||
		r.Granted || r.Why != "raise it" || r.Seconds != 1.5 ||
		r.Phases["read"] != (bench.Spread{P50: 900, P99: 1500, Max: 1600}) {
		t.Errorf("parseEdge = %+v", r)
	}
	for _, bad := range []string{"", "{", `{"ticks":0}`, `{"ticks":60}`, `{"ticks":60,"lateness_histogram_us":{}}`,
		`{"ticks":1,"lateness_histogram_us":{"x":1}}`} {
		if _, err := parseEdge([]byte(bad)); err == nil {
			t.Errorf("parseEdge(%s) has no error", bad)
		}
	}
}

func FuzzParseEdge(f *testing.F) {
	f.Add([]byte(`{"ticks":60,"lateness_us":{"p50":24.9},"lateness_histogram_us":{"20.1":59}}`))
	f.Fuzz(func(t *testing.T, b []byte) { // Property: no panic, and an accepted summary has ticks.
		if r, err := parseEdge(b); err == nil && r.Ticks == 0 {
			t.Fatal("a run without ticks")
		}
	})
}

func TestPhasesOf(t *testing.T) {
	run := func(p50, p99, longest float64) *Run {
		return &Run{Phases: Phases{"tick": {P50: p50, P99: p99, Max: longest}, "read": {P50: 1, P99: 2, Max: 3}}}
	}
	got := phasesOf([]*Run{run(10, 90, 500), run(30, 70, 100), {}, run(20, 80, 200)})
	rttest.Want(t, got["tick"], bench.Spread{P50: 20, P99: 80, Max: 500}, "tick")
	rttest.Want(t, got.String(), "read p50 1, p99 2, max 3 us; tick p50 20, p99 80, max 500 us", "String")
}
