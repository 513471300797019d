// Package stage holds what may stand between the schedule and the last gate
// before the bus, each optional and each on its own: a low-pass filter per joint,
// LeRobot's action interpolator, and limits of velocity and acceleration.
//
// A stage changes a row in place, allocates nothing after it is made, and can
// preview: what it would make of the rows that run next, without running them, so
// that the policy is conditioned on what the arm will do.
package stage

import (
	"fmt"
	"math"
	"math/cmplx"
)

// MaxOrder is the highest order of a Butterworth filter.
const MaxOrder = 4

// The pass bands that a digital filter can have, as shares of half the rate.
const (
	lowestBand  = 0.01
	highestBand = 0.99
)

// ButterworthConfig describes a low-pass filter.
type ButterworthConfig struct {
	FPS    float64 // rows per second
	Cutoff float64 // Hz, where the amplitude has fallen to 0.71
	Order  int     // 1 to MaxOrder; 0: 2
	Gain   float64 // of each step towards the filtered value, above 0 and below 2; 0: 1
}

// Butterworth smooths each joint. The first row passes as it is, as if the joint
// had been there for ever.
//
// With a gain g other than 1 the output moves from its last value by g times the
// distance to the filtered one: above 1 that makes up for some of the filter's
// lag, and rings.
//
// Source: Distributed Real-Time Chunking, additional implementation details; the
// program's utils at d20888c, which take scipy's butter and sosfilt.
type Butterworth struct {
	sections []section
	gain     float64
	primed   bool
	now      memory
	ahead    memory // scratch of Preview
}

// section is a second-order section; b, a as scipy has them, a[0] = 1.
type section struct{ b0, b1, b2, a1, a2 float64 }

// memory is the state of every joint: two values for each section, and the last
// output.
type memory struct {
	z    [][2]float64 // [dof*sections]
	last []float64    // [dof]
}

func newMemory(dof, sections int) memory {
	return memory{make([][2]float64, dof*sections), make([]float64, dof)}
}

// NewButterworth returns the filter for rows of dof joints.
func NewButterworth(c ButterworthConfig, dof int) (*Butterworth, error) {
	if c.Order == 0 {
		c.Order = 2
	}
	if c.Gain == 0 {
		c.Gain = 1
	}
	if low, high := lowestBand*c.FPS/2, highestBand*c.FPS/2; !(c.Cutoff >= low && c.Cutoff <= high) {
		return nil, fmt.Errorf("stage: a cutoff of %v Hz, want %.3g to %.3g at %v actions per second", c.Cutoff, low, high, c.FPS)
	}
	if c.Order < 1 || c.Order > MaxOrder {
		return nil, fmt.Errorf("stage: a filter of order %d, want 1 to %d", c.Order, MaxOrder)
	}
	if !(c.Gain > 0 && c.Gain < 2) {
		return nil, fmt.Errorf("stage: a filter gain of %v, want above 0 and below 2: from 2 on the output never settles", c.Gain)
	}
	return newButterworth(c, dof), nil
}

func newButterworth(c ButterworthConfig, dof int) *Butterworth {
	s := design(c.Cutoff, c.FPS, c.Order)
	return &Butterworth{sections: s, gain: c.Gain, now: newMemory(dof, len(s)), ahead: newMemory(dof, len(s))}
}

// design returns the sections of scipy's butter(order, cutoff/(fps/2),
// output="sos"): the bilinear transform of the analogue poles, the pair nearest to
// the unit circle last, the whole gain in the first section.
func design(cutoff, fps float64, order int) (s []section) {
	const rate = 4 // twice scipy's sampling frequency of 2
	band := min(max(cutoff/(fps/2), lowestBand), highestBand)
	warped := rate * math.Tan(math.Pi*band/2)
	pole := func(angle float64) complex128 {
		p := complex(warped, 0) * cmplx.Exp(complex(0, angle))
		return (rate + p) / (rate - p)
	}
	if order%2 == 1 {
		s = append(s, section{b0: 1, b1: 1, a1: -real(pole(math.Pi))})
	}
	// From the real axis outwards, where the damping is least.
	for k := order / 2; k >= 1; k-- {
		p := pole(math.Pi/2 + math.Pi*float64(2*k-1)/float64(2*order))
		s = append(s, section{1, 2, 1, -2 * real(p), real(p)*real(p) + imag(p)*imag(p)})
	}
	// Of an odd order's three zeros at -1 and one at 0, scipy gives the last pair
	// of poles the nearest and one at -1, the real pole the others.
	if last := len(s) - 1; order%2 == 1 && last > 0 && -s[last].a1/2 > -0.5 {
		s[0].b1, s[0].b2 = 2, 1
		s[last].b1, s[last].b2 = 1, 0
	}
	gain := 1.0
	for _, x := range s {
		gain *= (1 + x.a1 + x.a2) / (x.b0 + x.b1 + x.b2)
	}
	s[0].b0, s[0].b1, s[0].b2 = gain*s[0].b0, gain*s[0].b1, gain*s[0].b2
	return s
}

// Apply filters the row, [dof], in place.
//
//rt:noalloc
func (f *Butterworth) Apply(row []float32) {
	f.run(&f.now, f.primed, row)
	f.primed = true
}

// Preview does to rows, [n*dof], what Apply would if they came next.
//
//rt:noalloc
func (f *Butterworth) Preview(rows []float32) {
	copy(f.ahead.z, f.now.z)
	copy(f.ahead.last, f.now.last)
	dof := len(f.now.last)
	for primed := f.primed; len(rows) >= dof; rows = rows[dof:] {
		f.run(&f.ahead, primed, rows[:dof])
		primed = true
	}
}

// Reset forgets the past: the next row passes as it is.
//
//rt:noalloc
func (f *Butterworth) Reset() { f.primed = false }

//rt:noalloc
func (f *Butterworth) run(m *memory, primed bool, row []float32) {
	n := len(f.sections)
	for j := range row {
		z, x := m.z[j*n:(j+1)*n], float64(row[j])
		if !primed {
			f.settle(z, x)
			m.last[j] = x
			continue
		}
		m.last[j] = f.step(z, m.last[j], x)
		row[j] = float32(m.last[j])
	}
}

// settle makes the state that of an input that was x for ever.
//
//rt:noalloc
func (f *Butterworth) settle(z [][2]float64, x float64) {
	for i, s := range f.sections {
		y := x * (s.b0 + s.b1 + s.b2) / (1 + s.a1 + s.a2)
		z[i][1] = float64(s.b2*x) - float64(s.a2*y)
		z[i][0] = float64(s.b1*x) - float64(s.a1*y) + z[i][1]
		x = y
	}
}

// step is one input through all sections, direct form II transposed, and the
// gain. The conversions keep arm64 from fusing products into sums.
//
//rt:noalloc
func (f *Butterworth) step(z [][2]float64, last, x float64) float64 {
	for i, s := range f.sections {
		y := float64(s.b0*x) + z[i][0]
		z[i][0] = float64(s.b1*x) - float64(s.a1*y) + z[i][1]
		z[i][1] = float64(s.b2*x) - float64(s.a2*y)
		x = y
	}
	if f.gain == 1 {
		return x
	}
	return last + float64(f.gain*(x-last))
}
