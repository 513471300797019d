package upstream

import "math"

// resizer scales pictures of one size into a frame of another, keeps their shape and leaves the rest
// of the frame black: openpi-client's image_tools.resize_with_pad, bit for bit. A frame of the
// picture's own size takes it as it is.
//
// Owner: one goroutine.
//
// Source: Pillow, src/libImaging/Resample.c: two passes of fixed-point weights, columns first.
type resizer struct {
	w, h, frameW, frameH int
	inW, inH, left, top  int // of the scaled picture, and its place in the frame
	columns, rows        []taps
	between              []byte // [h, inW, 3], after the first pass
}

// taps are the source pixels of one pixel, from first on, and their weights.
type taps struct {
	first   int
	weights []int32
}

const (
	channels   = 3 // RGB
	weightBits = 32 - 8 - 2
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
	r.between = make([]byte, h*r.inW*channels)
	return r
}

func (r *resizer) same() bool { return r.w == r.frameW && r.h == r.frameH }

// bilinear returns the weights that scale a side of from pixels to size.
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
		t := taps{first: first, weights: make([]int32, len(weights))}
		for k, weight := range weights {
			t.weights[k] = int32(0.5 + weight/sum*(1<<weightBits))
		}
		all[i] = t
	}
	return all
}

// resize writes the frame of src, both RGB bytes [height, width, 3], to dst.
func (r *resizer) resize(dst, src []byte) {
	if r.same() {
		copy(dst, src)
		return
	}
	r.scaleColumns(src)
	clear(dst)
	for y := range r.inH {
		at := ((r.top+y)*r.frameW + r.left) * channels
		r.scaleRow(dst[at:at+r.inW*channels], &r.rows[y])
	}
}

func (r *resizer) scaleColumns(src []byte) {
	out := 0
	for y := range r.h {
		row := src[y*r.w*channels : (y+1)*r.w*channels]
		for x := range r.columns {
			t := &r.columns[x]
			from := row[t.first*channels:]
			red := int32(1 << (weightBits - 1))
			green := int32(1 << (weightBits - 1))
			blue := int32(1 << (weightBits - 1))
			for k, weight := range t.weights {
				pixel := from[k*channels : k*channels+channels : k*channels+channels]
				red += int32(pixel[0]) * weight
				green += int32(pixel[1]) * weight
				blue += int32(pixel[2]) * weight
			}
			r.between[out] = clip(red)
			r.between[out+1] = clip(green)
			r.between[out+2] = clip(blue)
			out += channels
		}
	}
}

func (r *resizer) scaleRow(dst []byte, t *taps) {
	stride := r.inW * channels
	from := r.between[t.first*stride:]
	for i := range dst {
		sum := int32(1 << (weightBits - 1))
		for k, weight := range t.weights {
			sum += int32(from[k*stride+i]) * weight
		}
		dst[i] = clip(sum)
	}
}

func clip(sum int32) byte { return byte(min(max(sum>>weightBits, 0), 255)) }

// planes writes a picture [height, width, 3] as [3, height, width].
func planes(dst, src []byte) {
	n := len(src) / channels
	for i := range n {
		dst[i] = src[i*channels]
		dst[n+i] = src[i*channels+1]
		dst[2*n+i] = src[i*channels+2]
	}
}
