package faults

import (
	"math"
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
	n, sum := 0, 0.0
	for _, v := range values {
		if !math.IsNaN(v) {
			n++
			sum += v
		}
	}
	if n == 0 {
		return Interval{}
	}
	i := Interval{N: n, Mean: sum / float64(n)}
	i.Low, i.High = i.Mean, i.Mean
	if n == 1 {
		return i
	}
	squares := 0.0
	for _, v := range values {
		if !math.IsNaN(v) {
			squares += (v - i.Mean) * (v - i.Mean)
		}
	}
	half := student(n-1) * math.Sqrt(squares/float64(n-1)/float64(n))
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

// metric is one figure of an episode; its value is NaN if the episode lacks it.
type metric struct {
	Key, Title, Unit string
	Column, Format   string // heading and format of a mean in the table; empty: not in the table
	Of               func(o *fleet.Outcome, d time.Duration) float64
}

// metrics are the columns of the comparison.
var metrics = []metric{
	{"success", "success per leg", "%", "success %", "%.1f", func(o *fleet.Outcome, _ time.Duration) float64 {
		return 100 * o.Success()
	}},
	{"reached", "targets reached", "/min", "reached/min", "%.1f", func(o *fleet.Outcome, d time.Duration) float64 {
		return perMinute(o.Both().Reached, d)
	}},
	{"leg_seconds", "time per leg", "s", "s/leg", "%.2f", func(o *fleet.Outcome, _ time.Duration) float64 {
		return mean(o.LegTicks, func(t int) float64 { return float64(t) / fleet.FPS })
	}},
	{"starved_ticks", "starved ticks", "/min", "starved/min", "%.1f", func(o *fleet.Outcome, d time.Duration) float64 {
		return perMinute(o.Starved+o.Waited, d)
	}},
	{"recovery_ms", "recovery after a loss", "ms", "recovery ms", "%.0f",
		func(o *fleet.Outcome, _ time.Duration) float64 {
			return mean(o.Recoveries, func(d time.Duration) float64 { return d.Seconds() * 1000 })
		}},
	{"seam_degrees", "seam jump p95", "deg", "seam p95 deg", "%.2f", func(o *fleet.Outcome, _ time.Duration) float64 {
		if len(o.Seams) == 0 {
			return math.NaN()
		}
		return fleet.Quantile(o.Seams, 0.95)
	}},
	{"mode_switches", "mode switches", "/min", "switches/min", "%.2f", func(o *fleet.Outcome, d time.Duration) float64 {
		return perMinute(o.Switches, d)
	}},
	{"age_ms", "action age p95", "ms", "age p95 ms", "%.0f", func(o *fleet.Outcome, _ time.Duration) float64 {
		return float64(o.Age(0.95)) * fleet.Period.Seconds() * 1000
	}},
	{"inferences", "inferences", "/s", "infer/s", "%.2f", func(o *fleet.Outcome, d time.Duration) float64 {
		return float64(o.Inferences) / d.Seconds()
	}},
	{"requests", "requests", "/s", "", "", func(o *fleet.Outcome, d time.Duration) float64 {
		return float64(o.Requests) / d.Seconds()
	}},
	{"actions_per_request", "actions for each request", "", "", "", func(o *fleet.Outcome, _ time.Duration) float64 {
		if o.Requests == 0 {
			return math.NaN()
		}
		return float64(o.Actions) / float64(o.Requests)
	}},
	{"idle_ms", "length of a time without actions", "ms", "", "", func(o *fleet.Outcome, _ time.Duration) float64 {
		return mean(o.Idles, func(ticks int) float64 { return float64(ticks) / fleet.FPS * 1000 })
	}},
	{"kilobytes", "sent both ways", "kB/s", "kB/s", "%.0f", func(o *fleet.Outcome, d time.Duration) float64 {
		return float64(o.UpBytes+o.DownBytes) / 1000 / d.Seconds()
	}},
	{"again_ticks", "repeated after the estimate, at most", "ticks", "", "",
		func(o *fleet.Outcome, _ time.Duration) float64 {
			return most(o.Again)
		}},
	{"again_due_ticks", "of these, such on which a request was due", "ticks", "", "",
		func(o *fleet.Outcome, _ time.Duration) float64 {
			return most(o.AgainDue)
		}},
}

func most(ticks []int) float64 {
	if len(ticks) == 0 {
		return math.NaN()
	}
	return float64(fleet.Quantile(ticks, 1))
}

func perMinute(n int, d time.Duration) float64 { return float64(n) / d.Minutes() }

func mean[T any](values []T, of func(T) float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, v := range values {
		sum += of(v)
	}
	return sum / float64(len(values))
}
