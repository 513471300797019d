package uplink

import (
	"bytes"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// ownJPEG is a camera whose own JPEG is sent unchanged.
type ownJPEG struct{}

func (ownJPEG) Format() camera.Format {
	return camera.Format{Width: 16, Height: 16, Pixels: camera.MJPEG, FPS: 30}
}
func (ownJPEG) Grab(*camera.Frame) error { return nil }
func (ownJPEG) Close() error             { return nil }

type pastRig struct {
	steps  *Steps
	past   *past
	camera *capture.Camera
	file   []byte
	now    rt.Instant
	o      wire.Observation
}

func newPastRig(t *testing.T, n int) *pastRig {
	t.Helper()
	cam := capture.New("top", ownJPEG{}, 0)
	v := rttest.Must(capture.NewEncoder(cam, &capture.Config{Name: "top"}, capture.Encoding{Quality: 90}))(t)
	t.Cleanup(v.Close)
	steps := newSteps(n, 1)
	return &pastRig{
		steps:  steps,
		past:   newPast(steps, 1, []*capture.Encoder{v}),
		camera: cam,
		file:   []byte("\xff\xd8 one of them \xff\xd9"),
		now:    1,
	}
}

// step takes a picture whose last byte is value, and makes a step.
func (r *pastRig) step(value byte) {
	r.show(value, r.now)
	r.steps.Put(r.now, 1, 1, []float32{float32(value)}, true)
	r.past.take(newestStep, 0)
	r.now = r.now.Add(10 * time.Millisecond)
}

func (r *pastRig) show(value byte, at rt.Instant) {
	f := r.camera.Newest.Back()
	copy(f.Pix, r.file)
	f.Pix[len(r.file)] = value
	f.Format, f.At = ownJPEG{}.Format(), at
	f.JPEG = jpeg.Picture{W: 16, H: 16, End: len(r.file) + 1, Insert: 2}
	r.camera.Newest.Publish(int64(at))
}

// Goal: the first observation that leaves fills the whole history, as in LeRobot's queue, even if observations were
// held back before it.
func TestTheFirstObservationBeginsTheHistory(t *testing.T) {
	for _, first := range []bool{false, true} {
		r := newPastRig(t, 4)
		for value := range byte(4) {
			r.step(value)
		}
		r.show(9, r.now)
		if !r.past.reach(r.past.key, r.now, []float32{9}, 0, first) {
			t.Fatal("no picture")
		}
		r.past.fill(&r.o, 4)
		if got := r.o.PastStates.Data[0]; (got == 9) != first {
			t.Errorf("first %v: the oldest state is %v", first, got)
		}
	}
}

// Goal: a camera's own buffers return to its driver, so the history keeps copies, with Huffman
// tables if the camera omits them.
func TestPicturesOutliveTheCamerasBuffers(t *testing.T) {
	r := newPastRig(t, 6)
	for value := range byte(8) {
		r.step(value)
	}
	r.past.fill(&r.o, 6)
	for i, m := range r.o.PastImages {
		want := append(bytes.Clone(r.file), byte(2+i))
		if !bytes.Equal(m.Data, want) || m.Splice != jpeg.StandardTables || m.SpliceAt != 2 ||
			m.Name != "observation.images.top" {
			t.Errorf("picture %d is %q with %d bytes at %d, want %q and the tables at 2", i, m.Data, len(m.Splice),
				m.SpliceAt, want)
		}
		if got := r.o.PastStates.Data[i]; got != float32(2+i) {
			t.Errorf("state %d is %v, want %d", i, got, 2+i)
		}
	}
	if m, at := r.past.picture(0); m.Data[len(r.file)] != 7 || at != r.now.Add(-10*time.Millisecond) {
		t.Errorf("the newest is %v of %v", m.Data, at)
	}
}

// Goal: however late the sender is, it takes all of a camera's pictures in turn: a picture newer
// than the present step waits for a later step.
func TestPicturesGoOnForALateSender(t *testing.T) {
	const period, late, last = 10 * time.Millisecond, 3, 40 // late: steps
	r := newPastRig(t, 2)
	for i := range last {
		now := rt.Instant(i+1) * rt.Instant(period)
		key := r.steps.Put(now, 1, 1, []float32{1}, true)
		r.show(byte(i), now.Add(period/2))
		r.past.take(key-late, 0)
	}
	step := rt.Instant(last-late) * rt.Instant(period)
	if _, at := r.past.picture(0); at > step || step.Sub(at) > (late+1)*period {
		t.Errorf("the step of %v has a picture of %v, want one of at most %v before", step, at, (late+1)*period)
	}
}

func TestNothingBeforeTheFirstPicture(t *testing.T) {
	r := newPastRig(t, 2)
	key := r.steps.Put(r.now, 1, 1, []float32{1}, true)
	if r.past.reach(key, r.now, []float32{1}, 0, false) {
		t.Error("an observation has a picture before there is one")
	}
	r.step(9)
	if r.past.fill(&r.o, 2); r.o.PastStates.Data[0] != 9 || r.o.PastImages[0].Data != nil {
		t.Errorf("the first step with a picture stands beside %v, %v, want itself", r.o.PastStates.Data,
			r.o.PastImages[0].Data)
	}
}

func TestPastNoAlloc(t *testing.T) {
	r := newPastRig(t, 4)
	r.o.PastImages = make([]wire.Image, 0, 3)
	value := byte(0)
	rttest.NoAllocs(t, "a step allocates %v times, want 0", 200, func() {
		value++
		r.step(value)
		r.past.fill(&r.o, 4)
		r.steps.Break()
	})
}
