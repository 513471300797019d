package edge

import (
	"errors"
	"sync/atomic"
	"time"

	"edgert/camera"
	"edgert/rt"
)

// eye is one camera: a capture thread that keeps the newest frame for the
// sender.
type eye struct {
	// Constant after Open.
	name   string // as on the command line: top
	wire   string // as on the wire: observation.images.top
	source camera.Source

	newest *rt.Latest[camera.Frame] // producer: capture thread; reader: sender

	captured, dropped, errors atomic.Uint64
	age                       *rt.Hist // when it left; written by the sender
}

// imageKey is LeRobot's name of a camera's feature.
const imageKey = "observation.images."

func newEye(name string, source camera.Source) *eye {
	size := source.Format().FrameBytes()
	return &eye{
		name: name, wire: imageKey + name, source: source, age: rt.NewHist(),
		newest: rt.NewLatest(func(f *camera.Frame) { f.Pix = make([]byte, size) }),
	}
}

// errBackoff is how long a capture thread waits after a failed Grab.
const errBackoff = 50 * time.Millisecond

// capture fills slot after slot until stop is set. blind falls by one with the
// first picture.
//
// Owner: the camera's capture thread.
func (e *eye) capture(clock rt.Clock, stop *atomic.Bool, blind *atomic.Int32) {
	last, any := uint64(0), false
	for !stop.Load() {
		f := e.newest.Back()
		if err := e.source.Grab(f); err != nil {
			if !errors.Is(err, camera.ErrStalled) {
				clock.SleepUntil(clock.Now().Add(errBackoff))
			}
			e.errors.Add(1)
			continue
		}
		sequence := f.Sequence // Publish gives the slot away
		if any && sequence > last+1 {
			e.dropped.Add(sequence - last - 1)
		}
		last, any = sequence, true
		e.newest.Publish(int64(f.At))
		if e.captured.Add(1) == 1 {
			blind.Add(-1)
		}
	}
}
