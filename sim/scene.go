package sim

import "math"

// The camera's native picture, which is what a policy is trained on.
const (
	NativeWidth  = 160
	NativeHeight = 120
	metresPerPix = 0.004
)

// MaxSide bounds a picture's width and height in pixels; it is also how long the
// renderer's row buffer is.
const MaxSide = 4096

type colour [3]float64

// What is on the table, and how big.
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

// Scene is everything a picture shows, by value, so that it can be taken under a
// lock and painted outside.
type Scene struct {
	Pan, Elbow   float64 // degrees
	Target, Post Point
}

// capsule is a line from a to b with a half width; a disc when a == b.
type capsule struct {
	a, b  Point
	r     float64
	paint colour
}

// Render paints the scene into dst, height rows of width RGB pixels, row 0 at
// the far side of the table. Every size shows the whole native view, centred;
// a wider or taller picture shows more of the table around it.
//
//rt:noalloc
func (s *Scene) Render(dst []byte, width, height int) {
	if width < 1 || height < 1 || width > MaxSide || height > MaxSide {
		panic("sim: a picture's sides must be 1 to 4096 pixels")
	}
	dst = dst[:width*height*3]
	v := view{w: width, h: height}
	v.mpp = metresPerPix * max(float64(NativeWidth)/float64(width), float64(NativeHeight)/float64(height))

	e, tip := reach(s.Pan, s.Elbow)
	base := Point{baseX, baseY}
	shapes := [...]capsule{ // in the order of painting
		{s.Target, s.Target, targetDisc, red},
		{s.Post, s.Post, postRadius, grey},
		{base, e, upperWidth, blue},
		{e, tip, foreWidth, blue},
		{tip, tip, tipDisc, green},
	}
	var boxes [len(shapes)]box
	for i := range shapes {
		boxes[i] = v.boxOf(&shapes[i])
	}
	for row := range height {
		v.paintRow(dst[row*width*3:(row+1)*width*3], row, shapes[:], boxes[:])
	}
}

// view maps pixels to the table.
type view struct {
	w, h int
	mpp  float64 // metres per pixel
}

// box is the half-open rectangle of pixels that a shape can colour.
type box struct{ x0, x1, y0, y1 int }

//rt:noalloc
func (v *view) boxOf(c *capsule) box {
	margin := c.r + v.mpp
	w, h := float64(v.w), float64(v.h)
	return box{
		x0: clampPixel(math.Floor((min(c.a.X, c.b.X)-margin)/v.mpp+w/2), w),
		x1: clampPixel(math.Ceil((max(c.a.X, c.b.X)+margin)/v.mpp+w/2), w),
		y0: clampPixel(math.Floor(h/2-(max(c.a.Y, c.b.Y)+margin)/v.mpp), h),
		y1: clampPixel(math.Ceil(h/2-(min(c.a.Y, c.b.Y)-margin)/v.mpp), h),
	}
}

//rt:noalloc
func clampPixel(p, size float64) int { return int(min(max(p, 0), size)) }

// paintRow blends the shapes of one row without rounding in between and rounds
// once, half to even. Only the columns that some shape can colour take the slow
// way; a row's blend lives on the stack.
//
//rt:noalloc
func (v *view) paintRow(dst []byte, row int, shapes []capsule, boxes []box) {
	for i := range dst {
		dst[i] = background
	}
	x0, x1 := v.w, 0
	for _, b := range boxes {
		if row >= b.y0 && row < b.y1 && b.x0 < b.x1 {
			x0, x1 = min(x0, b.x0), max(x1, b.x1)
		}
	}
	if x0 >= x1 {
		return
	}
	y := (float64(v.h)/2 - float64(row) - 0.5) * v.mpp
	for start := x0; start < x1; start += blendColumns {
		end := min(start+blendColumns, x1)
		var blend [blendColumns]colour
		for i := range blend[:end-start] {
			blend[i] = colour{background, background, background}
		}
		for i, b := range boxes {
			if row >= b.y0 && row < b.y1 {
				if from, to := max(b.x0, start), min(b.x1, end); from < to {
					v.blendShape(blend[from-start:to-start], from, y, &shapes[i])
				}
			}
		}
		for i := range blend[:end-start] {
			at := (start + i) * 3
			dst[at] = byte(math.RoundToEven(blend[i][0]))
			dst[at+1] = byte(math.RoundToEven(blend[i][1]))
			dst[at+2] = byte(math.RoundToEven(blend[i][2]))
		}
	}
}

// blendColumns is how many pixels of a row are blended at a time: a native row.
const blendColumns = NativeWidth

// blendShape mixes one shape into the pixels of one row from column col on.
// Coverage is clip((r - distance)/mpp + 0.5, 0, 1) at the pixel's centre.
//
//rt:noalloc
func (v *view) blendShape(blend []colour, col int, y float64, c *capsule) {
	abx, aby := c.b.X-c.a.X, c.b.Y-c.a.Y
	length2 := float64(abx*abx) + float64(aby*aby) + 1e-9
	outside := c.r + v.mpp // squared distances beyond it need no root
	outside *= outside
	half := float64(v.w) / 2
	for i := range blend {
		x := (float64(col+i) + 0.5 - half) * v.mpp
		t := (float64((x-c.a.X)*abx) + float64((y-c.a.Y)*aby)) / length2
		t = min(max(t, 0), 1)
		dx := x - c.a.X - float64(t*abx)
		dy := y - c.a.Y - float64(t*aby)
		d2 := float64(dx*dx) + float64(dy*dy)
		if d2 > outside {
			continue
		}
		cover := (c.r-math.Sqrt(d2))/v.mpp + 0.5
		if cover <= 0 {
			continue
		}
		cover = min(cover, 1)
		for k := range c.paint {
			blend[i][k] += float64(cover * (c.paint[k] - blend[i][k]))
		}
	}
}
