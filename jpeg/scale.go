package jpeg

// Scaler scales an RGB picture to another size. Where a side shrinks, a pixel of the result is the mean of the pixels
// that it covers; where a side grows, it is interpolated linearly between the middles of two pixels. It computes in
// integers, so that every machine gives the same picture, and a picture that keeps its size keeps its bytes.
//
// The result is that of OpenCV's INTER_AREA where both sides shrink, and that of LeRobot's bilinear interpolation
// without antialias where a side grows or is halved. Where a side shrinks more, LeRobot's interpolation leaves pixels
// out, and details between the remaining pixels flicker.
//
// Owner: one goroutine at a time.
type Scaler struct {
	x, y    axis
	rows    []uint32 // weighted sum of the source rows that one output row covers
	maxSide int
}

// axis maps each pixel of the output to its source pixels, in one direction.
type axis struct {
	from, to int // the sizes for which plan has computed the taps
	taps     []tap
	weights  []uint32 // weights of all taps; the weights of one tap add up to 1 << weightBits
}

// tap is the series of n source pixels, from first on, from which one output pixel is computed.
type tap struct{ first, weight, n int32 } // weight: index of the tap's first weight in axis.weights

const (
	weightBits = 14
	// rowBits is the number of fraction bits in a sum of rows. With weightBits more, a pixel of 8 bits has 30 bits.
	rowBits = 8
)

// NewScaler returns a Scaler for pictures with sides of at most maxSide, and for results with sides of at most maxTo.
func NewScaler(maxSide, maxTo int) *Scaler {
	s := &Scaler{rows: make([]uint32, 3*maxSide), maxSide: maxSide}
	for _, a := range []*axis{&s.x, &s.y} {
		a.taps = make([]tap, 0, maxTo)
		a.weights = make([]uint32, 0, maxSide+2*maxTo)
	}
	return s
}

// Scale writes src, a picture of fromW x fromH, as w x h into the first 3*w*h bytes of dst. Errors:
// ErrSize when a slice is too short, ErrTooLarge when a side is too long.
//
//rt:noalloc
func (s *Scaler) Scale(dst []byte, w, h int, src []byte, fromW, fromH int) error {
	switch {
	case min(w, h, fromW, fromH) < 1 || len(dst) < 3*w*h || len(src) < 3*fromW*fromH:
		return ErrSize
	case max(fromW, fromH) > s.maxSide || w > cap(s.x.taps) || h > cap(s.y.taps):
		return ErrTooLarge
	}
	s.x.plan(fromW, w)
	s.y.plan(fromH, h)
	rows := s.rows[:3*fromW]
	for y := range s.y.taps {
		t := &s.y.taps[y]
		for k, weight := range s.y.weights[t.weight : t.weight+t.n] {
			row := src[3*fromW*(int(t.first)+k):][:len(rows)]
			if k == 0 {
				setRow(rows, row, weight)
			} else {
				addRow(rows, row, weight)
			}
		}
		s.across(dst[3*w*y:][:3*w], rows)
	}
	return nil
}

// across computes one row of the output in dst from rows, the sums of source rows.
//
//rt:noalloc
func (s *Scaler) across(dst []byte, rows []uint32) {
	const half = 1 << (weightBits + rowBits - 1)
	for x := range s.x.taps {
		t := &s.x.taps[x]
		var red, green, blue uint32 = half, half, half
		p := rows[3*t.first : 3*(t.first+t.n)]
		for _, weight := range s.x.weights[t.weight : t.weight+t.n] {
			red += weight * (p[0] >> (weightBits - rowBits))
			green += weight * (p[1] >> (weightBits - rowBits))
			blue += weight * (p[2] >> (weightBits - rowBits))
			p = p[3:]
		}
		const down = weightBits + rowBits
		dst[3*x] = byte(red >> down)
		dst[3*x+1] = byte(green >> down)
		dst[3*x+2] = byte(blue >> down)
	}
}

// plan computes the taps that scale a line of pixels. The parameters are the numbers of pixels before and after.
//
//rt:noalloc
func (a *axis) plan(from, to int) {
	if a.from == from && a.to == to {
		return
	}
	a.from, a.to = from, to
	a.taps, a.weights = a.taps[:0], a.weights[:0]
	for i := range to {
		t := tap{weight: int32(len(a.weights))}
		if to <= from {
			t.first = a.mean(i)
		} else {
			t.first = a.linear(i)
		}
		t.n = int32(len(a.weights)) - t.weight
		a.taps = append(a.taps, t)
	}
}

// mean appends the weights of the source pixels that output pixel i covers, and returns the first of these pixels. In
// units of 1/a.to of a source pixel, the output pixel covers [i*a.from, (i+1)*a.from). mean rounds the sums of the
// weights, not the weights, so that they add up to exactly one.
//
//rt:noalloc
func (a *axis) mean(i int) (first int32) {
	at, end := i*a.from, (i+1)*a.from
	k := at / a.to
	share := 0
	sum := 0
	for first = int32(k); at < end; k++ {
		next := min((k+1)*a.to, end)
		sum += next - at
		until := (sum<<weightBits + a.from/2) / a.from
		a.weights = append(a.weights, uint32(until-share))
		at, share = next, until
	}
	return first
}

// linear appends the weights of the two source pixels between whose middles the middle of output pixel i lies, and
// returns the first of them. At the border it appends the weight of a single pixel.
//
//rt:noalloc
func (a *axis) linear(i int) (first int32) {
	const one = 1 << weightBits
	// distance from the middle of source pixel 0 to the middle of output pixel i, in 1/(2*to)
	at := (2*i+1)*a.from - a.to
	k, rest := at/(2*a.to), at%(2*a.to)
	if at <= 0 || k >= a.from-1 {
		a.weights = append(a.weights, one)
		return int32(min(k, a.from-1))
	}
	second := (rest<<weightBits + a.to) / (2 * a.to)
	a.weights = append(a.weights, uint32(one-second), uint32(second))
	return int32(k)
}

//rt:noalloc
func setRow(to []uint32, row []byte, weight uint32) {
	to = to[:len(row)]
	for i, v := range row {
		to[i] = weight * uint32(v)
	}
}

//rt:noalloc
func addRow(to []uint32, row []byte, weight uint32) {
	to = to[:len(row)]
	for i, v := range row {
		to[i] += weight * uint32(v)
	}
}
