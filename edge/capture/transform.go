package capture

import (
	"fmt"
	"math"
	"slices"
)

// transform crops, rotates and scales RGB pictures with tables made once.
type transform struct {
	w, h       int // size of the input
	crop       Rect
	rotate     int
	outW, outH int

	rotated            []byte // cropped and rotated, where that is asked for
	rotatedW, rotatedH int
	scaledX            []byte // scaled across, [th][outW]
	tapsX, tapsY       []tap
	scaled             []byte
}

// tap makes one pixel of neighbours from first on; their weights sum to 1 << tapBits.
type tap struct {
	first   int
	weights []int32
}

const tapBits = 14

// newTransform plans the way from a w x h picture to outW x outH; 0 keeps the size.
func newTransform(w, h int, crop Rect, rotate, outW, outH int) (*transform, error) {
	if crop == (Rect{}) {
		crop = Rect{W: w, H: h}
	}
	if crop.X+crop.W > w || crop.Y+crop.H > h {
		return nil, fmt.Errorf("crop=%dx%d+%d+%d leaves the camera's picture of %dx%d", crop.W, crop.H, crop.X, crop.Y, w, h)
	}
	r := &transform{w: w, h: h, crop: crop, rotate: rotate, rotatedW: crop.W, rotatedH: crop.H}
	if rotate == 90 || rotate == 270 {
		r.rotatedW, r.rotatedH = crop.H, crop.W
	}
	if crop != (Rect{W: w, H: h}) || rotate != 0 {
		r.rotated = make([]byte, 3*r.rotatedW*r.rotatedH)
	}
	r.outW, r.outH = outW, outH
	if outW == 0 {
		r.outW, r.outH = r.rotatedW, r.rotatedH
	}
	if r.outW != r.rotatedW || r.outH != r.rotatedH {
		r.tapsX, r.tapsY = taps(r.rotatedW, r.outW), taps(r.rotatedH, r.outH)
		r.scaledX = make([]byte, 3*r.outW*r.rotatedH)
		r.scaled = make([]byte, 3*r.outW*r.outH)
	}
	return r, nil
}

func (r *transform) identity() bool { return r.rotated == nil && r.scaled == nil }

// taps plans one direction: the mean where it shrinks, linear where it grows.
func taps(from, to int) []tap {
	out := make([]tap, to)
	ratio := float64(from) / float64(to)
	for i := range out {
		low, high := float64(i)*ratio, float64(i+1)*ratio
		if ratio < 1 {
			centre := (low+high)/2 - 0.5
			low, high = centre, centre+1
			first := int(math.Floor(low))
			part := low - float64(first)
			out[i] = newTap(from, first, []float64{1 - part, part})
			continue
		}
		first, last := int(math.Floor(low)), int(math.Ceil(high))
		var weights []float64
		for k := first; k < last; k++ {
			weights = append(weights, (min(high, float64(k+1))-max(low, float64(k)))/ratio)
		}
		out[i] = newTap(from, first, weights)
	}
	return out
}

// newTap makes integers of the shares; those outside the picture go to its border.
func newTap(size, first int, shares []float64) tap {
	low := min(max(first, 0), size-1)
	high := min(max(first+len(shares)-1, low), size-1)
	t := tap{first: low, weights: make([]int32, high-low+1)}
	left := int32(1 << tapBits)
	for k, share := range shares {
		at := min(max(first+k, low), high) - low
		v := int32(share * (1 << tapBits))
		t.weights[at] += v
		left -= v
	}
	t.weights[slices.Index(t.weights, slices.Max(t.weights))] += left
	return t
}

// apply returns the transformed picture, lent until the next call.
//
//rt:noalloc
func (r *transform) apply(pix []byte) []byte {
	if r.rotated != nil {
		r.cropAndRotate(pix)
		pix = r.rotated
	}
	if r.scaled != nil {
		r.scale(pix)
		pix = r.scaled
	}
	return pix
}

//rt:noalloc
func (r *transform) cropAndRotate(pix []byte) {
	// The byte of the input for the output's first pixel, and the steps from there.
	row := 3 * r.w
	origin := r.crop.Y*row + 3*r.crop.X
	right, bottom := 3*(r.crop.W-1), (r.crop.H-1)*row
	start, across, down := origin, 3, row
	switch r.rotate {
	case 90:
		start, across, down = origin+bottom, -row, 3
	case 180:
		start, across, down = origin+bottom+right, -3, -row
	case 270:
		start, across, down = origin+right, row, -3
	}
	if across == 3 {
		for y := range r.rotatedH {
			copy(r.rotated[3*r.rotatedW*y:3*r.rotatedW*(y+1)], pix[start+y*down:])
		}
		return
	}
	for y := range r.rotatedH {
		from := start + y*down
		to := r.rotated[3*r.rotatedW*y : 3*r.rotatedW*(y+1)]
		for x := 0; x < len(to); x += 3 {
			to[x], to[x+1], to[x+2] = pix[from], pix[from+1], pix[from+2]
			from += across
		}
	}
}

//rt:noalloc
func (r *transform) scale(pix []byte) {
	const half = 1 << (tapBits - 1)
	for y := range r.rotatedH {
		from, to := pix[3*r.rotatedW*y:3*r.rotatedW*(y+1)], r.scaledX[3*r.outW*y:3*r.outW*(y+1)]
		for x := range r.tapsX {
			t := &r.tapsX[x]
			var red, green, blue int32 = half, half, half
			p := from[3*t.first:]
			for k, v := range t.weights {
				red += v * int32(p[3*k])
				green += v * int32(p[3*k+1])
				blue += v * int32(p[3*k+2])
			}
			to[3*x], to[3*x+1], to[3*x+2] = byte(red>>tapBits), byte(green>>tapBits), byte(blue>>tapBits)
		}
	}
	row := 3 * r.outW
	for y := range r.tapsY {
		t := &r.tapsY[y]
		to := r.scaled[row*y : row*(y+1)]
		for x := range to {
			sum := int32(half)
			at := t.first*row + x
			for _, v := range t.weights {
				sum += v * int32(r.scaledX[at])
				at += row
			}
			to[x] = byte(sum >> tapBits)
		}
	}
}
