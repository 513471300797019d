package capture

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// liveCamera is a camera whose pictures come from a sensor.
type liveCamera struct{ *fakeCamera }

func (liveCamera) Live() {}

// commented returns a JPEG with another header.
func commented(src []byte, text string) []byte {
	return slices.Insert(slices.Clone(src), 2, append([]byte{0xff, 0xfe, 0, byte(2 + len(text))}, text...)...)
}

// watch runs a camera for this number of pictures, one every 100 ms. It returns the number of pictures after which the
// camera first reports an error; -1: it reports none.
func watch(t *testing.T, e *Camera, f *fakeCamera, pictures int) (complains int) {
	t.Helper()
	var stop atomic.Bool
	var pending atomic.Int32
	taken := 0
	complains = -1
	f.pace = func() {
		if complains < 0 && e.Err() != nil {
			complains = taken
		}
		if taken++; taken == pictures {
			stop.Store(true)
		}
		f.clock.Advance(100 * time.Millisecond)
	}
	e.Run(f.clock, &stop, &pending)
	return complains
}

// Goal: a live camera that repeats pictures with new times counts as hanging. Its newest new picture ages, and after a
// second the camera reports an error, until new pictures arrive.
func TestALiveCameraThatRepeatsAPictureHangs(t *testing.T) {
	good, stray, _, garbled := testPictures(t)
	gray := func(v byte) []byte { return slices.Repeat([]byte{v}, sceneW*sceneH) }
	for _, tt := range []struct {
		name   string
		format camera.PixelFormat
		frozen [][]byte
		moving []byte
	}{
		{"one JPEG", camera.MJPEG, [][]byte{good}, garbled},
		{"with padding", camera.MJPEG, [][]byte{good, append(slices.Clone(good), 0, 0, 7)}, garbled},
		{"with a time in its header", camera.MJPEG, [][]byte{commented(good, "12:00:01"), commented(good, "12:00:02"),
			commented(good, "12:00:03")}, garbled},
		{"a driver's buffers in turn", camera.MJPEG, [][]byte{good, stray, good}, garbled},
		{"raw", camera.Gray8, [][]byte{gray(9)}, gray(10)},
	} {
		f := film(tt.format, sceneW, sceneH, tt.frozen...)
		e := New("front", liveCamera{f}, 0)
		tap := e.Tap(0, 32)
		began := f.clock.Now()
		if at := watch(t, e, f, 31); at < 11 || at > 13 {
			t.Errorf("%s: it complains after %d pictures, want a second after the first", tt.name, at)
		}
		if err := e.Err(); !rttest.Says(err, "it has repeated one picture for 1s") {
			t.Errorf("%s: it says %v", tt.name, err)
		}
		s := e.Stats()
		distinct := s.Captured
		if distinct > 2 || s.Repeated != 31-distinct {
			t.Errorf("%s: %d captured and %d repeated, want 31 together", tt.name, s.Captured, s.Repeated)
		}
		kept := 0
		for tap.Next() {
			kept++
		}
		newest, _, _ := e.Newest.Front()
		if age := newest.At.Sub(began); age > 250*time.Millisecond || kept != int(distinct) {
			t.Errorf("%s: the newest picture is of %v after the beginning, %d are kept; want the age of the first",
				tt.name, age, kept)
		}
		f.pictures, f.next = [][]byte{tt.moving}, 0
		if watch(t, e, f, 1); e.Err() != nil || e.Stats().Captured != distinct+1 {
			t.Errorf("%s: with a new picture it says %v", tt.name, e.Err())
		}
		if newest, _, _ = e.Newest.Front(); f.clock.Now().Sub(newest.At) > 50*time.Millisecond {
			t.Errorf("%s: the new picture is not the newest", tt.name)
		}
	}
}

// Goal: pictures of files, of a pattern and of a simulation may repeat; SetLive changes this.
func TestPicturesThatMayStandStill(t *testing.T) {
	good, _, _, _ := testPictures(t)
	for _, tt := range []struct {
		change *bool
		hangs  bool
	}{{nil, false}, {new(true), true}, {new(false), false}} {
		f := brokenCamera(good)
		e := New("front", f, 0)
		if tt.change != nil {
			e.SetLive(*tt.change)
		}
		watch(t, e, f, 20)
		if s := e.Stats(); (e.Err() != nil) != tt.hangs || (s.Repeated > 0) != tt.hangs {
			t.Errorf("%v: %v, %+v", tt.change, e.Err(), s)
		}
	}
	f := brokenCamera(good)
	e := New("front", liveCamera{f}, 0)
	if e.SetLive(false); watch(t, e, f, 20) >= 0 || e.Stats().Captured != 20 {
		t.Errorf("live=no: %v", e.Err())
	}
}

// Goal: when a camera's own JPEG is sent unchanged and repeats, the observation has the first
// picture with its age.
func TestARepeatedPictureLeavesWithItsAge(t *testing.T) {
	good, _, _, _ := testPictures(t)
	f := brokenCamera(good)
	e := New("front", liveCamera{f}, 0)
	v := newTestEncoder(t, e, Config{}, Encoding{Quality: 90})
	watch(t, e, f, 10)
	var m wire.Image
	if at, err := v.Picture(&m); err != nil || f.clock.Now().Sub(at) < 900*time.Millisecond || len(m.Data) == 0 {
		t.Errorf("a picture of %d bytes, %v old, %v; want the first, 900 ms old", len(m.Data),
			f.clock.Now().Sub(at), err)
	}
}

func TestRepeatsNoAlloc(t *testing.T) {
	good, _, _, _ := testPictures(t)
	e := New("front", liveCamera{brokenCamera(good)}, 0)
	s := &Frame{}
	s.Format = camera.Format{Width: sceneW, Height: sceneH, Pixels: camera.MJPEG}
	s.Pix = good
	s.At = 1
	rttest.Do(t, checkFrame(s))
	rttest.NoAllocs(t, "%v allocations, want 0", 100, func() { e.repeats.again(s) })
}
