package jitter

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

const golden = "testdata/cyclictest-2.40-h24.txt"

func TestParseCyclictest(t *testing.T) {
	type want struct {
		n             uint64
		p50, p99, max float64
		err           string
	}
	for _, tt := range []struct {
		name, text string
		want       want
	}{
		{"text of two threads, with overflows", rttest.ReadFile(t, golden),
			want{200, 9, 382, 382, ""}},
		{"text of one thread",
			"# Histogram\n000003 000002\n000004 000001\n# Max Latencies: 00004\n# Histogram Overflows: 00000\n",
			want{3, 3, 4, 4, ""}},
		{"text without a summary", "000003 000002\n", want{2, 3, 3, 3, ""}},
		{"nothing", "", want{err: "no latency"}},
		{"only empty bins", "000003 000000\n", want{err: "no latency"}},
		{"a torn line", "000003 0000x2\n", want{err: `"0000x2", want a number`}},
		{"overflows of nobody", "000003 000001\n# Histogram Overflows: 00002\n",
			want{err: "overflows of 1 threads"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseCyclictest([]byte(tt.text))
			if err != nil || tt.want.err != "" {
				if tt.want.err == "" || !rttest.Says(err, tt.want.err) {
					t.Fatalf("error %v, want %q", err, tt.want.err)
				}
				return
			}
			if q := got.Quantiles(); got.Count() != tt.want.n || q.P50 != tt.want.p50 || q.P99 != tt.want.p99 ||
				q.Max != tt.want.max {
				t.Errorf("%d samples, p50 %v, p99 %v, max %v; want %+v", got.Count(), q.P50, q.P99, q.Max, tt.want)
			}
		})
	}
}

// Property: no panic, an accepted output contains at least one sample, and no sample is above Max.
func FuzzParseCyclictest(f *testing.F) {
	f.Add(rttest.Must(os.ReadFile(golden))(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := parseCyclictest(b); err == nil && (got.Count() == 0 || got.Quantile(1) > got.Max()) {
			t.Fatalf("%d samples, the last %v, max %v", got.Count(), got.Quantile(1), got.Max())
		}
	})
}

func TestCyclictestAbsent(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if r := FindCyclictest(context.Background()); r.Path != "" || !strings.Contains(r.Missing, "rt-tests") {
		t.Errorf("FindCyclictest = %+v, want how to get it", r)
	}
}

// When cyclictest lacks permission, the report quotes cyclictest's message.
func TestCyclictestRefused(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = --help ] && { echo 'cyclictest V 1.00'; exit 1; }\necho 'Unable to change " +
		"scheduling policy!' >&2\nexit 1\n"
	rttest.WriteFile(t, dir, "cyclictest", script)
	t.Setenv("PATH", dir)
	r := FindCyclictest(context.Background())
	if r.Version != "1.00" || !strings.Contains(r.Missing, "Unable to change scheduling policy") ||
		!strings.Contains(r.Missing, "ulimit -r") {
		t.Errorf("FindCyclictest = %+v, want version 1.00 and the refusal", r)
	}
}
