package sim

import "math"

// capsule is a line from a to b with a half width; a disc when a == b.
type capsule struct {
	a, b  Point
	r     float64
	paint colour
}

// span returns where the row at height y crosses the capsule blown up by margin,
// which is one interval, because a capsule is convex. It is empty when lo > hi.
//
//rt:noalloc
func (c *capsule) span(y, margin float64) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	r := c.r + margin
	for _, end := range [...]Point{c.a, c.b} {
		if dy := y - end.Y; math.Abs(dy) <= r {
			half := math.Sqrt(r*r - dy*dy)
			lo, hi = min(lo, end.X-half), max(hi, end.X+half)
		}
	}
	abx, aby := c.b.X-c.a.X, c.b.Y-c.a.Y
	if aby == 0 {
		return lo, hi // the ends' discs reach as far as the sides
	}
	k := r / math.Hypot(abx, aby)
	for _, side := range [...]float64{k, -k} {
		// The side runs parallel to a-b, r to its left or right.
		t := (y - c.a.Y - side*abx) / aby
		if t >= 0 && t <= 1 {
			x := c.a.X - side*aby + t*abx
			lo, hi = min(lo, x), max(hi, x)
		}
	}
	return lo, hi
}

// view maps pixels to the table.
type view struct {
	w, h int
	mpp  float64 // metres per pixel
}

// columns returns the half-open range of columns that the capsule may colour in
// the row at height y, one pixel generously.
//
//rt:noalloc
func (v *view) columns(c *capsule, y float64) (x0, x1 int) {
	lo, hi := c.span(y, v.mpp)
	if lo > hi {
		return 0, 0
	}
	w := float64(v.w)
	lo, hi = math.Floor(lo/v.mpp+w/2)-1, math.Ceil(hi/v.mpp+w/2)+1
	return int(min(max(lo, 0), w)), int(min(max(hi, 0), w))
}

// blendColumns is how many pixels of a row are blended at a time: a native row.
const blendColumns = NativeWidth

// paintRow blends the shapes into one row of background, without rounding in
// between, and rounds once, half to even. Only the columns that some shape may
// colour are touched.
//
//rt:noalloc
func (v *view) paintRow(dst []byte, row int, shapes *[numShapes]capsule) {
	y := (float64(v.h)/2 - float64(row) - 0.5) * v.mpp
	var from, to [numShapes]int
	x0, x1 := v.w, 0
	for i := range shapes {
		from[i], to[i] = v.columns(&shapes[i], y)
		if from[i] < to[i] {
			x0, x1 = min(x0, from[i]), max(x1, to[i])
		}
	}
	var blend [blendColumns]colour
	for start := x0; start < x1; start += blendColumns {
		end := min(start+blendColumns, x1)
		part := blend[:end-start]
		for i := range part {
			part[i] = colour{background, background, background}
		}
		for i := range shapes {
			if a, b := max(from[i], start), min(to[i], end); a < b {
				v.blendShape(part[a-start:b-start], a, y, &shapes[i])
			}
		}
		for i := range part {
			pixel := dst[(start+i)*3 : (start+i)*3+3]
			pixel[0] = byte(math.RoundToEven(part[i][0]))
			pixel[1] = byte(math.RoundToEven(part[i][1]))
			pixel[2] = byte(math.RoundToEven(part[i][2]))
		}
	}
}

// blendShape mixes one shape into the pixels of one row from column col on.
// Coverage is clip((r - distance)/mpp + 0.5, 0, 1) at the pixel's centre; only
// the pixels of the rim need the root.
//
//rt:noalloc
func (v *view) blendShape(blend []colour, col int, y float64, c *capsule) {
	abx, aby := c.b.X-c.a.X, c.b.Y-c.a.Y
	disc := c.a == c.b
	length2 := float64(abx*abx) + float64(aby*aby) + 1e-9
	outer, inner := c.r+v.mpp, c.r-v.mpp
	outer, inner = outer*outer, inner*math.Abs(inner) // a disc smaller than a pixel is all rim
	half := float64(v.w) / 2
	for i := range blend {
		x := (float64(col+i) + 0.5 - half) * v.mpp
		dx, dy := x-c.a.X, y-c.a.Y
		if !disc {
			t := (float64(dx*abx) + float64(dy*aby)) / length2
			t = min(max(t, 0), 1)
			dx -= float64(t * abx)
			dy -= float64(t * aby)
		}
		d2 := float64(dx*dx) + float64(dy*dy)
		if d2 > outer {
			continue
		}
		cover := 1.0
		if d2 > inner {
			cover = min((c.r-math.Sqrt(d2))/v.mpp+0.5, 1)
			if cover <= 0 {
				continue
			}
		}
		for k := range c.paint {
			blend[i][k] += float64(cover * (c.paint[k] - blend[i][k]))
		}
	}
}
