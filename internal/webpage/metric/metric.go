// Package metric contains metrics whose values are read at each scrape. It reuses the memory of each
// scrape, because Go's collector is off while a program serves or ticks, and the program itself would
// have to collect the garbage.
//
// A Registry of client_golang would allocate this memory again for each scrape.
// promhttp.HandlerForTransactional of client_golang can serve a Set, too.
package metric

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/edge-rt/edge-rt/rt"
)

// Label is one label of a series.
type Label struct{ Name, Value string }

// Set is a set of metrics. It must be filled before it is read.
//
// Owner: one goroutine at a time.
type Set struct {
	families []*dto.MetricFamily // sorted by name after the first read
	shown    []*dto.MetricFamily // those with a series
	update   []func()            // functions that update the values
	sorted   bool
}

// Counter adds a series of a counter.
func (s *Set) Counter(name, help string, labels []Label, value func() float64) {
	s.value(name, help, dto.MetricType_COUNTER, labels, value)
}

// Gauge adds a series of a gauge.
func (s *Set) Gauge(name, help string, labels []Label, value func() float64) {
	s.value(name, help, dto.MetricType_GAUGE, labels, value)
}

func (s *Set) value(name, help string, kind dto.MetricType, labels []Label, value func() float64) {
	m := newSeries(kind, pairs(labels))
	s.add(name, help, kind, m.Metric)
	s.update = append(s.update, func() { *m.value = value() })
}

// series is one series of a counter or a gauge, with its value.
type series struct {
	*dto.Metric
	value *float64
}

func newSeries(kind dto.MetricType, labels []*dto.LabelPair) series {
	s := series{&dto.Metric{Label: labels}, new(float64)}
	if kind == dto.MetricType_COUNTER {
		s.Counter = &dto.Counter{Value: s.value}
	} else {
		s.Gauge = &dto.Gauge{Value: s.value}
	}
	return s
}

// Histogram adds a histogram. The function read sets counts[i] to the number of values up to bounds[i], and returns the
// number of all values and their sum.
func (s *Set) Histogram(name, help string, bounds []float64, read func(counts []uint64) (all uint64, sum float64)) {
	h, counts := &dto.Histogram{SampleCount: new(uint64), SampleSum: new(float64)}, make([]uint64, len(bounds))
	for i, bound := range bounds {
		h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: new(bound), CumulativeCount: &counts[i]})
	}
	s.add(name, help, dto.MetricType_HISTOGRAM, &dto.Metric{Histogram: h})
	s.update = append(s.update, func() { *h.SampleCount, *h.SampleSum = read(counts) })
}

// Update adds a function that runs at each scrape, before the values that are added later are read.
func (s *Set) Update(f func()) { s.update = append(s.update, f) }

// Bounds are the upper bounds of the buckets of Durations.
var Bounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 7500 * time.Microsecond,
	10 * time.Millisecond, 15 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 75 * time.Millisecond,
	100 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 10 * time.Second,
}

// Seconds returns Bounds in seconds.
func Seconds() (seconds []float64) {
	for _, b := range Bounds {
		seconds = append(seconds, b.Seconds())
	}
	return seconds
}

// Durations adds a histogram of the durations in an rt.Hist. The sum is exact to 1 %, the width of
// the buckets of an rt.Hist.
func (s *Set) Durations(name, help string, of func() *rt.Hist) {
	s.Histogram(name, help, Seconds(), func(counts []uint64) (all uint64, sum float64) {
		clear(counts)
		of().Buckets(func(upper time.Duration, n uint64) bool {
			all += n
			sum += upper.Seconds() * float64(n)
			for i := len(Bounds) - 1; i >= 0 && upper <= Bounds[i]; i-- {
				counts[i] += n
			}
			return true
		})
		return all, sum
	})
}

// Handler serves equal sets, each made by the function build.
func Handler(build func() *Set) http.Handler {
	return promhttp.HandlerForTransactional(NewSource(build), promhttp.HandlerOpts{})
}

// Info adds a gauge that is always 1 and whose labels are the information. The gauge is absent until the function
// values returns labels, and then keeps these labels.
func (s *Set) Info(name, help string, values func() []Label) {
	f := s.family(name, help, dto.MetricType_GAUGE)
	s.update = append(s.update, func() {
		if len(f.Metric) == 0 {
			if labels := values(); labels != nil {
				m := newSeries(dto.MetricType_GAUGE, pairs(labels))
				*m.value = 1
				f.Metric = append(f.Metric, m.Metric)
			}
		}
	})
}

