package recording

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// shots is a camera that gives its pictures, one in each period of its clock, and then ends.
type shots struct {
	format   camera.Format
	clock    *rttest.Clock
	pictures [][]byte
	stop     atomic.Bool
	after    func() // called after each picture
	taken    bool
}

func (s *shots) Format() camera.Format { return s.format }
func (s *shots) Lends()                {}
func (s *shots) Close() error          { return nil }

func (s *shots) Grab(dst *camera.Frame) error {
	if s.taken {
		s.after()
	}
	if len(s.pictures) == 0 {
		s.stop.Store(true)
		return errors.New("it has no more")
	}
	s.clock.Advance(33 * time.Millisecond)
	dst.Format = s.format
	dst.Pix = s.pictures[0]
	dst.At = s.clock.Now()
	dst.Sequence++
	s.pictures, s.taken = s.pictures[1:], true
	return nil
}

// Goal: a torn picture is counted and reported with its camera as soon as it is recorded, even if the encoder must
// decode it or its markers are cut. Later torn pictures are reported together.
func TestTornPicturesAreReportedAtOnce(t *testing.T) {
	good := rttest.Must(os.ReadFile(filepath.Join("..", "..", "testdata", "jpeg", "golden", "scene_422.jpg")))(t)
	torn := append(slices.Clone(good[:len(good)*2/3]), 0xff, 0xd9)
	cut := good[:len(good)/2]
	for name, tt := range map[string]struct {
		bad    []byte
		encode capture.Encoding
	}{
		"as it came": {torn, capture.Encoding{Quality: 90}},
		"encoded":    {torn, capture.Encoding{Quality: 80, Reencode: true}},
		"cut":        {cut, capture.Encoding{Quality: 90}},
	} {
		var said strings.Builder
		clock := rttest.NewClock(rt.Instant(time.Second))
		cfg := config(record.All, t.TempDir())
		cfg.Clock, cfg.Log = clock, slog.New(slog.NewTextHandler(&said, nil))
		r := opened(t, cfg)
		source := &shots{format: camera.Format{Width: 96, Height: 64, Pixels: camera.MJPEG, FPS: 30}, clock: clock}
		cam := capture.New("top", source, 0)
		rttest.Do(t, r.Tap(cam, capture.Config{Name: "top"}, tt.encode))
		rttest.Do(t, r.Recorder.SetCameras([]string{"top"}))
		r.collecting.Store(true) // each call of collect makes only one pass
		source.after = r.collect
		shoot := func(pictures ...[]byte) {
			source.pictures, source.taken = pictures, false
			source.stop.Store(false)
			cam.Run(clock, &source.stop, new(atomic.Int32))
		}
		shoot(good, good)
		if said.Len() > 0 || r.Stats().TornPictures != 0 {
			t.Fatalf("%s: good pictures: %s", name, &said)
		}
		shoot(tt.bad)
		if n := strings.Count(said.String(), "pictures are torn"); n != 1 ||
			!strings.Contains(said.String(), "camera=top torn=1 so_far=1") {
			t.Errorf("%s: it is reported %d times: %s", name, n, &said)
		}
		said.Reset()
		shoot(good, tt.bad, tt.bad, good, tt.bad)
		if said.Len() > 0 || r.Stats().TornPictures != 4 {
			t.Errorf("%s: %d are torn, want 4; within five seconds it says %s", name, r.Stats().TornPictures, &said)
		}
		clock.Advance(tornEvery)
		shoot(good)
		if !strings.Contains(said.String(), "camera=top torn=3 so_far=4") {
			t.Errorf("%s: after five seconds it says %s", name, &said)
		}
		if text := Line(r.Stats()); !strings.Contains(text, "4 pictures are torn") {
			t.Errorf("%s: the summary says %q", name, text)
		}
		r.Close()
		noted := 0
		written(t, r, cfg.Dir, record.Visitor{Event: func(m *record.Event) error {
			if event.Code(m.Code) == event.CameraSpoilt {
				noted++
			}
			return nil
		}})
		rttest.Want(t, noted, 2, "%s: events", name)
	}
}
