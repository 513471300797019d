// Package camera defines the cameras of a run, which capture pictures outside the tick, each with the instant at which
// it was taken.
//
// A Source delivers frames into slots that its caller lends from an rt.Latest, or lends its own memory for as long as
// the slot holds the frame, so a picture is never copied on its way to the encoder. camera/v4l2 captures from the
// kernel's cameras, camera/files plays files, sim/pattern paints test pictures.
package camera

import (
	"errors"
	"fmt"
	"slices"

	"github.com/edge-rt/edge-rt/rt"
)

// Errors of a Source, for errors.Is. All but ErrClosed are temporary: the next Grab tries again.
var (
	ErrStalled = errors.New("camera: no frame")                    // no frame came within the watchdog time
	ErrGone    = errors.New("camera: unplugged")                   // the device is absent; Grab searches for it again
	ErrStream  = errors.New("camera: the driver broke the stream") // Grab sets the stream up again
	ErrClosed  = errors.New("camera: closed")                      // Close has ended the capture thread
)

// PixelFormat is the layout of Frame.Pix.
type PixelFormat uint8

// The pixel formats a Source can deliver.
const (
	RGB8  PixelFormat = iota + 1 // 3 bytes per pixel, R first, rows top to bottom
	MJPEG                        // one JPEG picture, possibly without Huffman tables and with padding at its end
	YUYV                         // Y0 Cb Y1 Cr: 4:2:2
	NV12                         // all Y, then Cb and Cr in turn: 4:2:0
	Gray8                        // 1 byte per pixel
)

var pixelNames = [...]string{"", "rgb", "mjpeg", "yuyv", "nv12", "grey"}

func (p PixelFormat) String() string {
	if int(p) < len(pixelNames) {
		return pixelNames[p]
	}
	return fmt.Sprintf("pixel format %d", uint8(p))
}

// ParsePixelFormat is the inverse of String.
func ParsePixelFormat(name string) (PixelFormat, error) {
	if p := slices.Index(pixelNames[:], name); p > 0 {
		return PixelFormat(p), nil
	}
	return 0, fmt.Errorf("camera: pixel format %q, want mjpeg, yuyv, nv12, grey or rgb", name)
}

// Format is the negotiated format of a Source.
type Format struct {
	Width, Height int
	Pixels        PixelFormat
	FPS           int
	Stride        int  // bytes from one row to the next; 0: no padding
	Full          bool // YUV levels span 0 to 255, not 16 to 235 as in ITU-R 601
	Size          int  // largest size of one frame in bytes; 0: the size follows from the fields above
}

// FrameBytes returns the largest size of one frame in bytes.
func (f Format) FrameBytes() int {
	row := f.Width
	switch f.Pixels {
	case RGB8:
		row = 3 * f.Width
	case YUYV, MJPEG: // a camera's JPEG is never larger than its raw picture
		row = 2 * f.Width
	}
	size := max(row, f.Stride) * f.Height
	if f.Pixels == NV12 {
		size += max(row, f.Stride) * ((f.Height + 1) / 2)
	}
	return max(size, f.Size)
}

func (f Format) String() string {
	return fmt.Sprintf("%v %dx%d at %d frames a second", f.Pixels, f.Width, f.Height, f.FPS)
}

// Frame is one picture. Pix belongs to the caller that lent the Frame to Grab. If the source is a Lender, Pix belongs
// to the source until the Frame is lent to Grab again.
type Frame struct {
	Format
	Sequence uint64     // number of the picture that the device took; a gap means dropped frames
	At       rt.Instant // instant at which the picture was taken; for camera/pipe, at which its first byte arrived
	Pix      []byte
	Lent     int // number by which the source finds the lent buffer
}

// Source delivers frames at its own rate.
type Source interface {
	Format() Format
	// Grab waits for a frame newer than the last one, at most for the source's watchdog time, and fills dst with it.
	// dst.Pix must have room for Format().FrameBytes(), unless the source is a Lender. In steady state Grab allocates
	// nothing.
	//
	// Owner: one capture thread.
	Grab(dst *Frame) error
	// Close ends the source, after the last Grab and the last use of a frame.
	Close() error
}

// Lender is a Source whose Grab points Frame.Pix at the source's memory, instead of copying into the caller's. The
// caller may hold at most LentMax frames at a time.
type Lender interface{ Lends() }

// Live is a Source whose pictures come from a sensor: because of the sensor's noise no two pictures are equal.
type Live interface{ Live() }

// LentMax is the largest number of frames that a caller may hold: the slots of one rt.Latest.
const LentMax = 3

// Counts explain the gaps in Frame.Sequence: Missed, Skipped and Broken together are the sequence numbers that are
// missing.
type Counts struct {
	Missed   uint64 // frames that the driver lost, or had no room for
	Skipped  uint64 // frames that the source skipped because a newer one had arrived
	Broken   uint64 // frames that the driver marked bad, or that were too short
	Restarts uint64 // number of times that the stream was set up again; the frames lost meanwhile have no number
}

// Counter is a Source with Counts, such as a camera with a driver or a program; files and synthetic pictures lose no
// frame. Any thread may call Counts.
type Counter interface{ Counts() Counts }
