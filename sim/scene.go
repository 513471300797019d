package sim

import "math"

// The size of the camera's native picture, with which policies are trained.
const (
	NativeWidth  = 160
	NativeHeight = 120
	metresPerPix = 0.004
)

// MaxSide bounds a picture's width and height in pixels.
const MaxSide = 4096

type colour [3]float64

// numShapes counts target, post, two links and tip.
const numShapes = 5

// The radii of the shapes in metres, and the grey level of the background.
const (
	targetDisc = 0.018
	upperWidth = 0.012 // half the width of the link at the base
	foreWidth  = 0.010
	tipDisc    = 0.014
	background = 225
)

var (
	red   = colour{220, 30, 30}
	grey  = colour{70, 70, 70}
	blue  = colour{60, 90, 200}
	green = colour{20, 160, 60}
)

// scene has all values on which a picture depends. A caller copies a scene under a lock, and paints
// the picture without the lock.
type scene struct {
	Pan, Elbow   float64 // degrees
	Target, Post Point
}

// render paints the scene into dst, height rows of width RGB pixels, row 0 at the far
// side of the table. Every size shows the whole native view, centred.
//
//rt:noalloc
func (s *scene) render(dst []byte, width, height int) {
	if width < 1 || height < 1 || width > MaxSide || height > MaxSide {
		panic("sim: a picture's sides must be 1 to 4096 pixels")
	}
	dst = dst[:width*height*3]
	v := view{w: width, h: height}
	v.mpp = metresPerPix * max(float64(NativeWidth)/float64(width), float64(NativeHeight)/float64(height))

	e, tip := reach(s.Pan, s.Elbow)
	base := Point{baseX, baseY}
	shapes := [numShapes]capsule{ // in the order in which they are painted
		{s.Target, s.Target, targetDisc, red},
		{s.Post, s.Post, postRadius, grey},
		{base, e, upperWidth, blue},
		{e, tip, foreWidth, blue},
		{tip, tip, tipDisc, green},
	}
	fillBackground(dst)
	for row := range height {
		v.paintRow(dst[row*width*3:(row+1)*width*3], row, &shapes)
	}
}

//rt:noalloc
func fillBackground(dst []byte) {
	dst[0] = background
	for n := 1; n < len(dst); n *= 2 {
		copy(dst[n:], dst[:n])
	}
}

// capsule is the set of points within r of the line from a to b; a disc when a == b.
type capsule struct {
	a, b  Point
	r     float64
	paint colour
}

// span returns the interval in which the row at height y crosses the capsule, enlarged by margin. A
// capsule is convex, so there is only one interval; it is empty when lo > hi.
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
		return lo, hi // the sides of a horizontal capsule reach no farther than the discs at its ends
	}
	k := r / math.Hypot(abx, aby)
	for _, side := range [...]float64{k, -k} {
		// The capsule's side is parallel to the line from a to b, at the distance r to its left or right.
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

// columns returns the half-open range of columns that the capsule may colour.
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

// blendColumns is the number of pixels of a row that are blended at a time, as many as in a native row.
const blendColumns = NativeWidth

// paintRow blends the shapes into one row of background. It rounds once, half to even.
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
			for k, v := range part[i] {
				dst[(start+i)*3+k] = byte(math.RoundToEven(v))
			}
		}
	}
}

// blendShape blends one shape into the pixels of one row, beginning at column col. The shape's share of a pixel is
// clip((r - distance)/mpp + 0.5, 0, 1), with the distance of the pixel's centre; only pixels at the rim need a square
// root.
//
//rt:noalloc
func (v *view) blendShape(blend []colour, col int, y float64, c *capsule) {
	abx, aby := c.b.X-c.a.X, c.b.Y-c.a.Y
	disc := c.a == c.b
	length2 := float64(abx*abx) + float64(aby*aby) + 1e-9
	outer, inner := c.r+v.mpp, c.r-v.mpp
	outer, inner = outer*outer, inner*math.Abs(inner) // a disc smaller than a pixel has only rim pixels
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
