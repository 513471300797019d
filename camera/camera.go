// Package camera captures pictures off the tick and hands out the newest with
// its true age.
//
// A Source fills slots that its caller owns; the capture thread lends them from
// an rt.Latest, so a picture is written once and never copied on its way to the
// encoder.
package camera

import (
	"errors"

	"edgert/rt"
)

// ErrStalled means that no frame came within the source's watchdog time.
var ErrStalled = errors.New("camera: no frame")

// ErrClosed means that the source was closed, which is how its capture thread
// learns to stop.
var ErrClosed = errors.New("camera: closed")

// PixelFormat says how Frame.Pix is laid out.
type PixelFormat uint8

// The pixel formats a Source can deliver.
const (
	RGB8 PixelFormat = iota + 1 // 3 bytes per pixel, R first, rows top to bottom
)

// Format is what a Source was negotiated to deliver.
type Format struct {
	Width, Height int
	Pixels        PixelFormat
	FPS           int
}

// FrameBytes is the size of one frame's pixels.
func (f Format) FrameBytes() int { return f.Width * f.Height * 3 }

// Frame is one picture. Pix belongs to whoever lent the Frame to Grab.
type Frame struct {
	Format
	Sequence uint64     // the driver's counter; a gap is a dropped frame
	At       rt.Instant // when the picture was taken, not when it arrived
	Pix      []byte
}

// Source delivers frames at its own rate.
type Source interface {
	Format() Format
	// Grab blocks until a frame newer than the last one is there and fills dst,
	// whose Pix must have room for Format().FrameBytes(). It allocates nothing.
	//
	// Owner: one capture thread.
	Grab(dst *Frame) error
	Close() error
}