// Vector is a metric whose series are determined at each scrape.
type Vector struct {
	family *dto.MetricFamily
	label  string
	made   []series // series of all scrapes so far, for reuse
}

// Add adds the next series of this scrape: its label, and its value.
func (v *Vector) Add(label string, value float64) {
	n := len(v.family.Metric)
	if n == len(v.made) {
		v.made = append(v.made, newSeries(*v.family.Type, []*dto.LabelPair{{Name: &v.label, Value: new(string)}}))
	}
	m := v.made[n]
	*m.Label[0].Value, *m.value = label, value
	v.family.Metric = append(v.family.Metric, m.Metric)
}

// Gauges adds a gauge whose series the function fill adds at each scrape.
func (s *Set) Gauges(name, help, label string, fill func(*Vector)) {
	s.vector(name, help, label, dto.MetricType_GAUGE, fill)
}

// Counters does the same as Gauges for counters.
func (s *Set) Counters(name, help, label string, fill func(*Vector)) {
	s.vector(name, help, label, dto.MetricType_COUNTER, fill)
}

func (s *Set) vector(name, help, label string, kind dto.MetricType, fill func(*Vector)) {
	v := &Vector{family: s.family(name, help, kind), label: label}
	s.update = append(s.update, func() {
		v.family.Metric = v.family.Metric[:0]
		fill(v)
	})
}

func (s *Set) add(name, help string, kind dto.MetricType, m *dto.Metric) {
	f := s.family(name, help, kind)
	f.Metric = append(f.Metric, m)
}

// family returns the metric of that name, or creates it.
func (s *Set) family(name, help string, kind dto.MetricType) *dto.MetricFamily {
	for _, f := range s.families {
		if *f.Name == name {
			return f
		}
	}
	f := &dto.MetricFamily{Name: &name, Help: &help, Type: &kind}
	s.families = append(s.families, f)
	return f
}

// read updates all values and returns the metrics, which are valid until the next read.
func (s *Set) read() []*dto.MetricFamily {
	if !s.sorted {
		s.sorted = true
		slices.SortFunc(s.families, func(a, b *dto.MetricFamily) int { return cmp.Compare(*a.Name, *b.Name) })
	}
	for _, update := range s.update {
		update()
	}
	s.shown = s.shown[:0]
	for _, f := range s.families {
		if len(f.Metric) > 0 { // a family without a series would be an error that ends the output
			s.shown = append(s.shown, f)
		}
	}
	return s.shown
}

func pairs(labels []Label) (out []*dto.LabelPair) {
	for _, l := range labels {
		out = append(out, &dto.LabelPair{Name: &l.Name, Value: &l.Value})
	}
	slices.SortFunc(out, func(a, b *dto.LabelPair) int { return cmp.Compare(*a.Name, *b.Name) })
	return out
}

// keptSets is how many sets a Source keeps for later scrapes. More sets are in use only while a
// client reads slowly.
const keptSets = 2

// Source lends each scrape a set that no other scrape uses, so that a slow reader does not delay
// another reader. It is a prometheus.TransactionalGatherer.
type Source struct {
	build func() *Set
	free  chan *Set
}

// NewSource returns a source of equal sets, each made by the function build.
func NewSource(build func() *Set) *Source {
	return &Source{build: build, free: make(chan *Set, keptSets)}
}

// Gather returns the present metrics, which the caller may use until it calls done.
func (s *Source) Gather() (families []*dto.MetricFamily, done func(), err error) {
	var set *Set
	select {
	case set = <-s.free:
	default:
		set = s.build()
	}
	return set.read(), func() {
		select {
		case s.free <- set:
		default:
		}
	}, nil
}

// JSON returns the metrics whose names begin with prefix as one JSON object: a number for a metric
// without labels, an object from the label's value to a number for a metric with one label,
// {"count": …, "sum": …} for a histogram, and an object with the labels for an info metric.
func (s *Set) JSON(prefix string) ([]byte, error) {
	all := map[string]any{}
	for _, f := range s.read() {
		if strings.HasPrefix(f.GetName(), prefix) {
			all[f.GetName()] = plainValue(f)
		}
	}
	return json.Marshal(all)
}

func plainValue(f *dto.MetricFamily) any {
	values := map[string]any{}
	for _, m := range f.Metric {
		switch labels := m.Label; {
		case m.Histogram != nil:
			values["count"], values["sum"] = m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum()
		case len(labels) == 0:
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		case len(labels) > 1:
			for _, l := range labels {
				values[l.GetName()] = l.GetValue()
			}
		default:
			values[labels[0].GetValue()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return values
}
