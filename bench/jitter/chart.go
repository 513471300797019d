package jitter

import (
	"fmt"
	"math"
	"strings"

	"edgert/bench"
)

// The charts' layout, in SVG units.
const (
	chartWidth, chartHeight = 460, 300
	left, right             = 44, 448
	top, bottom             = 56, 262
)

// barsPerDecade is how finely the logarithm of a lateness is divided; single
// microseconds would be lines too thin to see.
const barsPerDecade = 24

// axes are shared by all charts of a page, so that one can compare by eye: x is
// the logarithm of the lateness in microseconds, y that of the count.
type axes struct {
	decadesX0, decadesX1 float64 // powers of ten
	decadesY1            float64 // from half a tick up
}

// axesOf spans everything the report's histograms hold.
func axesOf(r *Report) axes {
	a := axes{decadesX0: math.Inf(1), decadesX1: 1, decadesY1: 1}
	span := func(t *Total) {
		a.decadesX1 = max(a.decadesX1, math.Ceil(math.Log10(max(t.Lateness.Max, 1))))
		a.decadesX0 = min(a.decadesX0, math.Floor(math.Log10(max(t.Lateness.P50/4, 1))))
		if t.Tally != nil {
			for _, n := range bars(t.Tally) {
				a.decadesY1 = max(a.decadesY1, math.Ceil(math.Log10(float64(n))))
			}
		}
	}
	for i := range r.Results {
		span(&r.Results[i].Total)
		if ref := r.Results[i].Reference; ref != nil {
			span(ref)
		}
	}
	a.decadesX0 = min(a.decadesX0, a.decadesX1-1)
	return a
}

// bars counts a tally by the barsPerDecade-th of a decade.
func bars(t *bench.Tally) map[int]uint64 {
	counts := map[int]uint64{}
	for us, n := range t.Bins() {
		counts[barOf(us)] += n
	}
	return counts
}

func barOf(us int64) int {
	return int(math.Floor(math.Log10(max(float64(us), 1)) * barsPerDecade))
}

func (a axes) x(us float64) float64 {
	at := (math.Log10(max(us, 1)) - a.decadesX0) / (a.decadesX1 - a.decadesX0)
	return left + min(max(at, 0), 1)*(right-left)
}

// y of one tick is above the axis: half a tick is on it.
func (a axes) y(n float64) float64 {
	base := math.Log10(0.5)
	return bottom - (math.Log10(max(n, 0.5))-base)/(a.decadesY1-base)*(bottom-top)
}

// outline is the histogram as a path of steps.
func (a axes) outline(t *bench.Tally) string {
	counts := bars(t)
	var b strings.Builder
	fmt.Fprintf(&b, "M%d %d", left, bottom)
	last := int(a.decadesX1 * barsPerDecade)
	for i := int(a.decadesX0 * barsPerDecade); i <= last; i++ {
		from, to := math.Pow(10, float64(i)/barsPerDecade), math.Pow(10, float64(i+1)/barsPerDecade)
		fmt.Fprintf(&b, "L%.1f %.1fL%.1f %.1f", a.x(from), a.y(float64(counts[i])), a.x(to), a.y(float64(counts[i])))
	}
	fmt.Fprintf(&b, "L%d %dZ", right, bottom)
	return b.String()
}

// grid draws the axes with their powers of ten.
func (a axes) grid(b *strings.Builder) {
	for d := a.decadesX0; d <= a.decadesX1; d++ {
		x := a.x(math.Pow(10, d))
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`,
			x, x, top, bottom, x, bottom+14, microseconds(d))
	}
	for d := 0.0; d <= a.decadesY1; d++ {
		y := a.y(math.Pow(10, d))
		fmt.Fprintf(b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%.0f</text>`,
			left, right, y, y, left-5, y+4, math.Pow(10, d))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">lateness (x) and ticks (y)</text>`, (left+right)/2, bottom+30)
}

// microseconds writes a power of ten of them.
func microseconds(decade float64) string {
	switch {
	case decade >= 6:
		return fmt.Sprintf("%.0f s", math.Pow(10, decade-6))
	case decade >= 3:
		return fmt.Sprintf("%.0f ms", math.Pow(10, decade-3))
	}
	return fmt.Sprintf("%.0f us", math.Pow(10, decade))
}
