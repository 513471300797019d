package report

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/edge-rt/edge-rt/bench"
)

// The margins around the drawing of a histogram, in SVG units.
const (
	left, right = 50, 34
	top, bottom = 56, 38
	height      = 300
)

// XAxis returns the axis of times, in microseconds, for histograms of that width.
func XAxis(width int, low, high float64, log bool) Axis {
	return Axis{
		Low:  low,
		High: high,
		From: left,
		To:   float64(width - right),
		Log:  log,
	}
}

// Histogram draws distributions of times over one x axis; y is the logarithm of the count.
type Histogram struct {
	x, y    Axis
	bins    int
	legends int
	svg     strings.Builder
}

// NewHistogram begins a drawing with that number of bins along x; most is the largest count of a
// bin.
func NewHistogram(title, label string, x Axis, bins int, most float64) *Histogram {
	h := &Histogram{x: x, bins: bins, y: Axis{
		Low:  0.5,
		High: max(most, 1),
		From: height - bottom,
		To:   top,
		Log:  true,
	}}
	fmt.Fprintf(&h.svg, `<svg viewBox="0 0 %.0f %d" role="img" aria-label="%s"><text x="%d" y="16">%s</text>`,
		x.To+right, height, escape(title), left, escape(title))
	for _, v := range x.ticks() {
		at := x.At(v)
		fmt.Fprintf(&h.svg,
			`<line class="grid" x1="%.1f" x2="%.1f" y1="%.0f" y2="%.0f"/><text x="%.1f" y="%.0f" text-anchor="middle">%s</text>`,
			at, at, h.y.To, h.y.From, at, h.y.From+14, microseconds(v))
	}
	for _, n := range h.y.ticks() {
		at := h.y.At(n)
		fmt.Fprintf(&h.svg,
			`<line class="grid" x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f"/><text x="%.0f" y="%.1f" text-anchor="end">%.0f</text>`,
			x.From, x.To, at, at, x.From-5, at+4, n)
	}
	fmt.Fprintf(&h.svg, `<text x="%.0f" y="%.0f" text-anchor="middle">%s</text>`, (x.From+x.To)/2, h.y.From+30,
		escape(label))
	return h
}

// Counts divides an axis into bins and counts a tally's times in each bin. It leaves out times
// beyond the ends of the axis.
func Counts(t *bench.Tally, x Axis, bins int) []float64 {
	counts := make([]float64, bins)
	for us, n := range t.Bins() {
		v := float64(us)
		if x.Log {
			v = max(v, 1)
		}
		if i := int(x.share(v)*float64(bins) + 1e-9); v >= x.Low && i < bins {
			counts[i] += float64(n)
		}
	}
	return counts
}

// Add draws a tally in the style of class, "ours" or "other", with its quantiles
// in the legend.
func (h *Histogram) Add(class, name string, t *bench.Tally, q bench.Quantiles) {
	fmt.Fprintf(&h.svg, `<path class="%s" d="M%.0f %.0f`, class, h.x.From, h.y.From)
	for i, n := range Counts(t, h.x, h.bins) {
		from, to := h.x.value(float64(i)/float64(h.bins)), h.x.value(float64(i+1)/float64(h.bins))
		fmt.Fprintf(&h.svg, "L%.1f %.1fL%.1f %.1f", h.x.At(from), h.y.At(n), h.x.At(to), h.y.At(n))
	}
	fmt.Fprintf(&h.svg, `L%.0f %.0fZ"/>`, h.x.To, h.y.From)
	fmt.Fprintf(&h.svg,
		`<text class="of-%s" x="%.0f" y="%d" text-anchor="end">%s: p50 %.0f, p99 %.0f, max %.0f us</text>`,
		class, h.x.To, 32+14*h.legends, escape(name), q.P50, q.P99, q.Max)
	h.legends++
}

// SVG returns the drawing, which contains only numbers and escaped names.
func (h *Histogram) SVG() template.HTML { return template.HTML(h.svg.String() + "</svg>") }

func escape(text string) string { return template.HTMLEscapeString(text) }
