// Package pipe is a camera whose pictures a program writes to its standard output: motion JPEG, or
// raw pictures of a declared size. So a picture reaches edge-rt from a CSI camera (rpicam-vid), a
// network camera (ffmpeg, curl) or the colour stream of a depth camera.
//
// Open starts the program and waits for its first picture (program.go). Grab reads its output on the capture thread,
// cuts it into pictures (split.go) and keeps the newest (source.go). When a program ends or is silent, Grab starts it
// again after a pause that doubles up to backoffMax. The pipe limits the program: while Grab does not read, the program
// cannot write more than the pipe holds.
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
	firstWait   = 10 * time.Second       // wait for the first picture after a start: RTSP begins with a key frame
	silence     = 3 * time.Second        // Grab starts a program again after this time without output
	watchdog    = time.Second            // longest Grab
	backoffMin  = 250 * time.Millisecond // pause before the first new start
	backoffMax  = 10 * time.Second
	steady      = 10 * time.Second       // after this time with pictures, the pause is backoffMin again
	killAfter   = 500 * time.Millisecond // time from SIGTERM to SIGKILL
	smallest    = 64 << 10               // least limit on the bytes of a JPEG
	unknownSize = 8 << 20                // largest first JPEG, when no size is declared
	maxStray    = 1 << 20                // Grab returns ErrPictures after this many bytes without a JPEG
	chunk       = 64 << 10               // bytes of one read: a pipe's default size
	maxSkipped  = 16                     // largest number of pictures that one Grab skips
	flood       = 4                      // reading pauses when the output arrives at this multiple of the declared rate
	lastWords   = 2 << 10                // bytes of the program's standard error that are kept

	look = 100 * time.Millisecond // interval at which Open calls Canceled
	// Open ends the check of the raw pictures' size after this time if the bursts differ
	judge        = time.Second
	sameBursts   = 8 // after this many bursts of equally many raw pictures, two or more each, the size is wrong
	unevenBursts = 5 // after this many consecutive bursts that end within a raw picture, the size is wrong
)

// Errors of Open, for errors.Is. ErrProgram and ErrPictures need another command or flag. ErrEnded and ErrSilent may be
// temporary: the camera may be absent now.
var (
	ErrProgram  = errors.New("pipe: the program cannot be started")
	ErrPictures = errors.New("pipe: the program writes no such pictures")
	ErrEnded    = errors.New("pipe: the program ended")
	ErrSilent   = errors.New("pipe: the program writes nothing")
)
