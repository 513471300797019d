package dataset

import (
	"math"
	"slices"
)

// quantiles are LeRobot's quantiles, in the order of their names.
var quantiles = []float64{0.01, 0.10, 0.50, 0.90, 0.99}

const bins = 5000 // bins of the histograms from which quantiles are read

// featureStats are the statistics of a feature: one value per number of the feature, or per colour of a
// picture, whose levels are scaled to 0..1.
//
// Source: LeRobot 0.6.1, lerobot/datasets/compute_stats.py: quantiles come from histograms whose
// edges are computed in the feature's own type. Sums are in float64 here, so that means and
// deviations lack the rounding of LeRobot's float32.
type featureStats struct {
	Min   []float64 `json:"min"`
	Max   []float64 `json:"max"`
	Mean  []float64 `json:"mean"`
	Std   []float64 `json:"std"`
	Q01   []float64 `json:"q01"`
	Q10   []float64 `json:"q10"`
	Q50   []float64 `json:"q50"`
	Q90   []float64 `json:"q90"`
	Q99   []float64 `json:"q99"`
	Count int64     `json:"count"` // frames; of pictures, only the sampled ones
}

// statNames are the names of the statistics in LeRobot's files, in the order of fields.
var (
	statNames     = append([]string{"min", "max", "mean", "std"}, quantileNames...)
	quantileNames = []string{"q01", "q10", "q50", "q90", "q99"}
)

// fields returns all statistics except the count. The last five are the quantiles.
func (s *featureStats) fields() []*[]float64 {
	return []*[]float64{&s.Min, &s.Max, &s.Mean, &s.Std, &s.Q01, &s.Q10, &s.Q50, &s.Q90, &s.Q99}
}

// quantile returns the field of quantiles[i].
func (s *featureStats) quantile(i int) *[]float64 { return s.fields()[4+i] }

// series returns all statistics except the count, by name.
func (s *featureStats) series() map[string][]float64 {
	out := map[string][]float64{}
	for i, field := range s.fields() {
		out[statNames[i]] = *field
	}
	return out
}

// add appends the statistics of one number, in the order of fields.
func (s *featureStats) add(values ...float64) {
	for i, field := range s.fields() {
		*field = append(*field, values[i])
	}
}

// columnStats returns the statistics of rows of size values each. The parameter wide is set for types such as int64,
// for which LeRobot computes in float64.
func columnStats(values []float64, size int, wide bool) (s featureStats) {
	rows := len(values) / size
	s.Count = int64(rows)
	one := make([]weighted, rows)
	for d := range size {
		for i := range one {
			one[i] = weighted{values[i*size+d], 1}
		}
		s.number(one, wide)
	}
	return s
}

// weighted is a value that occurs n times.
type weighted struct {
	v float64
	n int64
}

// number adds the statistics of one number of a feature. The list values is not empty.
func (s *featureStats) number(values []weighted, wide bool) {
	low, high := values[0].v, values[0].v
	var n int64
	var sum float64
	for _, x := range values {
		low, high = min(low, x.v), max(high, x.v)
		n += x.n
		sum += x.v * float64(x.n)
	}
	mean := sum / float64(n)
	var square float64
	for _, x := range values {
		square += (x.v - mean) * (x.v - mean) * float64(x.n)
	}
	std := math.Sqrt(square / float64(n))
	if n < 2 {
		s.add(low, high, mean, 0, mean, mean, mean, mean, mean)
		return
	}
	q := quantilesOf(values, n, edges(low, high, wide))
	s.add(append([]float64{low, high, mean, std}, q[:]...)...)
}

// edges returns the histogram's edges, as numpy.linspace(low - 1e-10, high + 1e-10, bins + 1)
// computes them in float32, or in float64 if wide.
func edges(low, high float64, wide bool) []float64 {
	e := make([]float64, bins+1)
	if wide {
		start, stop := low-1e-10, high+1e-10
		step := (stop - start) / bins
		for i := range e {
			e[i] = float64(i)*step + start
		}
		e[bins] = stop
		return e
	}
	start, stop := float32(float32(low)-1e-10), float32(float32(high)+1e-10)
	delta := float32(stop - start)
	step := float32(delta / bins)
	for i := range e {
		y := float32(float32(i) * step)
		if step == 0 {
			y = float32(float32(float32(i)/bins) * delta)
		}
		e[i] = float64(float32(y + start))
	}
	e[bins] = float64(stop)
	return e
}

