package sim

// The camera's native picture, which is what a policy is trained on.
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
	shapes := [numShapes]capsule{ // in the order of painting
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

// fillBackground doubles what is filled, which is as fast as copy.
//
//rt:noalloc
func fillBackground(dst []byte) {
	dst[0] = background
	for n := 1; n < len(dst); n *= 2 {
		copy(dst[n:], dst[:n])
	}
}
