package bench

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func tallyOf(us ...float64) *Tally {
	t := &Tally{}
	for _, v := range us {
		t.AddUS(v, 1)
	}
	return t
}

func TestTallyQuantiles(t *testing.T) {
	hundred := &Tally{}
	for us := range 100 {
		hundred.AddUS(float64(us+1), 1)
	}
	for _, tt := range []struct {
		name  string
		tally *Tally
		q     float64
		want  float64
	}{
		{"nothing", &Tally{}, 0.99, 0},
		{"one is every quantile", tallyOf(7), 0.5, 7},
		{"the 99th of 100 is not exceeded by 99", hundred, 0.99, 99},
		{"binary fractions do not ask for the next", hundred, 0.07, 7},
		{"all", hundred, 1, 100},
		{"none", hundred, 0, 1},
		{"counted down to the microsecond", tallyOf(7.9), 0.5, 7},
		{"early counts as on time", tallyOf(-3), 0.5, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rttest.Want(t, tt.tally.Quantile(tt.q), tt.want, "Quantile(%v)", tt.q)
		})
	}
}

func TestTallyAdds(t *testing.T) {
	var a Tally
	a.Add(1500*time.Nanosecond, 3)
	a.Add(time.Millisecond, 2)
	a.Add(time.Hour, 0)
	a.Merge(tallyOf(2000.7, 999))
	if a.Count() != 7 || a.Max() != 2000.7 || a.Above(time.Millisecond) != 3 {
		t.Errorf("count %d, max %v, above 1 ms %d; want 7, 2000.7, 3", a.Count(), a.Max(), a.Above(time.Millisecond))
	}
}

func TestTallyJSON(t *testing.T) {
	b, err := json.Marshal(tallyOf(100, 9, 9, 20))
	if err != nil || string(b) != `{"9":2,"20":1,"100":1}` {
		t.Errorf("Marshal = %s, %v; want the bins in order", b, err)
	}
	for _, tt := range []struct {
		name, text string
		n          uint64
		max        float64
	}{
		{"what was written", `{"9":2,"20":1,"100":1}`, 4, 100},
		{"fractions", `{"24.959":3,"0.5":1}`, 4, 24.959},
		{"empty", `{}`, 0, 0},
		{"a negative bin", `{"-1":1}`, math.MaxUint64, 0},
		{"no number", `{"x":1}`, math.MaxUint64, 0},
		{"infinity", `{"Inf":1}`, math.MaxUint64, 0},
		{"NaN", `{"NaN":1}`, math.MaxUint64, 0},
		{"a negative count", `{"1":-1}`, math.MaxUint64, 0},
		{"counts that are beyond any run together", `{"1.1":4294967295,"1.2":1}`, math.MaxUint64, 0},
		{"a count beyond any run", `{"1":4294967296}`, math.MaxUint64, 0},
		{"a list", `[[1,2]]`, math.MaxUint64, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got Tally
			err := json.Unmarshal([]byte(tt.text), &got)
			if refuse := tt.n == math.MaxUint64; refuse != (err != nil) {
				t.Fatalf("Unmarshal(%s) = %v, want an error: %t", tt.text, err, refuse)
			}
			if err == nil && (got.Count() != tt.n || got.Max() != tt.max) {
				t.Errorf("Unmarshal(%s) = %d up to %v, want %d up to %v", tt.text, got.Count(), got.Max(), tt.n, tt.max)
			}
		})
	}
}

// Property: each quantile is the sample of its rank in the sorted slice of all samples.
func TestTallyAgainstSortedSamples(t *testing.T) {
	var tally Tally
	var all []float64
	for i := range 997 {
		us := float64(i * i % 10007)
		tally.AddUS(us, 1)
		all = append(all, us)
	}
	slices.Sort(all)
	for _, q := range []float64{0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
		rttest.Want(t, tally.Quantile(q), all[int(math.Ceil(q*float64(len(all))))-1], "Quantile(%v)", q)
	}
}

// Property: no panic; accepted output is written and read again unchanged.
func FuzzTally(f *testing.F) {
	f.Add([]byte(`{"9":2,"20.5":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var first, again Tally
		if first.UnmarshalJSON(b) != nil {
			return
		}
		text, _ := first.MarshalJSON()
		if err := again.UnmarshalJSON(text); err != nil || again.Count() != first.Count() ||
			again.Quantile(0.5) != first.Quantile(0.5) {
			t.Fatalf("%s became %s: %d then %d, %v", b, text, first.Count(), again.Count(), err)
		}
	})
}

func TestSpreads(t *testing.T) {
	rttest.Want(t, SpreadOf([]float64{3, 1, 2}), Spread{2, 2, 3}, "SpreadOf")
	rttest.Want(t, SpreadOf(nil), Spread{}, "SpreadOf nothing")
	h := rt.NewHist()
	h.Record(1500 * time.Microsecond)
	if q := In(h, time.Millisecond); q.Max != 1.5 || q.P50 < 1.4 || q.P50 > 1.6 {
		t.Errorf("In(ms) = %+v, want 1.5", q)
	}
}

// An edge whose latest tick was 99.987 us late has its 99th percentile in a bucket that ends at 100
// us; a quantile above the maximum would be absurd.
func TestQuantilesNeverExceedTheLongest(t *testing.T) {
	got := Quantiles{43, 78, 100, 100, 100, 100}.UpTo(99.987)
	rttest.Want(t, got, Quantiles{43, 78, 99.987, 99.987, 99.987, 99.987}, "UpTo(99.987)")
}