// quantilesOf reads the quantiles from a histogram, with linear interpolation between edges.
func quantilesOf(values []weighted, n int64, edges []float64) (q [5]float64) {
	counts := make([]float64, bins)
	for _, x := range values {
		i, _ := slices.BinarySearch(edges, x.v)
		for i <= bins && edges[i] == x.v { // a value equal to an edge belongs to the bin on its right
			i++
		}
		counts[min(max(i-1, 0), bins-1)] += float64(x.n)
	}
	for i := 1; i < bins; i++ {
		counts[i] += counts[i-1]
	}
	for k := range quantiles {
		target := quantiles[k] * float64(n)
		i, _ := slices.BinarySearch(counts, target)
		switch {
		case i == 0:
			q[k] = edges[0]
		case i >= bins:
			q[k] = edges[bins]
		case counts[i] == counts[i-1]:
			q[k] = edges[i]
		default:
			q[k] = edges[i] + (target-counts[i-1])/(counts[i]-counts[i-1])*(edges[i+1]-edges[i])
		}
	}
	return q
}

// samples returns the indices of the frames whose pictures enter the statistics, for an episode of
// n frames.
//
// Source: compute_stats.py, sample_indices.
func samples(n int) []int {
	count := max(min(100, n), min(int(math.Pow(float64(n), 0.75)), 10_000))
	frames := make([]int, count)
	for i := range frames {
		if count > 1 {
			step := float64(n-1) / float64(count-1)
			frames[i] = int(math.RoundToEven(float64(i) * step))
		}
	}
	frames[count-1] = n - 1
	return frames
}

// imageStats counts the levels in the pictures of a camera.
type imageStats struct {
	pictures int64
	levels   [3][256]int64
}

// add counts the levels of a picture, [h, w, 3] RGB bytes. It skips pixels as LeRobot does.
//
// Source: compute_stats.py, auto_downsample_height_width.
func (s *imageStats) add(rgb []byte, w, h int) {
	step := 1
	if max(w, h) >= 300 {
		step = max(w, h) / 150
	}
	s.pictures++
	for y := 0; y < h; y += step {
		for x := 0; x < w; x += step {
			p := rgb[3*(y*w+x):][:3]
			s.levels[0][p[0]]++
			s.levels[1][p[1]]++
			s.levels[2][p[2]]++
		}
	}
}

// stats returns the statistics of all pictures, scaled to 0..1.
func (s *imageStats) stats() (out featureStats) {
	out.Count = s.pictures
	for c := range s.levels {
		var values []weighted
		for level, n := range s.levels[c] {
			if n > 0 {
				values = append(values, weighted{float64(level), n})
			}
		}
		out.number(values, false)
	}
	for _, series := range out.series() {
		for i := range series {
			series[i] /= 255
		}
	}
	return out
}

// together combines the statistics of all episodes of a dataset.
//
// Source: compute_stats.py of LeRobot 0.6.1, aggregate_feature_stats: a quantile is the mean of the
// episodes' quantiles, weighted with their frames. LeRobot's main branch takes the minimum of the
// episodes' quantiles up to q50, and the maximum above.
func together(episodes []featureStats) (s featureStats) {
	size := len(episodes[0].Mean)
	total := 0.0
	for _, e := range episodes {
		s.Count += e.Count
		total += float64(e.Count)
	}
	for d := range size {
		low := math.Inf(1)
		high := math.Inf(-1)
		mean := 0.0
		variance := 0.0
		var q [5]float64
		for i := range episodes {
			e := &episodes[i]
			weight := float64(e.Count) / total
			low, high = min(low, e.Min[d]), max(high, e.Max[d])
			mean += e.Mean[d] * weight
			for k := range q {
				q[k] += (*e.quantile(k))[d] * weight
			}
		}
		for _, e := range episodes {
			weight := float64(e.Count) / total
			variance += (e.Std[d]*e.Std[d] + (e.Mean[d]-mean)*(e.Mean[d]-mean)) * weight
		}
		s.add(append([]float64{low, high, mean, math.Sqrt(variance)}, q[:]...)...)
	}
	return s
}
