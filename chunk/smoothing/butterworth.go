package smoothing

import (
	"cmp"
	"fmt"
	"math"
	"math/cmplx"
)

// maxOrder is the highest order of a filter.
const maxOrder = 4

// The bounds of a filter's cutoff frequency, as shares of half the rate.
const (
	lowestBand  = 0.01
	highestBand = 0.99
)

// butterworth smooths each joint; the first row passes unchanged. With a gain g other than 1 the
// output moves by g times the distance to the filtered value: a gain above 1 compensates some of
// the filter's lag, and rings.
//
// Source: Distributed Real-Time Chunking, additional implementation details; the program's utils at
// d20888c, which take scipy's butter and sosfilt.
type butterworth struct {
	sections []section
	gain     float64
	primed   bool
	now      memory
	ahead    memory // scratch of preview
}

// section is a second-order section with scipy's coefficients b and a, where a[0] is 1.
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

// newButterworth returns the filter of c for rows of dof joints, fps rows per
// second.
func newButterworth(c Config, fps float64, dof int) (*butterworth, error) {
	order, gain := cmp.Or(c.Order, 2), cmp.Or(c.Gain, 1)
	if low, high := lowestBand*fps/2, highestBand*fps/2; !(c.Cutoff >= low && c.Cutoff <= high) {
		return nil, fmt.Errorf("smoothing: a cutoff of %v Hz, want %.3g to %.3g at %v actions per second", c.Cutoff,
			low,
			high, fps)
	}
	if order < 1 || order > maxOrder {
		return nil, fmt.Errorf("smoothing: a filter of order %d, want 1 to %d", order, maxOrder)
	}
	if !(gain > 0 && gain < 2) {
		return nil, fmt.Errorf("smoothing: a filter gain of %v, want above 0 and below 2: from 2 on the output never "+
			"settles", gain)
	}
	return filterOf(design(c.Cutoff, fps, order), gain, dof), nil
}

func filterOf(s []section, gain float64, dof int) *butterworth {
	return &butterworth{
		sections: s,
		gain:     gain,
		now:      newMemory(dof, len(s)),
		ahead:    newMemory(dof, len(s)),
	}
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
	// The pairs of poles follow the real pole. The last pair has the least damping.
	for k := order / 2; k >= 1; k-- {
		p := pole(math.Pi/2 + math.Pi*float64(2*k-1)/float64(2*order))
		s = append(s, section{1, 2, 1, -2 * real(p), real(p)*real(p) + imag(p)*imag(p)})
	}
	// With an odd order there are three zeros at -1 and one at 0 for the last pair of poles and the real pole. scipy
	// assigns the zero nearest to the last pair and a zero at -1 to this pair, and the two other zeros to the real
	// pole.
	if last := len(s) - 1; order%2 == 1 && last > 0 && -s[last].a1/2 > -0.5 {
		s[0].b1, s[0].b2 = 2, 1
		s[last].b1, s[last].b2 = 1, 0
	}
	gain := 1.0
	for _, x := range s {
		gain *= (1 + x.a1 + x.a2) / (x.b0 + x.b1 + x.b2)
	}
	s[0].b0 = gain * s[0].b0
	s[0].b1 = gain * s[0].b1
	s[0].b2 = gain * s[0].b2
	return s
}

// apply filters the row, [dof], in place.
//
//rt:noalloc
func (f *butterworth) apply(row []float32) {
	f.run(&f.now, f.primed, row)
	f.primed = true
}

// preview replaces rows, [n*dof], by the rows that apply would return for them. It changes no state.
//
//rt:noalloc
func (f *butterworth) preview(rows []float32) {
	copy(f.ahead.z, f.now.z)
	copy(f.ahead.last, f.now.last)
	dof := len(f.now.last)
	for primed := f.primed; len(rows) >= dof; rows = rows[dof:] {
		f.run(&f.ahead, primed, rows[:dof])
		primed = true
	}
}

//rt:noalloc
func (f *butterworth) reset() { f.primed = false }

//rt:noalloc
func (f *butterworth) run(m *memory, primed bool, row []float32) {
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

// settle sets the state that a constant input x would have led to.
//
//rt:noalloc
func (f *butterworth) settle(z [][2]float64, x float64) {
	for i, s := range f.sections {
		y := x * (s.b0 + s.b1 + s.b2) / (1 + s.a1 + s.a2)
		z[i][1] = float64(s.b2*x) - float64(s.a2*y)
		z[i][0] = float64(s.b1*x) - float64(s.a1*y) + z[i][1]
		x = y
	}
}

// step filters the value x of a joint in direct form II transposed. The conversions keep arm64 from fusing the products
// into the sums.
//
//rt:noalloc
func (f *butterworth) step(z [][2]float64, last, x float64) float64 {
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
