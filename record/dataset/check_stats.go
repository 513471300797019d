package dataset

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/edge-rt/edge-rt/internal/userfile"
)

// Tolerances of the statistics in the metadata, relative to the feature's largest value. LeRobot
// computes them with the rounding of float32 sums, and its deviations also with the rounding of the
// squares.
const (
	meanTolerance     = 1e-3
	stdTolerance      = 1e-2 // relative to the deviation itself; varianceTolerance may apply instead
	varianceTolerance = 1e-5 // tolerance of the variance, relative to the square of the feature's largest value
	quantileTolerance = 2e-2
)

// measured are the statistics of a feature that the check has computed, with one value per number of the feature. For a
// matrix, a second form has one value per index of the last dimension, as LeRobot writes it.
type measured []form

type form struct {
	featureStats
	far [5]between // for each quantile, the values on both sides
}

// between are the values on both sides of a quantile. An exact quantile lies between them, and so does a quantile from
// a histogram.
type between struct{ low, high []float64 }

// like returns the form that has n values.
func (m measured) like(n int) *form {
	if last := &m[len(m)-1]; len(last.Max) == n {
		return last
	}
	return &m[0]
}

// measure computes the statistics of rows of a feature's numbers.
func measure(values []float64, f Feature) (m measured) {
	wide := f.DType != float32Type && f.DType != boolType
	sizes := []int{f.size()}
	if n := len(f.Shape); n > 1 {
		sizes = append(sizes, f.Shape[n-1])
	}
	for _, size := range sizes {
		m = append(m, form{columnStats(values, size, wide), neighbours(values, size)})
		m[len(m)-1].Count = m[0].Count
	}
	return m
}

// neighbours returns the values on both sides of each quantile.
func neighbours(values []float64, size int) (far [5]between) {
	rows := len(values) / size
	one := make([]float64, rows)
	for d := range size {
		for i := range one {
			one[i] = values[i*size+d]
		}
		slices.Sort(one)
		for k, q := range quantiles {
			at := q.q * float64(rows-1)
			far[k].low = append(far[k].low, one[max(int(at)-1, 0)])
			far[k].high = append(far[k].high, one[min(int(math.Ceil(at))+1, rows-1)])
		}
	}
	return far
}

// checkStats compares an episode's statistics with the episode's numbers.
func (c *checker) checkStats(n int, columns map[string]*cells, row int) {
	e := &c.episodes[n]
	for name, col := range columns {
		f := c.info.Features[name]
		if c.without[name] {
			continue
		}
		size := f.size()
		got := measure(col.numbers[row*size:(row+e.length)*size], f)
		c.before[name] = append(c.before[name], got)
		written := map[string][]float64{}
		for _, stat := range append(statNames, "count") {
			if v, ok := e.stats["stats/"+name+"/"+stat]; ok && len(v) > 0 {
				written[stat] = v
			}
		}
		if len(written) > 0 {
			c.compare(fmt.Sprintf("episode %d", n), name, got, written)
		}
	}
	for _, name := range videosOf(c.info.Features) {
		if len(e.stats["stats/"+name+"/mean"]) > 0 { // the loader does not need the statistics of single episodes
			c.comparePictures(fmt.Sprintf("episode %d", n), name, func(stat string) []float64 {
				return e.stats["stats/"+name+"/"+stat]
			})
		}
	}
}

// differs returns the function that reports wrong statistics of a feature. That function reports a finding,
// or a note for bookkeeping features.
func (c *checker) differs(name string) func(format string, args ...any) {
	if !slices.Contains(bookkeeping, name) {
		return c.find
	}
	return func(string, ...any) {
		c.note("the statistics of %s are not those of its numbers, as LeRobot's own editing tools leave them: no "+
			"policy reads them", name)
	}
}

// compare compares the statistics in the metadata (written) with the computed statistics (all).
func (c *checker) compare(where, name string, all measured, written map[string][]float64) {
	tell := c.differs(name)
	got := all.like(len(written["mean"]))
	scale := make([]float64, len(got.Max))
	for i := range scale {
		scale[i] = max(math.Abs(got.Max[i]), math.Abs(got.Min[i]), 1e-6)
	}
	allowed := map[string]float64{"min": 1e-6, "max": 1e-6, "mean": meanTolerance, "std": 0}
	for stat, values := range got.series() {
		v, there := written[stat]
		if !there && stat[0] == 'q' { // older datasets have no quantiles
			continue
		}
		if len(v) != len(values) {
			tell("%s: the %s of %s has %d numbers, want %d", where, stat, name, len(v), len(values))
			return
		}
		limit, fixed := allowed[stat]
		if !fixed {
			limit = quantileTolerance
		}
		for i := range v {
			near := math.Abs(v[i]-values[i]) <= limit*scale[i]
			if stat == "std" {
				near = math.Abs(v[i]-values[i]) <= stdTolerance*values[i] ||
					math.Abs(v[i]*v[i]-values[i]*values[i]) <= varianceTolerance*scale[i]*scale[i]
			}
			if k := slices.IndexFunc(quantiles, func(q quantile) bool { return q.name == stat }); k >= 0 {
				near = near || v[i] >= got.far[k].low[i]-limit*scale[i] && v[i] <= got.far[k].high[i]+limit*scale[i]
			}
			if !near {
				tell("%s: %s of %s is %v in the metadata, %v in the data", where, stat, name, v[i], values[i])
				break
			}
		}
	}
	if n := written["count"]; len(n) != 1 || n[0] != float64(got.Count) {
		tell("%s: count of %s is %v in the metadata, %d in the data", where, name, n, got.Count)
	}
}

