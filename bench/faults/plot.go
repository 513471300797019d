package faults

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/fleet"
	"github.com/edge-rt/edge-rt/sim/netfault"
)

// The layout of a figure, in SVG units.
const (
	figureWidth = 1000
	plotLeft    = 120
	plotRight   = 985
	panelGap    = 26
)

// figure draws one episode as the DRTC paper does, over one time axis.
type figure struct {
	b       strings.Builder
	ticks   []fleet.Tick
	seconds float64
	kinds   []netfault.Kind // kinds of the script's faults, each with a lane in the faults' panel
	y       float64         // top of the next panel
}

// jointNames label the trajectories.
var jointNames = [sim.DOF]string{"shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"}

func drawEpisode(title string, ticks []fleet.Tick, script *netfault.Script) string {
	f := &figure{ticks: ticks, seconds: float64(len(ticks)) * fleet.Period.Seconds(), y: 34}
	windows := windowsOf(script, len(ticks))
	for _, w := range windows {
		if !slices.Contains(f.kinds, w.kind) {
			f.kinds = append(f.kinds, w.kind)
		}
	}
	f.shade(windows)
	for j, name := range jointNames {
		f.trajectory(j, name)
	}
	f.gantt(windows)
	f.events()
	f.curve("cooldown (ticks)", func(t *fleet.Tick) float64 { return float64(t.Cooldown) })
	f.latency()
	f.curve("actions left", left)
	f.axis("blue: goals, sent observations, estimate; orange: merged chunks, measured latency; grey: joints; red: " +
		"starved")
	return f.svg(title)
}

func left(t *fleet.Tick) float64 { return float64(t.Size) }

// drawQueues draws how many actions are left over time, in a panel for each name, like the figure
// in LeRobot's blog post on asynchronous inference.
func drawQueues(title string, names []string, traces [][]fleet.Tick) string {
	f := &figure{y: 54}
	for i, name := range names {
		f.ticks, f.seconds = traces[i], float64(len(traces[i]))*fleet.Period.Seconds()
		top := f.y
		y := f.curve("actions left", left)
		f.sent(y(0) - 3)
		f.starved(top, y(0)-top)
		f.draw(`<text x="%d" y="%.1f">%s</text>`, plotLeft+4, top-6,
			template.HTMLEscapeString(name+": "+f.usage()))
		f.y += 14
	}
	f.axis("line: actions left; points: sent observations; red: idle")
	return f.svg(title)
}

// usage returns a text with the numbers of actions, requests and idle times in the episode.
func (f *figure) usage() string {
	actions := 0
	requests := 0
	idle := 0
	for i := range f.ticks {
		t := &f.ticks[i]
		if t.Requested {
			requests++
		}
		switch {
		case t.Starved:
			idle++
		case t.Step >= 0:
			actions++
		}
	}
	text := fmt.Sprintf("%d actions from %d requests, %.1f for each", actions, requests,
		float64(actions)/float64(max(requests, 1)))
	if n := len(stretches(len(f.ticks), f.starves)); n > 0 {
		text += fmt.Sprintf("; idle %d times, %.0f ms on average", n, float64(idle)/float64(n)/fleet.FPS*1000)
	}
	return text
}

func (f *figure) draw(format string, args ...any) { fmt.Fprintf(&f.b, format, args...) }

func (f *figure) svg(title string) string {
	title = template.HTMLEscapeString(title)
	return fmt.Sprintf(
		`<svg xmlns="http://www.w3.org/2000/svg" class="episode" viewBox="0 0 %d %.0f" role="img" aria-label="%s">%s<text x="%d" y="20" class="t">%s</text>%s</svg>`,
		figureWidth, f.y+30, title, svgStyle, plotLeft, title, f.b.String())
}

// svgStyle makes a figure readable outside the page, too. All figures of a page share its class
// names, which must match nothing else in the page.
const svgStyle = `<style>.episode{background:#fff}.episode text{font:11px system-ui,sans-serif;fill:#333}.episode .t{font-size:14px;font-weight:600}.g{stroke:#ccc;stroke-width:.7;fill:none}` +
	`.a{stroke:#0b6bcb;stroke-width:1.2;fill:none}.b{stroke:#c4511a;stroke-width:1.2;fill:none}.q{stroke:#999;stroke-width:.8;fill:none}.d{fill:#c4511a}.o{fill:#0b6bcb}` +
	`.w{fill:#c4511a;fill-opacity:.10}.f{fill:#c4511a;fill-opacity:.75}.s{fill:#b00020;fill-opacity:.35}</style>`

