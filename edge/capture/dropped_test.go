package capture

import (
	"sync/atomic"
	"testing"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// gapCamera is a source with the counts of lost frames that a V4L2 camera has.
type gapCamera struct {
	frames []struct {
		sequence uint64
		counts   camera.Counts // counts from the start until that frame is passed on
	}
	next int
	stop *atomic.Bool
}

func (d *gapCamera) Format() camera.Format {
	return camera.Format{Width: 2, Height: 2, Pixels: camera.Gray8, FPS: 30}
}
func (d *gapCamera) Close() error          { return nil }
func (d *gapCamera) Counts() camera.Counts { return d.frames[max(d.next, 1)-1].counts }
func (d *gapCamera) Grab(dst *camera.Frame) error {
	dst.Format, dst.Sequence = d.Format(), d.frames[d.next].sequence
	d.next++
	d.stop.Store(d.next == len(d.frames))
	return nil
}

// Goal: every lost frame has exactly one reason. Frames that were lost before the first captured
// frame count neither as dropped nor by reason.
func TestDroppedFramesAreCounted(t *testing.T) {
	var stop atomic.Bool
	var blind atomic.Int32
	d := &gapCamera{stop: &stop}
	for _, f := range []struct{ sequence, missed, skipped, broken uint64 }{
		{9, 3, 4, 1}, {10, 3, 4, 1}, {14, 4, 5, 2}, {15, 4, 5, 2}, {18, 6, 5, 2},
	} {
		d.frames = append(d.frames, struct {
			sequence uint64
			counts   camera.Counts
		}{f.sequence, camera.Counts{Missed: f.missed, Skipped: f.skipped, Broken: f.broken}})
	}
	e := New("top", d, 0)
	e.Run(rttest.NewClock(1), &stop, &blind)
	got := e.Stats()
	if got.Captured != 5 || got.Dropped != 5 || got.Source != (camera.Counts{Missed: 3, Skipped: 1, Broken: 1}) {
		t.Errorf("%+v, want 5 captured and 5 dropped: 3 missed, 1 skipped, 1 broken", got)
	}
}
