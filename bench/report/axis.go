package report

import (
	"fmt"
	"math"
)

// Axis maps values to positions in a drawing, in SVG units.
type Axis struct {
	Low, High float64 // values at its ends
	From, To  float64 // their positions
	Log       bool    // logarithmic; Low is above 0
}

// share returns the position of a value between the ends, 0 to 1.
func (a Axis) share(v float64) float64 {
	if a.Log {
		return math.Log(v/a.Low) / math.Log(a.High/a.Low)
	}
	return (v - a.Low) / (a.High - a.Low)
}

// At returns the position of a value; a value beyond an end is at that end. On an axis whose ends
// are equal every value is at the beginning.
func (a Axis) At(v float64) float64 {
	if a.High <= a.Low {
		return a.From
	}
	v = min(max(v, a.Low), a.High)
	return a.From + a.share(v)*(a.To-a.From)
}

// value is the inverse of share.
func (a Axis) value(share float64) float64 {
	if a.Log {
		return a.Low * math.Pow(a.High/a.Low, share)
	}
	return a.Low + share*(a.High-a.Low)
}

// linearTicks is the number of parts of a linear axis.
const linearTicks = 8

// ticks returns the values to write beside the axis: powers of ten, or equal parts.
func (a Axis) ticks() (values []float64) {
	if a.Log {
		for d := math.Ceil(math.Log10(a.Low) - 1e-9); d <= math.Log10(a.High)+1e-9; d++ {
			values = append(values, math.Pow(10, d))
		}
		return values
	}
	for i := range linearTicks + 1 {
		values = append(values, a.value(float64(i)/linearTicks))
	}
	return values
}

// microseconds formats a time in microseconds: as whole seconds or milliseconds if it is a whole number of them.
func microseconds(us float64) string {
	switch {
	case us >= 1e6 && math.Mod(us, 1e6) == 0:
		return fmt.Sprintf("%.0f s", us/1e6)
	case us >= 1e3 && math.Mod(us, 1e3) == 0:
		return fmt.Sprintf("%.0f ms", us/1e3)
	}
	return fmt.Sprintf("%.0f us", us)
}
