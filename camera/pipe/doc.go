// Package pipe is a camera whose pictures a program writes to its standard output: motion JPEG, or
// raw pictures of a declared size. So a picture reaches edge-rt from a CSI camera (rpicam-vid), a
// network camera (ffmpeg, curl) or the colour stream of a depth camera.
//
// Open starts the program and waits for its first picture (program.go). Grab reads its output on
// the capture thread, cuts it into pictures (split.go) and keeps the newest (source.go). A program
// that ends, or is silent, is started again after a pause that doubles up to backoffMax. The pipe
// limits the program: what Grab does not read, it cannot write.
//
// A picture's instant is the arrival of its first byte; the time between sensor and pipe is
// unknown here.
package pipe

import (
	"errors"
	"time"
)

// Limits of a program and of its output.
const (
	firstWait   = 10 * time.Second       // for the first picture after a start: RTSP waits for a key frame
	silence     = 3 * time.Second        // without output, after which the program is started again
	watchdog    = time.Second            // longest Grab
	backoffMin  = 250 * time.Millisecond // pause before the first new start
	backoffMax  = 10 * time.Second
	steady      = 10 * time.Second       // of pictures, after which the pause is backoffMin again
	killAfter   = 500 * time.Millisecond // from SIGTERM to SIGKILL
	smallest    = 64 << 10               // limit of a small JPEG
	unknownSize = 8 << 20                // largest first JPEG, when no size is declared
	maxStray    = 1 << 20                // bytes without a JPEG, after which the output is refused
	chunk       = 64 << 10               // of one read: a pipe's default size
	maxSkipped  = 16                     // pictures that one Grab replaces by newer ones
	flood       = 4                      // pictures' worth of bytes, in multiples of the rate, before reading pauses
	lastWords   = 2 << 10                // bytes of the program's standard error that are kept

	look = 100 * time.Millisecond // interval at which Open looks for a cancellation
	// of raw pictures without equal bursts, after which Open does not judge their size
	judge        = time.Second
	sameBursts   = 8 // bursts of as many raw pictures, two or more: the size is wrong
	unevenBursts = 5 // consecutive bursts that end within a raw picture: the size is wrong
)

// Errors of Open, for errors.Is. ErrProgram and ErrPictures need another command or flag; ErrEnded
// and ErrSilent may pass: the camera may be absent now.
var (
	ErrProgram  = errors.New("pipe: the program cannot be started")
	ErrPictures = errors.New("pipe: the program writes no such pictures")
	ErrEnded    = errors.New("pipe: the program ended")
	ErrSilent   = errors.New("pipe: the program writes nothing")
)
