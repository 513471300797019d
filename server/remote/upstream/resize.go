package upstream

import "math"

// resizer scales pictures of one size into a frame of another size. It keeps the aspect ratio and leaves the rest of
// the frame black. The result equals, bit for bit, that of openpi-client's image_tools.resize_with_pad. A picture
// that has the frame's size is copied.
//
// Owner: one goroutine.
//
// Source: Pillow, src/libImaging/Resample.c: two passes of fixed-point weights, columns first.
type resizer struct {
	w, h, frameW, frameH int
	inW, inH, left, top  int // size of the scaled picture, and its place in the frame
	columns, rows        []taps
	pair                 []uint64 // scratch: two rows of the picture
	between              []uint64 // scratch: [h, half of a row], the result of the first pass
	sums                 []uint64 // scratch: the sums of a row of the scaled picture
}

// taps are the weights of the source pixels that make one pixel of the result. taps.first is the source pixel of the
// first weight.
type taps struct {
	first   int
	weights []uint64
}

const (
	channels   = 3 // RGB
	weightBits = 32 - 8 - 2
	// Two sums share a word. They do not disturb each other, because no sum is negative or has more
	// than 32 bits: the weights of a pixel add up to 1<<weightBits, apart from rounding.
	lane  = 32
	round = 1<<(weightBits-1) | 1<<(weightBits-1+lane)
)

func newResizer(h, w, frameH, frameW int) *resizer {
	r := &resizer{
		w:      w,
		h:      h,
		frameW: frameW,
		frameH: frameH,
	}
	if r.same() {
		return r
	}
	ratio := max(float64(w)/float64(frameW), float64(h)/float64(frameH))
	r.inH, r.inW = max(1, int(float64(h)/ratio)), max(1, int(float64(w)/ratio))
	r.top, r.left = (frameH-r.inH)/2, (frameW-r.inW)/2
	r.columns, r.rows = bilinear(w, r.inW), bilinear(h, r.inH)
	r.pair = make([]uint64, w*channels)
	r.between = make([]uint64, (h+1)*r.half())
	r.sums = make([]uint64, r.half())
	return r
}

// half returns the number of words for the sums of a row of the scaled picture. A word holds two
// sums: in its lower bits that of a byte of the row's first half, in its upper bits that of a byte
// of the second half.
func (r *resizer) half() int { return (r.inW*channels + 1) / 2 }

func (r *resizer) same() bool { return r.w == r.frameW && r.h == r.frameH }

// bilinear returns the weights that scale a side of a picture; from and size are its lengths in pixels before and after
// the scaling.
func bilinear(from, size int) []taps {
	scale := float64(from) / float64(size)
	support := max(scale, 1)
	all := make([]taps, size)
	for i := range all {
		center := (float64(i) + 0.5) * scale
		first := max(0, int(center-support+0.5))
		end := min(from, int(center+support+0.5))
		weights, sum := make([]float64, end-first), 0.0
		for k := range weights {
			weights[k] = max(0, 1-math.Abs((float64(k+first)-center+0.5)*(1/support)))
			sum += weights[k]
		}
		t := taps{first: first, weights: make([]uint64, len(weights))}
		for k, weight := range weights {
			t.weights[k] = uint64(0.5 + weight/sum*(1<<weightBits))
		}
		all[i] = t
	}
	return all
}

// resize scales the picture src into the frame dst. Both are RGB bytes [height, width, 3].
func (r *resizer) resize(dst, src []byte) {
	if r.same() {
		copy(dst, src)
		return
	}
	for y := 0; y < r.h; y += 2 {
		r.scaleColumns(src, y)
	}
	clear(dst)
	for y := range r.inH {
		at := ((r.top+y)*r.frameW + r.left) * channels
		r.scaleRow(dst[at:at+r.inW*channels], &r.rows[y])
	}
}

// scaleColumns scales the rows y and y+1 in width. If y is the last row, it scales that row twice,
// and the second result is not used.
func (r *resizer) scaleColumns(src []byte, y int) {
	stride, half := r.w*channels, r.half()
	upper := src[y*stride:][:stride]
	lower := upper
	if y+1 < r.h {
		lower = src[(y+1)*stride:][:stride]
	}
	for i := range r.pair {
		r.pair[i] = uint64(upper[i]) | uint64(lower[i])<<lane
	}
	first, second := r.between[y*half:][:half], r.between[(y+1)*half:][:half]
	clear(first)
	clear(second)
	put := func(i int, sum uint64) {
		shift := 0
		if i >= half {
			i, shift = i-half, lane
		}
		first[i] |= (sum >> weightBits & 0xFF) << shift
		second[i] |= (sum >> (weightBits + lane)) << shift
	}
	for x := range r.columns {
		t := &r.columns[x]
		from := r.pair[t.first*channels:]
		red, green := uint64(round), uint64(round)
		blue := uint64(round)
		for _, weight := range t.weights {
			red += from[0] * weight
			green += from[1] * weight
			blue += from[2] * weight
			from = from[channels:]
		}
		put(x*channels, red)
		put(x*channels+1, green)
		put(x*channels+2, blue)
	}
}

func (r *resizer) scaleRow(dst []byte, t *taps) {
	half := r.half()
	sums := r.sums
	for i := range sums {
		sums[i] = round
	}
	for k, weight := range t.weights {
		from := r.between[(t.first+k)*half:][:len(sums)]
		for i, v := range from {
			sums[i] += v * weight
		}
	}
	for i, sum := range sums {
		dst[i] = byte(sum >> weightBits)
		if half+i < len(dst) {
			dst[half+i] = byte(sum >> (weightBits + lane))
		}
	}
}

// planes writes a picture [height, width, 3] as [3, height, width].
func planes(dst, src []byte) {
	n := len(src) / channels
	for i := range n {
		dst[i] = src[i*channels]
		dst[n+i] = src[i*channels+1]
		dst[2*n+i] = src[i*channels+2]
	}
}