// comparePictures checks that a camera's statistics are plausible. The statistics come from pictures before
// compression, so the check cannot recompute them.
func (c *checker) comparePictures(where, name string, of func(stat string) []float64) {
	low := of("min")
	high := of("max")
	mean := of("mean")
	std := of("std")
	_, _, channels := c.info.Features[name].picture()
	for _, v := range [][]float64{low, high, mean, std} {
		if len(v) != channels {
			c.find("%s: the statistics of %s have %d numbers, want %d each", where, name, len(v), channels)
			return
		}
	}
	for i := range low {
		if channels == 3 && !(low[i] >= 0 && low[i] <= mean[i] && mean[i] <= high[i] && high[i] <= 1 && std[i] >= 0 &&
			std[i] <= 0.5+1e-6) {
			c.find("%s: %s has min, mean, max, std %v, %v, %v, %v, which no picture of 0 to 1 has", where, name, low[i],
				mean[i], high[i], std[i])
		}
	}
}

// checkWhole compares meta/stats.json with all episodes.
func (c *checker) checkWhole() {
	data, err := userfile.Read(filepath.Join(c.dir, statsPath), maxText)
	if err != nil {
		c.find("%s: %v: a policy cannot be trained without", statsPath, err)
		return
	}
	var all map[string]map[string]any
	if err := userfile.ParseJSON(data, &all); err != nil {
		c.find("%s: %v", statsPath, err)
		return
	}
	for name, f := range c.info.Features {
		stats := all[name]
		if stats == nil && (numeric(f.DType) || f.DType == videoType) {
			if name == actionName || name == stateName {
				c.find("%s has nothing of %s: a policy would be trained without its normalisation", statsPath, name)
			} else { // LeRobot's add_features and its conversion to videos omit these statistics
				c.note("%s has nothing of %s: a policy that takes it is trained without its normalisation", statsPath,
					name)
			}
			continue
		}
		written := map[string][]float64{}
		for stat, v := range stats {
			written[stat] = flat(v, nil)
		}
		if episodes := c.before[name]; len(episodes) > 0 && len(episodes) == len(c.episodes) {
			got := make(measured, len(episodes[0]))
			for k := range got {
				var each []featureStats
				for _, e := range episodes {
					each = append(each, e[k].featureStats)
				}
				got[k].featureStats = together(each)
			}
			c.compareQuantiles(name, got, episodes, written)
			c.compare("all", name, got, written)
		} else if f.DType == videoType {
			c.comparePictures("all", name, func(stat string) []float64 { return written[stat] })
		}
	}
}

// compareQuantiles checks that the dataset's quantiles lie within the range of the episodes' quantiles, and deletes
// them from written. Releases of LeRobot up to 0.6 write the mean of the episodes' quantiles, later releases the
// outermost quantile.
func (c *checker) compareQuantiles(name string, all measured, episodes []measured, written map[string][]float64) {
	tell := c.differs(name)
	n := len(written["mean"])
	got := all.like(n)
	for k, q := range quantiles {
		v, there := written[q.name]
		delete(written, q.name)
		if !there || len(v) != len(got.Max) {
			continue
		}
		for d := range v {
			low, high := math.Inf(1), math.Inf(-1)
			for i := range episodes {
				of := episodes[i].like(n)
				x := (*of.quantile(k))[d]
				low, high = min(low, x, of.far[k].low[d]), max(high, x, of.far[k].high[d])
			}
			slack := quantileTolerance * max(math.Abs(got.Max[d]), math.Abs(got.Min[d]), 1e-6)
			if !(v[d] >= low-slack && v[d] <= high+slack) {
				tell("all: %s of %s is %v, outside the episodes' range from %v to %v", q.name, name, v[d], low, high)
				break
			}
		}
	}
}

// flat appends the numbers of nested lists.
func flat(v any, to []float64) []float64 {
	switch v := v.(type) {
	case float64:
		return append(to, v)
	case []any:
		for _, x := range v {
			to = flat(x, to)
		}
	}
	return to
}
