package pattern

import (
	"bytes"
	"image"
	"image/jpeg"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestTheNumberSurvivesJPEG(t *testing.T) {
	for _, size := range [][2]int{{MinWidth, MinHeight}, {160, 120}, {641, 479}} {
		w, h := size[0], size[1]
		pix := make([]byte, w*h*3)
		for _, want := range []uint32{0, 1, 0xFFFFFFFF, 0xAAAAAAAA, 0x12345678} {
			paint(pix, w, h, want)
			rttest.Want(t, Number(throughJPEG(t, pix, w, h), w, h), want, "%dx%d: Number()", w, h)
		}
	}
}

func throughJPEG(t *testing.T, pix []byte, w, h int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		copy(m.Pix[i*4:], pix[i*3:i*3+3])
		m.Pix[i*4+3] = 255
	}
	var b bytes.Buffer
	rttest.Do(t, jpeg.Encode(&b, m, &jpeg.Options{Quality: 60}))
	d := rttest.Must(jpeg.Decode(&b))(t)
	out := make([]byte, 0, w*h*3)
	for y := range h {
		for x := range w {
			r, g, bl, _ := d.At(x, y).RGBA()
			out = append(out, byte(r>>8), byte(g>>8), byte(bl>>8))
		}
	}
	return out
}

func TestFramesComeOnTheirGridAndSkipForASlowReader(t *testing.T) {
	clock := rttest.NewClock(1000)
	s := NewSource(clock, camera.Format{Width: 160, Height: 120, Pixels: camera.RGB8, FPS: 50})
	f := frameOf(s)
	want := []uint64{0, 1, 4, 5}
	for i, busy := range []time.Duration{0, 0, 55 * time.Millisecond, 0} {
		clock.Advance(busy)
		rttest.Do(t, s.Grab(&f))
		at := time.Duration(want[i]) * 20 * time.Millisecond
		if f.Sequence != want[i] || f.At.Sub(1000) != at || Number(f.Pix, 160, 120) != uint32(want[i]) {
			t.Errorf("frame %d: sequence %d, number %d, at %v, want %d at %v", i, f.Sequence, Number(f.Pix, 160, 120),
				f.At.Sub(1000), want[i], at)
		}
	}
}

func TestClose(t *testing.T) {
	s := NewSource(rttest.NewClock(1), camera.Format{Width: 160, Height: 120, Pixels: camera.RGB8, FPS: 50})
	f := frameOf(s)
	if err := s.Grab(&f); err != nil {
		t.Errorf("Grab = %v", err)
	}
	s.Close()
	rttest.FailsAs(t, s.Grab(&f), camera.ErrClosed) // Grab after Close
}

func TestGrabNoAlloc(t *testing.T) {
	s := NewSource(rttest.NewClock(1), camera.Format{Width: 160, Height: 120, Pixels: camera.RGB8, FPS: 50})
	f := frameOf(s)
	rttest.NoAllocs(t, "Grab allocates %v times, want 0", 100, func() { s.Grab(&f) })
}

// frameOf returns a frame with room for the pictures of a source.
func frameOf(s *Source) camera.Frame {
	return camera.Frame{Pix: make([]byte, s.Format().FrameBytes())}
}
