package bench

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// rankSlack compensates for the rounding of binary fractions: 0.07 x 100 is a little above 7 and
// would select the 8th of 100 values.
const rankSlack = 1e-6

// Bounds of another program's output.
const (
	maxTallyBins = 1 << 20
	maxTallyUS   = 1e12 // us, about eleven days
)

// Tally counts latenesses by the whole microsecond below them, as cyclictest
// does. Its zero value is empty.
type Tally struct {
	bins map[int64]uint64 // us -> count
	n    uint64
	max  float64 // us, exact
}

// Add counts n latenesses of d. A negative d counts as 0.
func (t *Tally) Add(d time.Duration, n uint64) {
	t.AddUS(float64(d)/float64(time.Microsecond), n)
}

// AddUS does the same as Add for a lateness in microseconds.
func (t *Tally) AddUS(us float64, n uint64) {
	if n == 0 {
		return
	}
	if t.bins == nil {
		t.bins = map[int64]uint64{}
	}
	t.bins[int64(max(us, 0))] += n
	t.n += n
	t.max = max(t.max, us)
}

// RaiseMax raises the longest lateness to us microseconds, for a caller that knows the longest
// lateness more exactly than its bin.
func (t *Tally) RaiseMax(us float64) { t.max = max(t.max, us) }

// Merge adds all of other.
func (t *Tally) Merge(other *Tally) {
	for us, n := range other.bins {
		t.AddUS(float64(us), n)
	}
	t.max = max(t.max, other.max)
}

// Count returns the number of latenesses.
func (t *Tally) Count() uint64 { return t.n }

// Max returns the longest lateness in microseconds; 0 when nothing is recorded.
func (t *Tally) Max() float64 { return t.max }

// Quantile returns the lateness in microseconds that the share q of all latenesses does not exceed;
// 0 when nothing is recorded.
func (t *Tally) Quantile(q float64) float64 {
	rank := Rank(q, t.n)
	var below uint64
	for _, us := range t.keys() {
		if below += t.bins[us]; below >= rank {
			return float64(us)
		}
	}
	return t.max
}

// Rank returns the position, counted from 1, of the quantile q among n values in ascending order.
func Rank(q float64, n uint64) uint64 { return max(uint64(math.Ceil(q*float64(n)-rankSlack)), 1) }

// Above returns the number of latenesses of at least limit.
func (t *Tally) Above(limit time.Duration) (n uint64) {
	for us, count := range t.bins {
		if us >= limit.Microseconds() {
			n += count
		}
	}
	return n
}

// Bins returns the counts by whole microseconds, in ascending order.
func (t *Tally) Bins() iter.Seq2[int64, uint64] {
	return func(yield func(int64, uint64) bool) {
		for _, us := range t.keys() {
			if !yield(us, t.bins[us]) {
				return
			}
		}
	}
}

func (t *Tally) keys() []int64 { return slices.Sorted(maps.Keys(t.bins)) }

// Quantiles are the quantiles of a tally, in microseconds.
type Quantiles struct {
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90,omitempty"` // absent where only a summary was available
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	P9999 float64 `json:"p9999,omitempty"` // absent with fewer than 10,000
	Max   float64 `json:"max"`
}

// minP9999 is the smallest number of values of which one lies beyond p99.99.
const minP9999 = 10_000

// Spread is a distribution in three figures.
type Spread struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// SpreadOf returns the spread of values; without values it is all zeros.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	at := func(q float64) float64 { return Round(sorted[int(q*float64(len(sorted)-1))]) }
	return Spread{at(0.5), at(0.99), at(1)}
}

// In returns the spread of a histogram of times, in multiples of unit.
func In(h *rt.Hist, unit time.Duration) Spread {
	in := func(d time.Duration) float64 { return Round(float64(d) / float64(unit)) }
	return Spread{in(h.Quantile(0.5)), in(h.Quantile(0.99)), in(h.Max())}
}

// Round returns a figure with three decimals.
func Round(v float64) float64 { return math.Round(v*1e3) / 1e3 }

// Quantiles returns the quantiles of the whole tally.
func (t *Tally) Quantiles() Quantiles {
	q := Quantiles{
		P50:  t.Quantile(0.5),
		P90:  t.Quantile(0.9),
		P99:  t.Quantile(0.99),
		P999: t.Quantile(0.999),
		Max:  t.max,
	}
	if t.n >= minP9999 {
		q.P9999 = t.Quantile(0.9999)
	}
	return q
}

// UpTo limits q to longest, the exact longest lateness, because a quantile may be the upper bound of a
// bucket that ends above it.
func (q Quantiles) UpTo(longest float64) Quantiles {
	return Quantiles{
		P50:   min(q.P50, longest),
		P90:   min(q.P90, longest),
		P99:   min(q.P99, longest),
		P999:  min(q.P999, longest),
		P9999: min(q.P9999, longest),
		Max:   longest,
	}
}

// MarshalJSON writes the bins as an object from microseconds to counts, in ascending order.
func (t *Tally) MarshalJSON() ([]byte, error) {
	text := []byte{'{'}
	for i, us := range t.keys() {
		if i > 0 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, `"%d":%d`, us, t.bins[us])
	}
	return append(text, '}'), nil
}

// UnmarshalJSON reads the output of MarshalJSON; the microseconds may be fractions, and the largest
// becomes Max.
func (t *Tally) UnmarshalJSON(b []byte) error {
	var bins map[string]uint64
	if err := json.Unmarshal(b, &bins); err != nil {
		return err
	}
	if len(bins) > maxTallyBins {
		return fmt.Errorf("%d bins, want at most %d", len(bins), maxTallyBins)
	}
	*t = Tally{}
	for key, n := range bins {
		us, err := strconv.ParseFloat(key, 64)
		// Fractional keys within one microsecond share a bin, whose sum must be readable too.
		if err != nil || !(us >= 0 && us <= maxTallyUS) || n > math.MaxUint32-t.n {
			return fmt.Errorf("bin %q: %d, want microseconds: count", key, n)
		}
		t.AddUS(us, n)
	}
	return nil
}
