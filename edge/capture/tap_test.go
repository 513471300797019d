package capture

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/pattern"
	"github.com/edge-rt/edge-rt/wire"
)

// Goal: a tap has its own copies of the pictures, at most one per interval. Its encoder makes the same pictures as the
// sender's encoder. Some copies wait for their reader, and frames without room are counted.
func TestTapCopiesPictures(t *testing.T) {
	clock := rttest.NewClock(rt.Instant(time.Second))
	source := pattern.NewSource(clock, camera.Format{Width: 160, Height: 120, Pixels: camera.RGB8, FPS: 30})
	defer source.Close()
	cam := New("top", source, 0)
	tap := cam.Tap(100*time.Millisecond, 2)
	config, sent := &Config{Name: "top"}, Encoding{Quality: 90}
	var encoders [2]*Encoder
	for i, c := range []*Camera{cam, tap.Frames} {
		v := rttest.Must(NewEncoder(c, config, sent))(t)
		defer v.Close()
		encoders[i] = v
	}
	var stop atomic.Bool
	var missing atomic.Int32
	grabs := 0
	fetched := 0
	last := rt.Instant(0)
	for grabs < 60 {
		grabs++
		grabOne(cam, clock, &stop, &missing)
		var own, theirs wire.Image
		tap.Next()
		at, err := encoders[1].Picture(&own)
		if err != nil || at == last {
			continue
		}
		if at.Sub(last) < 100*time.Millisecond {
			t.Fatalf("a picture of %v after one of %v", at, last)
		}
		last, fetched = at, fetched+1
		if now, err := encoders[0].Picture(&theirs); err != nil || now != at ||
			string(theirs.Data) != string(own.Data) || len(own.Data) == 0 {
			t.Fatalf("the sender's picture of %v has %d bytes, the tap's of %v %d, %v; want the same", now,
				len(theirs.Data), at, len(own.Data), err)
		}
	}
	if fetched < 14 || fetched > 20 || tap.Missed() != 0 {
		t.Errorf("%d pictures in two seconds, %d missed, want one each 0.1 s", fetched, tap.Missed())
	}
	var wanted []rt.Instant // frames that wait while the reader does something else
	for range 12 {
		grabOne(cam, clock, &stop, &missing)
		if at := tap.next.Add(-100 * time.Millisecond); len(wanted) == 0 || wanted[len(wanted)-1] != at {
			wanted = append(wanted, at)
		}
	}
	if len(wanted) < 4 || tap.Missed() != uint64(len(wanted)-2) {
		t.Errorf("%d pictures missed of %d that were due, want all but the two that wait", tap.Missed(), len(wanted))
	}
	for i := range 3 {
		var own wire.Image
		if got := tap.Next(); got != (i < 2) {
			t.Fatalf("the picture after %d that waited: %v", i, got)
		}
		if at, err := encoders[1].Picture(&own); err != nil || len(own.Data) == 0 || i < 2 && at != wanted[i] {
			t.Errorf("picture %d that waited is of %v, want %v; %v", i, at, wanted, err)
		}
	}
	before := tap.Missed()
	frame := Frame{Frame: camera.Frame{Format: source.Format(), At: clock.Now().Add(time.Hour),
		Pix: make([]byte, 1<<20)}}
	if n := testing.AllocsPerRun(100, func() {
		frame.At = frame.At.Add(time.Second)
		tap.offer(&frame)
	}); n != 0 || tap.Missed()-before != 101 { // one run warms up
		t.Errorf("pictures larger than the camera's: %v allocations, %d missed, want 0 and all of them", n,
			tap.Missed()-before)
	}
}

// grabOne runs the capture thread for one picture.
func grabOne(cam *Camera, clock rt.Clock, stop *atomic.Bool, missing *atomic.Int32) {
	one := &oneGrab{Source: cam.Source, stop: stop}
	stop.Store(false)
	cam.Source = one
	cam.Run(clock, stop, missing)
	cam.Source = one.Source
}

type oneGrab struct {
	camera.Source
	stop *atomic.Bool
}

func (o *oneGrab) Grab(dst *camera.Frame) error {
	o.stop.Store(true)
	return o.Source.Grab(dst)
}
