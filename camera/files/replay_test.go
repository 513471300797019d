package files

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// gray writes a picture of one gray level into dir.
func gray(t *testing.T, dir, name string, w, h int, level uint8) {
	t.Helper()
	im := image.NewGray(image.Rect(3, 5, 3+w, 5+h))
	for i := range im.Pix {
		im.Pix[i] = level
	}
	im.SetGray(3, 5, color.Gray{255})
	var b bytes.Buffer
	var err error
	if strings.HasSuffix(name, ".png") {
		err = png.Encode(&b, im)
	} else {
		err = jpeg.Encode(&b, im, nil)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644)
	}
	rttest.Do(t, err)
}

func TestPlaysAFolderInOrderForever(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"c.png", "a.png", "b.PNG"} {
		gray(t, dir, strings.ToLower(name), 6, 4, uint8(10*(i+1)))
	}
	os.WriteFile(filepath.Join(dir, "readme.txt"), nil, 0o644)
	clock := rttest.NewClock(rt.Instant(time.Second))
	s := rttest.Must(Open(dir, 10, clock))(t)
	if f := s.Format(); f.Width != 6 || f.Height != 4 || f.Pixels != camera.RGB8 || f.FPS != 10 ||
		f.FrameBytes() != 72 {
		t.Errorf("Format() = %+v", f)
	}
	var f camera.Frame
	for k, level := range []byte{20, 30, 10, 20} {
		rttest.Do(t, s.Grab(&f))
		if f.Sequence != uint64(k) || f.At != rt.Instant(time.Second)+rt.Instant(k)*rt.Instant(100*time.Millisecond) ||
			f.Pix[5] != level || f.Pix[0] != 255 {
			t.Errorf("frame %d at %v with %d and %d, want %d, and 255 in the corner", f.Sequence, f.At, f.Pix[5],
				f.Pix[0], level)
		}
	}
	rttest.NoAllocs(t, "Grab allocates %v times, want 0", 20, func() { s.Grab(&f) })
	s.Close()
	rttest.Want(t, s.Grab(&f), camera.ErrClosed, "Grab() after Close")
}

func TestJPEGStaysAsItIs(t *testing.T) {
	dir := t.TempDir()
	gray(t, dir, "one.jpg", 16, 8, 100)
	s := rttest.Must(Open(filepath.Join(dir, "one.jpg"), 30, rttest.NewClock(0)))(t)
	var f camera.Frame
	rttest.Do(t, s.Grab(&f))
	if want, _ := os.ReadFile(filepath.Join(dir, "one.jpg")); f.Pixels != camera.MJPEG || !bytes.Equal(f.Pix, want) {
		t.Errorf("%v of %d bytes, want the file as it is", f.Format, len(f.Pix))
	}
}

// The Hub's cache contains links to files.
func TestPlaysLinks(t *testing.T) {
	dir, links := t.TempDir(), t.TempDir()
	gray(t, dir, "a.png", 6, 4, 1)
	rttest.Do(t, os.Symlink(filepath.Join(dir, "a.png"), filepath.Join(links, "b.png")))
	if s := rttest.Must(Open(links, 30, rttest.NewClock(0)))(t); len(s.files) != 1 {
		t.Errorf("%d files of a folder of one link", len(s.files))
	}
}

func TestOpenRefuses(t *testing.T) {
	dir, empty := t.TempDir(), t.TempDir()
	gray(t, dir, "1.png", 6, 4, 1)
	gray(t, dir, "2.png", 7, 4, 1)
	mixed := t.TempDir()
	gray(t, mixed, "1.png", 6, 4, 1)
	gray(t, mixed, "2.jpg", 6, 4, 1)
	os.WriteFile(filepath.Join(empty, "x.jpeg.txt"), nil, 0o644)
	broken := filepath.Join(t.TempDir(), "x.jpg")
	os.WriteFile(broken, []byte("\xff\xd8 and no more"), 0o644)
	for path, want := range map[string]string{
		dir: "2.png is rgb 7x4", mixed: "2.jpg is mjpeg", empty: "holds 0 files", broken: "x.jpg",
		filepath.Join(dir, "none"): "no such file", "/dev/null": "want *.jpg",
	} {
		rttest.FailsAs(t, rttest.Err(Open(path, 30, rttest.NewClock(0))), errFiles, want)
	}
}

// A camera whose folder is moved away counts as unplugged, and returns with the folder. Grab allocates nothing
// meanwhile.
func TestGoesAwayWithItsPath(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a path is only looked after on Linux")
	}
	dir := filepath.Join(t.TempDir(), "pictures")
	rttest.Do(t, os.Mkdir(dir, 0o755))
	gray(t, dir, "a.png", 6, 4, 10)
	s := rttest.Must(Open(dir, 10, rttest.NewClock(rt.Instant(time.Second))))(t)
	var f camera.Frame
	grab := func(want error) {
		t.Helper()
		before, first := f.Sequence, f.Pix == nil
		if err := s.Grab(&f); !errors.Is(err, want) {
			t.Fatalf("Grab() = %v, want %v", err, want)
		}
		if want == nil && !first && f.Sequence <= before {
			t.Errorf("frame %d after %d", f.Sequence, before)
		}
	}
	grab(nil)
	rttest.Do(t, os.Rename(dir, dir+".away"))
	grab(camera.ErrGone)
	grab(camera.ErrGone)
	rttest.Do(t, os.Rename(dir+".away", dir))
	grab(nil)
	rttest.NoAllocs(t, "%v allocations for a frame, want 0", 100, func() { s.Grab(&f) })
}
