// Package pattern provides a camera that needs neither hardware nor a world. Its pictures are
// colour bars with the frame's number drawn in, so that a test can identify the frame after an
// encoder and a network.
package pattern

import (
	"fmt"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt"
)

// A picture has a block for each bit of the frame's number. In the smallest picture a block is 4 pixels wide, so that
// JPEG preserves the bit.
const (
	MinWidth  = 128
	MinHeight = 64

	counterBits = 32
	bandParts   = 8 // the band with the number, at the bottom, takes 1/bandParts of the height
)

// bars are the seven colours of the classic test card, from left to right.
var bars = [...][3]byte{
	{191, 191, 191}, {191, 191, 0}, {0, 191, 191}, {0, 191, 0}, {191, 0, 191}, {191, 0, 0}, {0, 0, 191},
}

// Source delivers the pattern at its format's rate.
type Source struct{ *camera.Paced }

var _ camera.Source = (*Source)(nil)

// NewSource returns a source whose frames begin now. The format must have RGB8, a rate, and a size
// of at least MinWidth x MinHeight.
func NewSource(clock rt.Clock, format camera.Format) *Source {
	if format.Width < MinWidth || format.Height < MinHeight || format.FPS < 1 || format.Pixels != camera.RGB8 {
		panic(fmt.Sprintf("pattern: got %+v, want RGB8, a rate and at least %dx%d", format, MinWidth, MinHeight))
	}
	return &Source{camera.NewPaced(clock, format)}
}

// Grab sleeps until the next frame's instant and paints that frame. A late reader skips frames.
//
//rt:noalloc
func (s *Source) Grab(dst *camera.Frame) error {
	if err := s.Wait(dst); err != nil {
		return err
	}
	f := &dst.Format
	paint(dst.Pix[:f.FrameBytes()], f.Width, f.Height, uint32(dst.Sequence))
	return nil
}

// paint draws the bars and below them the number, most significant bit first: a white block is a
// one.
//
//rt:noalloc
func paint(pix []byte, width, height int, number uint32) {
	row := pix[:width*3]
	for x := range width {
		copy(row[x*3:], bars[x*len(bars)/width][:])
	}
	band := height - height/bandParts
	for y := 1; y < band; y++ {
		copy(pix[y*width*3:(y+1)*width*3], row)
	}
	row = pix[band*width*3 : (band+1)*width*3]
	for x := range width {
		v := byte(0)
		if number>>(counterBits-1-x*counterBits/width)&1 != 0 {
			v = 255
		}
		row[x*3] = v
		row[x*3+1] = v
		row[x*3+2] = v
	}
	for y := band + 1; y < height; y++ {
		copy(pix[y*width*3:(y+1)*width*3], row)
	}
}

// Number reads the frame's number, modulo 2^32, from a picture.
func Number(pix []byte, width, height int) uint32 {
	y := height - height/bandParts/2 - 1
	var number uint32
	for bit := range counterBits {
		x := (2*bit + 1) * width / (2 * counterBits)
		number <<= 1
		if pix[(y*width+x)*3+1] >= 128 {
			number |= 1
		}
	}
	return number
}
