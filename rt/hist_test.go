package rt

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// Property: for any durations, Quantile is at least the exact quantile and at most 1 % above it.
func TestHistAgainstSortedSlice(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		h := NewHist()
		all := make([]time.Duration, 1+rng.IntN(3000))
		for i := range all {
			// every magnitude equally often
			all[i] = time.Duration(math.Exp(rng.Float64() * math.Log(float64(histLimit))))
			h.Record(all[i])
		}
		slices.Sort(all)
		for _, q := range []float64{0, 0.01, 0.07, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
			rank := max(int(math.Ceil(q*float64(len(all))-1e-9)), 1)
			want := all[rank-1]
			if got := h.Quantile(q); got < want || float64(got) > 1.01*float64(want) {
				t.Errorf("seed %d: Quantile(%v) of %d = %d, want %d to 1%% above", seed, q, len(all), got, want)
			}
		}
		if h.Count() != uint64(len(all)) || h.Max() != all[len(all)-1] {
			t.Errorf("seed %d: Count, Max = %d, %d, want %d, %d", seed, h.Count(), h.Max(), len(all), all[len(all)-1])
		}
	}
}

func TestHistQuantile(t *testing.T) {
	for _, tt := range []struct {
		name    string
		record  []time.Duration
		q       float64
		want    time.Duration
		wantMax time.Duration
	}{
		{"empty", nil, 0.5, 0, 0},
		{"one", []time.Duration{42}, 0.5, 42, 42},
		{"exact below 256 ns", []time.Duration{1, 2, 3, 255}, 0.75, 3, 255},
		{"never above the maximum", []time.Duration{1_000_000}, 0.99, 1_000_000, 1_000_000},
		{"a rank that is whole but for rounding", firstNanoseconds(100), 0.07, 7, 100},
		{"negative counts as 0", []time.Duration{-5}, 1, 0, 0},
		{"the limit itself", []time.Duration{histLimit}, 1, histLimit, histLimit},
		{"beyond the limit", []time.Duration{time.Hour}, 1, upperBound(bucketOf(histLimit)), time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := NewHist()
			for _, d := range tt.record {
				h.Record(d)
			}
			if got := h.Quantile(tt.q); got != tt.want || h.Max() != tt.wantMax {
				t.Errorf("Quantile(%v), Max = %v, %v, want %v, %v", tt.q, got, h.Max(), tt.want, tt.wantMax)
			}
			if h.Count() != uint64(len(tt.record)) {
				t.Errorf("Count = %d, want %d", h.Count(), len(tt.record))
			}
		})
	}
}

// firstNanoseconds returns the durations 1 ns, 2 ns, ..., n ns.
func firstNanoseconds(n int) (d []time.Duration) {
	for i := range n {
		d = append(d, time.Duration(i+1))
	}
	return d
}

// Every bucket contains its upper bound, and the next bucket contains the next nanosecond.
func TestHistBucketsMeet(t *testing.T) {
	for i := range histBuckets - 1 {
		if d := upperBound(i); bucketOf(d) != i || bucketOf(d+1) != i+1 {
			t.Fatalf("bucketOf(%d) = %d, bucketOf(%d) = %d, want %d, %d", d, bucketOf(d), d+1, bucketOf(d+1), i, i+1)
		}
	}
}

func TestHistQuantilePanicsOutsideZeroToOne(t *testing.T) {
	for _, q := range []float64{-0.1, 1.1, 99, math.NaN()} {
		if !Panics(func() { NewHist().Quantile(q) }) {
			t.Errorf("Quantile(%v) did not panic", q)
		}
	}
}

func TestHistIsReadWhileWritten(t *testing.T) {
	const n = 20_000
	h := NewHist()
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			h.Record(time.Duration(i) * time.Microsecond)
		}
	})
	for last := uint64(0); last < n; {
		count := h.Count()
		if count < last {
			t.Fatalf("Count went from %d to %d", last, count)
		}
		if q := h.Quantile(0.99); q > h.Max() {
			t.Fatalf("Quantile(0.99) = %v above Max %v", q, h.Max())
		}
		last = count
	}
	wg.Wait()
}

func TestHistNoAlloc(t *testing.T) {
	h := NewHist()
	d := time.Duration(0)
	if n := testing.AllocsPerRun(1000, func() { d += 12345; h.Record(d) }); n != 0 {
		t.Errorf("Record allocates %v times, want 0", n)
	}
}

func TestHistBucketsHoldWhatWasRecorded(t *testing.T) {
	h := NewHist()
	for _, d := range []time.Duration{5, 5, time.Millisecond, 70 * time.Second} {
		h.Record(d)
	}
	var total uint64
	last := time.Duration(-1)
	for upper, n := range h.Buckets {
		if upper <= last {
			t.Errorf("bucket %v after %v: want them ascending", upper, last)
		}
		if upper == 5 && n != 2 {
			t.Errorf("bucket of 5 ns holds %d, want 2", n)
		}
		last, total = upper, total+n
	}
	if total != 4 {
		t.Errorf("buckets hold %d, want 4", total)
	}
	for range h.Buckets {
		return // yield may stop the iteration early
	}
}
