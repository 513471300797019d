package capture

import (
	"fmt"
	"hash/maphash"
	"time"

	"edgert/camera"
	"edgert/rt"
)

const (
	// repeatLimit is for how long a live camera may repeat pictures until that is reported.
	repeatLimit = time.Second

	// remembered is more pictures than a driver has buffers: one that hangs may show them in turn.
	remembered = 16
)

// repeats finds pictures that were there before. A sensor's noise makes each another, so a
// live camera that repeats one hangs, or its driver does, whatever times it gives them.
//
// Owner: the capture thread.
type repeats struct {
	seed  maphash.Seed
	live  bool
	sums  [remembered]uint64 // of the last pictures that were new
	known int                // so many are new so far
	first rt.Instant         // when the newest of them was taken
}

// SetLive says whether the camera's pictures come from a sensor, whatever its source is. Call
// it before Run.
func (e *Camera) SetLive(live bool) { e.repeats.live = live }

// again reports whether a picture was there before. Of a JPEG the coded picture counts, since
// its header may hold a time.
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
	for _, known := range r.sums[:min(r.known, remembered)] {
		if sum == known {
			return true
		}
	}
	r.sums[r.known%remembered], r.first = sum, s.At
	r.known++
	return false
}

// repeated takes a picture that was there before: the newest one stays that, and its age
// counts.
func (e *Camera) repeated(s *Frame) {
	e.same.Add(1)
	o := &e.repeatOutage
	if o.since == 0 {
		o.since = e.repeats.first
	}
	if o.failed(s.At, repeatLimit) {
		o.report(fmt.Errorf("it has repeated one picture for %v: the camera or its driver hangs; plug it in again, or add live=no where its pictures may stand still",
			s.At.Sub(e.repeats.first).Round(100*time.Millisecond)))
	}
}
