package capture

import (
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt"
)

const (
	// repeatLimit is the time for which a live camera may repeat pictures before that is reported.
	repeatLimit = time.Second

	// remembered exceeds the number of a driver's buffers: a driver that hangs may return them in
	// turn.
	remembered = 16
)

// repeats finds pictures that have occurred before. A sensor's noise makes all pictures different. So a live camera
// that repeats a picture hangs, or its driver does, even if the pictures have new times.
type repeats struct {
	seed  maphash.Seed
	live  bool
	sums  [remembered]uint64 // hashes of the last new pictures
	known int                // number of new pictures so far
	first rt.Instant         // instant of the last new picture
}

// SetLive sets whether the camera's pictures come from a sensor, instead of the default for its
// source. Call it before Run.
func (e *Camera) SetLive(live bool) { e.repeats.live = live }

// again reports whether a picture has occurred before. For a JPEG it compares the coded picture,
// since the header may hold a time.
//
//rt:noalloc
func (r *repeats) again(s *Frame) bool {
	if !r.live {
		return false
	}
	pix := s.Pix
	if s.Pixels == camera.MJPEG {
		pix = pix[s.JPEG.Scan:s.JPEG.End]
	}
	sum := maphash.Bytes(r.seed, pix)
	if slices.Contains(r.sums[:min(r.known, remembered)], sum) {
		return true
	}
	r.sums[r.known%remembered], r.first = sum, s.At
	r.known++
	return false
}

// repeated handles a repeated picture: the newest new picture stays the newest and ages.
func (e *Camera) repeated(s *Frame) {
	e.same.Add(1)
	o := &e.repeatOutage
	if o.since == 0 {
		o.since = e.repeats.first
	}
	if o.failed(s.At, repeatLimit) {
		o.report(fmt.Errorf("it has repeated one picture for %v: the camera or its driver hangs; plug it in again, "+
			"or add live=no if its pictures may repeat",
			s.At.Sub(e.repeats.first).Round(100*time.Millisecond)))
	}
}
