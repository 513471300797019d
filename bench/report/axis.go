package report

import (
	"fmt"
	"math"
)

// Axis takes values to places in a drawing, in SVG units.
type Axis struct {
	Low, High float64 // values at its ends
	From, To  float64 // their places
	Log       bool    // by the logarithm; Low is above 0
}

// share is where a value lies between the ends, 0 to 1 of it.
func (a Axis) share(v float64) float64 {
	if a.Log {
		return math.Log(v/a.Low) / math.Log(a.High/a.Low)
	}
	return (v - a.Low) / (a.High - a.Low)
}

// At returns the place of a value, the nearer end's for one beyond. An axis
// whose ends are one has all at its beginning.
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

// linearTicks is into how many parts an axis without a logarithm is divided.
const linearTicks = 8

// ticks are the values to write beside the axis: powers of ten, or equal parts.
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

// microseconds writes so many of them, whole milliseconds and seconds as such.
func microseconds(us float64) string {
	switch {
	case us >= 1e6 && math.Mod(us, 1e6) == 0:
		return fmt.Sprintf("%.0f s", us/1e6)
	case us >= 1e3 && math.Mod(us, 1e3) == 0:
		return fmt.Sprintf("%.0f ms", us/1e3)
	}
	return fmt.Sprintf("%.0f us", us)
}
