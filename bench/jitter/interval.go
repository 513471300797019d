package jitter

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/edge-rt/edge-rt/bench"
)

// Parameters of the bootstrap.
const (
	resamples  = 2000
	confidence = 0.95
	minSlices  = 5  // least number of slices for which a subject's spread is estimated
	fewBeyond  = 10 // fewer ticks beyond a quantile make its interval too narrow
)

// levels are the quantiles of a ratio.
var (
	levels     = [...]float64{0.5, 0.99, 0.999, 0.9999}
	levelNames = [...]string{"p50", "p99", "p999", "p9999"}
	levelTexts = [...]string{"p50", "p99", "p99.9", "p99.99"}
)

// quantiles holds the quantile at each level: of latenesses in microseconds, or of ratios.
type quantiles [len(levels)]float64

// Smallest divisors for over: leastUS for latenesses, in microseconds, and leastRatio for ratios.
const (
	leastUS    = 1
	leastRatio = 1e-3
)

// over divides each quantile by other's quantile at the same level, or by least if that is larger.
func (q quantiles) over(other quantiles, least float64) (ratio quantiles) {
	for i := range q {
		ratio[i] = q[i] / max(other[i], least)
	}
	return ratio
}

// Interval is the ends of a range.
type Interval [2]float64

// blocks holds the latenesses of several slices in ascending order. A slice is a block, because the
// ticks of a few seconds share their disturbances: drawn one by one they would seem independent, and
// the intervals of the tail would be too narrow.
type blocks struct {
	ticks []uint64 // [slice] number of ticks
	bins  []bin
}

type bin struct {
	us    int64
	slice int
	n     uint64
}

func blocksOf(of []*Run) *blocks {
	b := &blocks{}
	for i, r := range of {
		b.ticks = append(b.ticks, r.Tally.Count())
		for us, n := range r.Tally.Bins() {
			b.bins = append(b.bins, bin{us, i, n})
		}
	}
	slices.SortFunc(b.bins, func(x, y bin) int { return cmp.Compare(x.us, y.us) })
	return b
}

// quantiles returns the quantiles of all ticks, as bench.Tally does, where slice i counts drawn[i] times.
func (b *blocks) quantiles(drawn []uint64) (q quantiles) {
	total := uint64(0)
	for i, n := range drawn {
		total += n * b.ticks[i]
	}
	below, next := uint64(0), 0
	for _, bin := range b.bins {
		below += bin.n * drawn[bin.slice]
		for next < len(levels) && below >= bench.Rank(levels[next], total) {
			q[next] = float64(bin.us)
			next++
		}
	}
	return q
}

// spread draws slices of a subject and of its cyclictest, with replacement. Two slices of the same
// seconds are drawn together; slices that ran apart are drawn independently.
type spread struct {
	random   *rand.Rand
	mine, of *blocks // of: cyclictest's runs; nil without cyclictest
	together bool
}

// newSpread prepares draws of a subject's runs (mine) and of cyclictest's runs (of). If together is true, the two ran
// in the same seconds. Equal seeds give equal draws.
func newSpread(mine, of []*Run, together bool, seed uint64) *spread {
	s := &spread{random: rand.New(rand.NewPCG(seed, 0)), mine: blocksOf(mine), together: together}
	if len(of) > 0 {
		s.of = blocksOf(of)
	}
	return s
}

// enough reports whether there are enough slices to estimate a spread.
func (s *spread) enough() bool {
	return len(s.mine.ticks) >= minSlices && (s.of == nil || len(s.of.ticks) >= minSlices)
}

func (s *spread) draw(from *blocks) []uint64 {
	drawn := make([]uint64, len(from.ticks))
	for range drawn {
		drawn[s.random.IntN(len(drawn))]++
	}
	return drawn
}

// sample returns the quantiles of one draw, and their ratios to cyclictest's.
func (s *spread) sample() (late, ratio quantiles) {
	drawn := s.draw(s.mine)
	late = s.mine.quantiles(drawn)
	if s.of == nil {
		return late, ratio
	}
	if !s.together {
		drawn = s.draw(s.of)
	}
	return late, late.over(s.of.quantiles(drawn), leastUS)
}

// intervals returns the 95 % intervals of the ratios, from the percentiles of the bootstrap; nil with too few slices.
// The parameter known is the number of levels, from the lowest, that get an interval.
func (s *spread) intervals(known int) map[string]Interval {
	if !s.enough() {
		return nil
	}
	draws := make([]quantiles, resamples)
	for i := range draws {
		_, draws[i] = s.sample()
	}
	all := map[string]Interval{}
	for i := range known {
		all[levelNames[i]] = middle(draws, i, confidence)
	}
	return all
}

// middle sorts draws by level i, and returns the range that contains the middle share of them.
func middle(draws []quantiles, i int, share float64) Interval {
	slices.SortFunc(draws, func(a, b quantiles) int { return cmp.Compare(a[i], b[i]) })
	out := int((1 - share) / 2 * float64(len(draws)))
	return Interval{draws[out][i], draws[len(draws)-1-out][i]}
}

// knownLevels returns how many levels are known from n ticks: a level is known if at least one tick lies beyond it.
func knownLevels(n uint64) int {
	known := 0
	for known < len(levels) && beyond(known, n) >= 1 {
		known++
	}
	return known
}

// beyond returns the number of n ticks beyond level i.
func beyond(i int, n uint64) float64 { return math.Round(1e6*(1-levels[i])*float64(n)) / 1e6 }