func (f *figure) x(seconds float64) float64 {
	return report.Axis{High: f.seconds, From: plotLeft, To: plotRight}.At(seconds)
}

func (f *figure) at(i int) float64 { return f.x(float64(i) * fleet.Period.Seconds()) }

// window is a span of time in which a fault acts.
type window struct {
	kind     netfault.Kind
	from, to float64 // seconds
}

// stretches returns the spans of successive ticks, from 0 to n-1, for which so(tick) is true, each as its first tick
// and the tick after its last.
func stretches(n int, so func(tick int) bool) (all [][2]int) {
	begun := -1
	for tick := range n + 1 {
		is := tick < n && so(tick)
		switch {
		case is && begun < 0:
			begun = tick
		case !is && begun >= 0:
			all = append(all, [2]int{begun, tick})
			begun = -1
		}
	}
	return all
}

func windowsOf(script *netfault.Script, ticks int) (out []window) {
	for i := range script.Faults {
		fault := &script.Faults[i]
		for _, s := range stretches(ticks, func(tick int) bool {
			return fault.Active(time.Duration(tick) * fleet.Period)
		}) {
			out = append(out, window{fault.Kind, float64(s[0]) / fleet.FPS, float64(s[1]) / fleet.FPS})
		}
	}
	return out
}

// shade marks the windows in the background of every panel. It leaves out windows that last the
// whole episode.
func (f *figure) shade(windows []window) {
	for _, w := range windows {
		if w.to-w.from < float64(len(f.ticks))/fleet.FPS {
			f.draw(`<rect class="w" x="%.1f" y="28" width="%.1f" height="%d"/>`, f.x(w.from),
				max(f.x(w.to)-f.x(w.from), 1), figureHeight+f.lanesHeight())
		}
	}
}

// figureHeight is the height of all panels below the title, without the faults' lanes.
const figureHeight = sim.DOF*(56+panelGap) + 5*(60+panelGap) + 10 - 60

// lanesHeight returns the height of the faults' panel, with room for a name in each lane.
func (f *figure) lanesHeight() int { return max(60, 15*len(f.kinds)) }

// panel begins a panel of this height. y returns the position of a value between low and high.
func (f *figure) panel(label string, height, low, high float64) (y func(v float64) float64) {
	top, bottom := f.y, f.y+height
	f.y = bottom + panelGap
	f.draw(`<text x="%d" y="%.1f" text-anchor="end">%s</text>`, plotLeft-8, (top+bottom)/2,
		template.HTMLEscapeString(label))
	f.draw(`<path class="g" d="M%d %.1fH%dM%d %.1fH%d"/>`, plotLeft, top, plotRight, plotLeft, bottom,
		plotRight)
	if high > low {
		f.draw(
			`<text x="%d" y="%.1f" text-anchor="end">%.3g</text><text x="%d" y="%.1f" text-anchor="end">%.3g</text>`,
			plotLeft-8, top+10, high, plotLeft-8, bottom, low)
	}
	return report.Axis{
		Low:  low,
		High: high,
		From: bottom,
		To:   top,
	}.At
}

// path draws a line through the ticks' values, with a gap where value returns false. It leaves out
// points that lie on a straight line.
func (f *figure) path(class string, y func(float64) float64, value func(t *fleet.Tick) (v float64, ok bool)) {
	var d strings.Builder
	pen := false
	for i := range f.ticks {
		v, ok := value(&f.ticks[i])
		if !ok {
			pen = false
			continue
		}
		if pen && i+1 < len(f.ticks) {
			before, _ := value(&f.ticks[i-1])
			if after, more := value(&f.ticks[i+1]); more && math.Abs(after-2*v+before) < 1e-9 {
				continue
			}
		}
		letter := 'L'
		if !pen {
			letter = 'M'
		}
		fmt.Fprintf(&d, "%c%.1f %.1f", letter, f.at(i), y(v))
		pen = true
	}
	f.draw(`<path class="%s" d="%s"/>`, class, d.String())
}

