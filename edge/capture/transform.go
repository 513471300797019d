package capture

import (
	"fmt"

	"github.com/edge-rt/edge-rt/jpeg"
)

// transform crops, rotates and scales RGB pictures.
type transform struct {
	w          int // width of the input
	crop       Rect
	rotate     int
	outW, outH int

	rotated            []byte // cropped and rotated; nil: neither
	rotatedW, rotatedH int
	scaler             *jpeg.Scaler
	scaled             []byte
}

// newTransform plans the way from a w x h picture to outW x outH; 0 keeps the size.
func newTransform(w, h int, crop Rect, rotate, outW, outH int) (*transform, error) {
	if crop == (Rect{}) {
		crop = Rect{W: w, H: h}
	}
	if crop.X+crop.W > w || crop.Y+crop.H > h {
		return nil, fmt.Errorf("crop=%dx%d+%d+%d leaves the camera's picture of %dx%d", crop.W, crop.H, crop.X, crop.Y,
			w, h)
	}
	r := &transform{
		w:        w,
		crop:     crop,
		rotate:   rotate,
		rotatedW: crop.W,
		rotatedH: crop.H,
	}
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
		r.scaler = jpeg.NewScaler(max(r.rotatedW, r.rotatedH), max(r.outW, r.outH))
		r.scaled = make([]byte, 3*r.outW*r.outH)
	}
	return r, nil
}

func (r *transform) identity() bool { return r.rotated == nil && r.scaled == nil }

// apply returns the transformed picture, lent until the next call.
//
//rt:noalloc
func (r *transform) apply(pix []byte) []byte {
	if r.rotated != nil {
		r.cropAndRotate(pix)
		pix = r.rotated
	}
	if r.scaled != nil {
		_ = r.scaler.Scale(r.scaled, r.outW, r.outH, pix, r.rotatedW, r.rotatedH) // the scaler was made for these sizes
		pix = r.scaled
	}
	return pix
}

//rt:noalloc
func (r *transform) cropAndRotate(pix []byte) {
	// start is the index in pix of the output's first pixel. across and down are the steps from
	// there to the next pixel and the next row.
	row := 3 * r.w
	origin := r.crop.Y*row + 3*r.crop.X
	right, bottom := 3*(r.crop.W-1), (r.crop.H-1)*row
	start := origin
	across := 3
	down := row
	switch r.rotate {
	case 90:
		start = origin + bottom
		across = -row
		down = 3
	case 180:
		start = origin + bottom + right
		across = -3
		down = -row
	case 270:
		start = origin + right
		across = row
		down = -3
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
			to[x] = pix[from]
			to[x+1] = pix[from+1]
			to[x+2] = pix[from+2]
			from += across
		}
	}
}
