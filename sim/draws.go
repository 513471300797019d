package sim

// draws is the SplitMix64 generator, which any language repeats bit for bit.
//
// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
// OOPSLA 2014; the first draw of seed 0 is e220a8397b1dcdaf.
type draws struct{ state uint64 }

//rt:noalloc
func (d *draws) next() uint64 {
	d.state += 0x9E3779B97F4A7C15
	z := d.state
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// uniform draws from [lo, hi) with 53 bits.
//
//rt:noalloc
func (d *draws) uniform(lo, hi float64) float64 {
	return lo + float64((hi-lo)*(float64(d.next()>>11)*0x1p-53))
}

// place draws a place on one side of the table, x before y.
//
//rt:noalloc
func (d *draws) place(side int) Point {
	x := float64(side) * d.uniform(0.15, 0.21)
	return Point{X: x, Y: d.uniform(-0.04, 0.04)}
}
