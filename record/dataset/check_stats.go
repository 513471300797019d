package dataset

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

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
			at := q * float64(rows-1)
			far[k].low = append(far[k].low, one[max(int(at)-1, 0)])
			far[k].high = append(far[k].high, one[min(int(math.Ceil(at))+1, rows-1)])
		}
	}
	return far
}

// checkStats compares an episode's statistics with the episode's numbers.
func (c *checker) checkStats(n int, columns map[string]*cells, row int) {
	e := &c.episodes[n]
	where := fmt.Sprintf("episode %d", n)
	for name, col := range columns {
		f := c.info.Features[name]
		if c.without[name] {
			continue
		}
		size := f.size()
		got := measure(col.numbers[row*size:(row+e.length)*size], f)
		c.before[name] = append(c.before[name], got)
		if written := e.written(name); len(written) > 0 {
			c.compare(where, name, got, written)
		}
	}
	for name, f := range c.info.Features {
		written := e.written(name)
		if !f.pictures() || len(written["mean"]) == 0 { // the loader does not need the statistics of single episodes
			continue
		}
		s, whole := c.comparePictures(where, name, written)
		if !whole {
			continue
		}
		c.before[name] = append(c.before[name], measured{s})
		for i, std := range s.Std {
			// a tenth of the pixels is at q10 or darker, and a tenth at q90 or brighter
			if least := math.Sqrt(0.05) * (s.Q90[i] - s.Q10[i]); std+1e-3 < least*0.9 { // float32 rounds
				c.find("%s: std of %s is %v, and its q10 and q90 want at least %v", where, name, std, least)
			}
		}
	}
}

// written returns an episode's statistics of a feature in the metadata.
func (e *episodeRow) written(name string) map[string][]float64 {
	out := map[string][]float64{}
	for _, stat := range append(statNames, "count") {
		if v := e.stats["stats/"+name+"/"+stat]; len(v) > 0 {
			out[stat] = v
		}
	}
	return out
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
				near = v[i] >= 0 && (math.Abs(v[i]-values[i]) <= stdTolerance*values[i] ||
					math.Abs(v[i]*v[i]-values[i]*values[i]) <= varianceTolerance*scale[i]*scale[i])
			}
			if k := slices.Index(quantileNames, stat); k >= 0 {
				near = near || v[i] >= got.far[k].low[i]-limit*scale[i] && v[i] <= got.far[k].high[i]+limit*scale[i]
			}
			if !near {
				tell("%s: %s of %s is %v in the metadata, want %v", where, stat, name, v[i], values[i])
				break
			}
		}
	}
	if n := written["count"]; len(n) != 1 || n[0] != float64(got.Count) {
		tell("%s: count of %s is %v in the metadata, want %d", where, name, n, got.Count)
	}
}

// comparePictures checks that a camera's statistics are plausible. The statistics come from pictures before
// compression, so the check cannot recompute them. The result whole reports whether all statistics are present.
func (c *checker) comparePictures(where, name string, of map[string][]float64) (s form, whole bool) {
	_, _, channels := c.info.Features[name].picture()
	count := of["count"]
	if whole = len(count) == 1; len(count) > 0 && !(whole && count[0] >= 1 && count[0] <= 1<<53 &&
		count[0] == math.Trunc(count[0])) {
		c.find("%s: the count of %s is %v, want the number of its pictures", where, name, count)
		return s, false
	}
	for i, field := range s.fields() {
		*field = of[statNames[i]]
		switch n := len(*field); {
		case n == channels:
		case n == 0 && i >= 4: // older datasets have no quantiles
			whole = false
		default:
			c.find("%s: the %s of %s has %d numbers, want %d", where, statNames[i], name, n, channels)
			return s, false
		}
	}
	for i, std := range s.Std {
		mean := s.Mean[i]
		if !(std >= 0) || channels == 3 && !(s.Min[i] >= 0 && s.Min[i] <= mean && mean <= s.Max[i] && s.Max[i] <= 1 &&
			std <= 0.5+1e-6) {
			c.find("%s: %s has min, mean, max, std %v, %v, %v, %v, which no picture of 0 to 1 has", where, name,
				s.Min[i], mean, s.Max[i], std)
		}
	}
	if whole {
		s.Count = int64(count[0])
		for k := range s.far {
			s.far[k] = between{*s.quantile(k), *s.quantile(k)}
		}
	}
	return s, whole
}

// checkWhole compares meta/stats.json with all episodes.
func (c *checker) checkWhole() {
	data, err := userfile.Read(filepath.Join(c.dir, statsPath), maxText)
	if err != nil {
		c.find("%s: %v: a policy cannot be trained without", statsPath, err)
		return
	}
	var all map[string]map[string]any
	if err := userfile.ParseJSON(pythonNumber.ReplaceAllFunc(data, quoted), &all); err != nil {
		c.find("%s: %v", statsPath, err)
		return
	}
	for name, f := range c.info.Features {
		stats := all[name]
		if stats == nil && (numeric(f.DType) || f.pictures()) {
			tell := c.note // LeRobot's add_features and its conversion to videos omit statistics
			if name == actionName || name == stateName {
				tell = c.find
			}
			tell("%s has nothing of %s: a policy that takes it is trained without its normalisation", statsPath, name)
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
		} else if f.pictures() {
			c.comparePictures("all", name, written)
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
	for k, stat := range quantileNames {
		v, there := written[stat]
		delete(written, stat)
		if there && len(v) != len(got.Max) {
			tell("all: the %s of %s has %d numbers, want %d", stat, name, len(v), len(got.Max))
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
				tell("all: %s of %s is %v, outside the episodes' range from %v to %v", stat, name, v[d], low, high)
				break
			}
		}
	}
}

// pythonNumber matches the numbers that JSON does not have, but Python's json module writes and reads. It also matches
// texts, so that it finds no such number within a text.
var pythonNumber = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?Infinity|NaN`)

// quoted turns a number that pythonNumber has matched into a text, which flat reads. A text stays as it is.
func quoted(match []byte) []byte {
	if match[0] == '"' {
		return match
	}
	return slices.Concat([]byte(`"`), match, []byte(`"`))
}

// flat appends the numbers of nested lists.
func flat(v any, to []float64) []float64 {
	switch v := v.(type) {
	case float64:
		return append(to, v)
	case string:
		if x, err := strconv.ParseFloat(v, 64); err == nil {
			return append(to, x)
		}
	case []any:
		for _, x := range v {
			to = flat(x, to)
		}
	}
	return to
}
