package faults

import (
	"math"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/sim/fleet"
)

// Interval is a mean over episodes with its 95 % confidence interval. N counts
// the episodes that have a value.
type Interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	N    int     `json:"n"`
}

// interval returns the mean of the values that are numbers, with Student's interval.
func interval(values []float64) Interval {
	values = slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	n := len(values)
	if n == 0 {
		return Interval{}
	}
	i := Interval{N: n, Mean: mean(values)}
	half := 0.0
	if n > 1 {
		squares := 0.0
		for _, v := range values {
			squares += (v - i.Mean) * (v - i.Mean)
		}
		half = student(n-1) * math.Sqrt(squares/float64(n-1)/float64(n))
	}
	i.Low, i.High = i.Mean-half, i.Mean+half
	return i
}

// student is the 97.5 % quantile of Student's distribution, within 1 % from 3
// degrees of freedom on.
//
// Source: Abramowitz and Stegun 26.7.5.
func student(degrees int) float64 {
	switch degrees {
	case 1:
		return 12.706
	case 2:
		return 4.303
	}
	const z = 1.959964
	v := float64(degrees)
	return z + (z*z*z+z)/(4*v) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*v*v) +
		(3*math.Pow(z, 7)+19*math.Pow(z, 5)+17*z*z*z-15*z)/(384*v*v*v)
}

// difference returns the mean of the differences between two contenders' values in the same episodes, with
// its interval.
func difference(a, b []float64) Interval {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	return interval(d)
}

// metric is one figure of an episode.
type metric struct {
	Key, Title, Unit string
	Column, Format   string // heading and format of a mean in the table; empty: not in the table
}

// metrics are the columns of the comparison; valuesOf has their values.
var metrics = []metric{
	{"success", "success per leg", "%", "success %", "%.1f"},
	{"reached", "targets reached", "/min", "reached/min", "%.1f"},
	{"leg_seconds", "time per leg", "s", "s/leg", "%.2f"},
	{"starved_ticks", "starved ticks", "/min", "starved/min", "%.1f"},
	{"recovery_ms", "recovery after a loss", "ms", "recovery ms", "%.0f"},
	{"seam_degrees", "seam jump p95", "deg", "seam p95 deg", "%.2f"},
	{"mode_switches", "mode switches", "/min", "switches/min", "%.2f"},
	{"age_ms", "action age p95", "ms", "age p95 ms", "%.0f"},
	{"inferences", "inferences", "/s", "infer/s", "%.2f"},
	{"requests", "requests", "/s", "", ""},
	{"actions_per_request", "actions for each request", "", "", ""},
	{"idle_ms", "length of a time without actions", "ms", "", ""},
	{"kilobytes", "sent both ways", "kB/s", "kB/s", "%.0f"},
	{"again_ticks", "repeated after the estimate, at most", "ticks", "", ""},
	{"again_due_ticks", "of these, such on which a request was due", "ticks", "", ""},
}

// valuesOf returns the values of an episode of length d by the metrics' keys; NaN where the episode lacks the value.
func valuesOf(o *fleet.Outcome, d time.Duration) map[string]float64 {
	return map[string]float64{
		"success":             100 * o.Success(),
		"reached":             float64(o.Both().Reached) / d.Minutes(),
		"leg_seconds":         mean(o.LegTicks) / fleet.FPS,
		"starved_ticks":       float64(o.Starved+o.Waited) / d.Minutes(),
		"recovery_ms":         mean(o.Recoveries) / float64(time.Millisecond),
		"seam_degrees":        quantile(o.Seams, 0.95),
		"mode_switches":       float64(o.Switches) / d.Minutes(),
		"age_ms":              float64(o.Age(0.95)) * fleet.Period.Seconds() * 1000,
		"inferences":          float64(o.Inferences) / d.Seconds(),
		"requests":            float64(o.Requests) / d.Seconds(),
		"actions_per_request": float64(o.Actions) / float64(o.Requests),
		"idle_ms":             mean(o.Idles) * 1000 / fleet.FPS,
		"kilobytes":           float64(o.UpBytes+o.DownBytes) / 1000 / d.Seconds(),
		"again_ticks":         quantile(o.Again, 1),
		"again_due_ticks":     quantile(o.AgainDue, 1),
	}
}

// quantile does the same as fleet.Quantile, but returns NaN without values.
func quantile[T int | float64](values []T, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return float64(fleet.Quantile(values, q))
}

// mean returns NaN without values.
func mean[T int | float64 | time.Duration](values []T) float64 {
	sum := 0.0
	for _, v := range values {
		sum += float64(v)
	}
	return sum / float64(len(values))
}