// trajectory draws a joint's goals, with a gap where no goal was due or the goal was missing.
func (f *figure) trajectory(joint int, name string) {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range f.ticks {
		low, high = min(low, f.ticks[i].Goal[joint], f.ticks[i].Q[joint]),
			max(high, f.ticks[i].Goal[joint], f.ticks[i].Q[joint])
	}
	if high-low < 1 {
		low, high = low-1, high+1
	}
	y := f.panel(name, 56, low, high)
	f.path("q", y, func(t *fleet.Tick) (float64, bool) { return t.Q[joint], true })
	f.path("a", y, func(t *fleet.Tick) (float64, bool) { return t.Goal[joint], !t.Starved && t.Step >= 0 })
}

// gantt draws each kind's windows in a lane.
func (f *figure) gantt(windows []window) {
	height := float64(f.lanesHeight())
	y := f.panel("faults", height, 0, 0)
	lane, top := height/float64(max(len(f.kinds), 1)), y(0)-height
	if len(f.kinds) == 0 {
		f.draw(`<text x="%d" y="%.1f">none</text>`, plotLeft+4, top+34)
	}
	for i, k := range f.kinds {
		at := top + float64(i)*lane
		for _, w := range windows {
			if w.kind == k {
				f.draw(`<rect class="f" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, f.x(w.from), at+1,
					max(f.x(w.to)-f.x(w.from), 2), lane-2)
			}
		}
		f.draw(`<text x="%d" y="%.1f">%s</text>`, plotLeft+4, at+lane/2+4, k)
	}
}

// events marks the ticks on which an observation was sent, an answer was merged, or an action was missing.
func (f *figure) events() {
	y := f.panel("sent, merged,", 60, 0, 0)
	bottom := y(0)
	f.draw(`<text x="%d" y="%.1f" text-anchor="end">starved</text>`, plotLeft-8, bottom-14)
	f.starved(bottom-18, 16)
	f.sent(bottom - 50)
	for i := range f.ticks {
		if f.ticks[i].Received {
			f.draw(`<circle class="d" r="1.8" cx="%.1f" cy="%.1f"/>`, f.at(i), bottom-32)
		}
	}
}

func (f *figure) starves(tick int) bool { return f.ticks[tick].Starved }

// starved marks the ticks without an action.
func (f *figure) starved(top, height float64) {
	for _, s := range stretches(len(f.ticks), f.starves) {
		f.draw(`<rect class="s" x="%.1f" y="%.1f" width="%.1f" height="%g"/>`, f.at(s[0]), top,
			max(f.at(s[1])-f.at(s[0]), 1), height)
	}
}

// sent marks when observations were sent.
func (f *figure) sent(y float64) {
	for i := range f.ticks {
		if f.ticks[i].Requested {
			f.draw(`<circle class="o" r="1.8" cx="%.1f" cy="%.1f"/>`, f.at(i), y)
		}
	}
}

func (f *figure) curve(label string, of func(t *fleet.Tick) float64) (y func(v float64) float64) {
	high := 1.0
	for i := range f.ticks {
		high = max(high, of(&f.ticks[i]))
	}
	y = f.panel(label, 60, 0, high)
	f.path("a", y, func(t *fleet.Tick) (float64, bool) { return of(t), true })
	return y
}

// latency draws the estimate as a line and every measured round trip as a point.
func (f *figure) latency() {
	high := 1.0
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	estimate := func(t *fleet.Tick) float64 { return float64(t.Estimate) * ms(fleet.Period) }
	for i := range f.ticks {
		high = max(high, estimate(&f.ticks[i]), ms(f.ticks[i].Measured))
	}
	y := f.panel("latency (ms)", 60, 0, high)
	f.path("a", y, func(t *fleet.Tick) (float64, bool) { return estimate(t), true })
	for i := range f.ticks {
		if f.ticks[i].Received {
			f.draw(`<circle class="d" r="1.8" cx="%.1f" cy="%.1f"/>`, f.at(i), y(ms(f.ticks[i].Measured)))
		}
	}
}

// axis draws the axis of time, with the meaning of the colours.
func (f *figure) axis(legend string) {
	step := 1.0
	for f.seconds/step > 25 {
		step *= 5
	}
	for s := 0.0; s <= f.seconds+1e-9; s += step {
		f.draw(`<text x="%.1f" y="%.1f" text-anchor="middle">%g</text>`, f.x(s), f.y-8, s)
	}
	f.draw(
		`<text x="%d" y="%.1f" text-anchor="middle">seconds; %s</text>`,
		(plotLeft+plotRight)/2, f.y+8, legend)
	f.y += 8
}
