package capture

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	stdjpeg "image/jpeg"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/camera/v4l2"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/pattern"
	"github.com/edge-rt/edge-rt/wire"
)

func TestParse(t *testing.T) {
	t.Setenv("HOME", "/u")
	for _, tt := range []struct {
		text string
		want Config
	}{
		{"top=sim", Config{Name: "top", Source: "sim"}},
		{"top=sim,", Config{Name: "top", Source: "sim"}}, // an empty list of options
		{"a=~/run1", Config{Name: "a", Source: "/u/run1"}},
		{"a=sim:$HOME/w.sock@30", Config{Name: "a", Source: "sim:/u/w.sock", FPS: 30}},
		{"side=sim:640x480@15", Config{Name: "side", Source: "sim", Width: 640, Height: 480, FPS: 15}},
		{"top=sim:/tmp/so101.scene:80x60@30", Config{
			Name:   "top",
			Source: "sim:/tmp/so101.scene",
			Width:  80,
			Height: 60,
			FPS:    30,
		}},
		{"a=pipe:ffmpeg -i rtsp://u:p@cam:554/x -vf scale=640:480,fps=30 -f mjpeg -",
			Config{Name: "a", Source: "pipe:ffmpeg -i rtsp://u:p@cam:554/x -vf scale=640:480,fps=30 -f mjpeg -"}},
		{"a=pipe:'cat x@10':640x480@30,format=rgb24,rotate=180", Config{
			Name:   "a",
			Source: "pipe:cat x@10",
			Width:  640,
			Height: 480,
			FPS:    30,
			Pixels: camera.RGB8,
			Rotate: 180,
		}},
		{"a=pipe:prog --out=b,c=d -:64x48,send=32x24,live=yes", Config{
			Name:   "a",
			Source: "pipe:prog --out=b,c=d -",
			Width:  64,
			Height: 48,
			SendW:  32,
			SendH:  24,
			Live:   new(true),
		}},
		{"a=pipe:'echo' 'b,quality=5'", Config{Name: "a", Source: "pipe:'echo' 'b,quality=5'"}},
		{"side=pattern@15", Config{Name: "side", Source: "pattern", FPS: 15}},
		{"a=/dev/video0:1280x720", Config{Name: "a", Source: "/dev/video0", Width: 1280, Height: 720}},
		{"a=/dev/v4l/by-path/platform-fd5.pcie-pci-0000:01:00.0-usb-0:1.3:1.0-video-index0:640x480@30",
			Config{
				Name:   "a",
				Source: "/dev/v4l/by-path/platform-fd5.pcie-pci-0000:01:00.0-usb-0:1.3:1.0-video-index0",
				Width:  640,
				Height: 480,
				FPS:    30,
			}},
		{"a=/dev/v4l/by-id/usb-x=y@z_1-video-index0",
			Config{Name: "a", Source: "/dev/v4l/by-id/usb-x=y@z_1-video-index0"}},
		{"a=./run1,rotate=180,crop=480x360+80+60,send=240x180,quality=60,max-age=200ms,format=yuyv",
			Config{
				Name:    "a",
				Source:  "./run1",
				Rotate:  180,
				Crop:    Rect{480, 360, 80, 60},
				SendW:   240,
				SendH:   180,
				Quality: 60,
				MaxAge:  200 * time.Millisecond,
				Pixels:  camera.YUYV,
			}},
		{"a=/dev/video0,exposure=156,power-line-frequency=50-hz",
			Config{Name: "a", Source: "/dev/video0", Controls: []v4l2.Setting{{Name: "exposure", Value: "156"},
				{Name: "power-line-frequency", Value: "50-hz"}}}},
	} {
		if got, err := Parse(tt.text); err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", tt.text, got, err, tt.want)
		}
	}
	for _, bad := range []string{
		"", "top", "=sim", "../x=sim", "a/b=sim", "a\x1bb=sim", "top=", "top=sims", "top=sim:640",
		"top=sim:/tmp/scene,exposure=1", "top=sim:0x480", "top=sim:640x9999", "top=sim@0", "top=sim@fast",
		"top=sim@1001", "top=:640x480",
		"top=sim,rotate", "top=sim,rotate=", "top=sim,rotate=45", "top=sim,rotate=-90",
		"top=sim,rotate=360", "top=sim,crop=10x10", "top=sim,crop=0x10+1+1",
		"top=sim,send=10", "top=sim,quality=0", "top=sim,quality=101", "top=sim,max-age=5", "top=sim,max-age=0s",
		"top=/dev/video0:640X480", "top=/dev/video0:640x480@29.97", "top=./run1@30fps", "top=/dev/video0:640x@30",
		"top=pipe:cat a:641x480,format=nv12",
		"top=sim,format=h264", "top=sim,exposure=1", "top=/dev/video0,Exposure=1",
	} {
		rttest.Ends(t, rttest.Err(Parse(bad)), exit.Usage, "--camera")
	}
}

// corners is a picture of 4x2 pixels whose sides all differ: red, green, blue, white above black, grey,
// yellow, cyan.
var corners = []byte{
	255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255,
	0, 0, 0, 128, 128, 128, 255, 255, 0, 0, 255, 255,
}

// pixelNames names the pixels of a picture in the colours of corners, row by row.
func pixelNames(pix []byte, w int) (out string) {
	names := map[[3]byte]string{
		{255, 0, 0}: "r", {0, 255, 0}: "g", {0, 0, 255}: "b", {255, 255, 255}: "w", {0, 0, 0}: "k", {128, 128,
			128}: "e", {255, 255, 0}: "y", {0, 255, 255}: "c",
	}
	for i := 0; i < len(pix); i += 3 {
		if i > 0 && i/3%w == 0 {
			out += "/"
		}
		if n := names[[3]byte(pix[i:])]; n != "" {
			out += n
		} else {
			out += "?"
		}
	}
	return out
}

func TestTransformCropsAndRotates(t *testing.T) {
	for _, tt := range []struct {
		crop   Rect
		rotate int
		want   string
	}{
		{Rect{}, 0, "rgbw/keyc"},
		{Rect{}, 90, "kr/eg/yb/cw"}, // clockwise: the left side is on top
		{Rect{}, 180, "cyek/wbgr"},
		{Rect{}, 270, "wc/by/ge/rk"},
		{Rect{2, 2, 1, 0}, 0, "gb/ey"},
		{Rect{2, 1, 2, 1}, 0, "yc"},
		{Rect{3, 2, 1, 0}, 90, "eg/yb/cw"},
		{Rect{2, 2, 0, 0}, 180, "ek/gr"},
		{Rect{2, 1, 2, 0}, 270, "w/b"},
	} {
		r := rttest.Must(newTransform(4, 2, tt.crop, tt.rotate, 0, 0))(t)
		pix := corners
		if !r.identity() {
			pix = r.apply(corners)
		}
		rttest.Want(t, pixelNames(pix, r.outW), tt.want, "crop %v, rotate %d", tt.crop, tt.rotate)
	}
	rttest.Fails(t, rttest.Err(newTransform(4, 2, Rect{3, 2, 2, 0}, 0, 0, 0)))
}

// Goal: scaling keeps even areas, averages the pixels that it covers, and follows a ramp.
func TestTransformScales(t *testing.T) {
	for _, size := range [][4]int{{640, 480, 160, 120}, {320, 180, 240, 135}, {160, 120, 640, 480}, {7, 5, 3, 2},
		{5, 3, 5, 7}, {1, 1, 9, 9}, {9, 9, 1, 1}} {
		w := size[0]
		h := size[1]
		ow := size[2]
		oh := size[3]
		r := rttest.Must(newTransform(w, h, Rect{}, 0, ow, oh))(t)
		level, ramp := bytes.Repeat([]byte{7, 255, 131}, w*h), make([]byte, 3*w*h)
		for i := range w * h {
			ramp[3*i] = byte((float64(i%w) + 0.5) / float64(w) * 255)
			ramp[3*i+1] = byte((float64(i/w) + 0.5) / float64(h) * 255)
		}
		if got := r.apply(level); !bytes.Equal(got, bytes.Repeat([]byte{7, 255, 131}, ow*oh)) {
			t.Errorf("%v: a level picture does not stay level", size)
		}
		got := r.apply(ramp)
		for i := range ow * oh {
			x, y := (float64(i%ow)+0.5)/float64(ow)*255, (float64(i/ow)+0.5)/float64(oh)*255
			slack := 2 + 128/float64(min(w, h)) // half a source pixel at the border
			if dx, dy := float64(got[3*i])-x, float64(got[3*i+1])-y; dx > slack || dx < -slack || dy > slack ||
				dy < -slack {
				t.Fatalf("%v: pixel %d is %d, %d, want %.0f, %.0f", size, i, got[3*i], got[3*i+1], x, y)
			}
		}
	}
	r, _ := newTransform(4, 2, Rect{}, 0, 2, 1)
	if got := r.apply(corners); !bytes.Equal(got, []byte{96, 96, 32, 128, 191, 191}) {
		t.Errorf("half of the corners is %v, want the means", got)
	}
}

// fakeCamera is a source that lends its pictures one after the other.
type fakeCamera struct {
	format   camera.Format
	clock    *rttest.Clock
	pictures [][]byte
	step     uint64 // difference of two sequence numbers; 0: 1
	next     int
	taken    int
	err      error
	stop     *atomic.Bool
	pace     func() // called before each picture
}

// film returns a source of pictures of one format.
func film(pixels camera.PixelFormat, w, h int, pictures ...[]byte) *fakeCamera {
	return &fakeCamera{format: camera.Format{
		Width:  w,
		Height: h,
		Pixels: pixels,
		FPS:    30,
	}, clock: rttest.NewClock(1), pictures: pictures}
}

func (f *fakeCamera) Format() camera.Format { return f.format }
func (f *fakeCamera) Lends()                {}
func (f *fakeCamera) Close() error          { return nil }

func (f *fakeCamera) Grab(dst *camera.Frame) error {
	if f.pace != nil {
		f.pace()
	}
	if f.next == len(f.pictures) {
		if f.stop != nil {
			f.stop.Store(true)
		}
		if f.err != nil {
			return f.err
		}
		f.next = 0
	}
	dst.Format = f.format
	dst.Pix = f.pictures[f.next]
	dst.At = f.clock.Now() + rt.Instant(f.taken)
	f.next++
	f.taken++
	// each slot counts separately, which is enough for tests with one slot
	dst.Sequence += max(f.step, 1)
	return nil
}

// motionJPEG returns a JPEG of w x h as a camera sends it, with and without tables.
func motionJPEG(t testing.TB, w, h int) (whole, bare []byte) {
	t.Helper()
	im := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		im.SetRGBA(i%w, i/w, color.RGBA{byte(i % w), byte(i / w), 90, 255})
	}
	var b bytes.Buffer
	rttest.Do(t, stdjpeg.Encode(&b, im, &stdjpeg.Options{Quality: 80}))
	whole = b.Bytes()
	bare = bytes.Clone(whole[:2])
	for i := 2; ; {
		n := 2 + int(whole[i+2])<<8 + int(whole[i+3])
		if whole[i+1] == 0xda {
			return whole, append(bare, whole[i:]...)
		}
		if whole[i+1] != 0xc4 {
			bare = append(bare, whole[i:i+n]...)
		}
		i += n
	}
}

func newTestEncoder(t testing.TB, e *Camera, c Config, d Encoding) *Encoder {
	t.Helper()
	v, err := NewEncoder(e, &c, d)
	if errors.Is(err, jpeg.ErrNoLibrary) {
		t.Skip(err)
	}
	rttest.Do(t, err)
	t.Cleanup(v.Close)
	return v
}

// captureOne publishes a frame as the capture thread does.
func captureOne(t testing.TB, e *Camera) *Frame {
	t.Helper()
	s := e.Newest.Back()
	rttest.Do(t, e.Source.Grab(&s.Frame))
	rttest.Do(t, checkFrame(s))
	if !e.Newest.Publish(int64(s.At)) {
		t.Fatalf("a picture of %v is no newer one", s.At)
	}
	return s
}

// Goal: a camera's own JPEG goes into the message unchanged, with added tables if it has no tables;
// its memory is not copied before that.
func TestPassThrough(t *testing.T) {
	whole, bare := motionJPEG(t, 64, 48)
	padded := append(bytes.Clone(whole), 1, 2, 3)
	f := film(camera.MJPEG, 64, 48, whole, padded, bare)
	e := New("top", f, 0)
	v := newTestEncoder(t, e, Config{Name: "top"}, Encoding{Quality: 90})
	for i := range f.pictures {
		captureOne(t, e)
		var m wire.Image
		if at, err := v.Picture(&m); err != nil || at == 0 {
			t.Fatalf("Picture() = %v, %v", at, err)
		}
		if &m.Data[0] != &f.pictures[i][0] {
			t.Errorf("picture %d was copied on its way to the message", i)
		}
		body := wire.AppendObservation(nil, &wire.Observation{Images: []wire.Image{m}})
		var o wire.Observation
		rttest.Do(t, wire.ParseObservation(&o, body))
		got := o.Images[0].Data
		if i < 2 && !bytes.Equal(got, whole) {
			t.Errorf("picture %d: %d bytes arrive, want the camera's %d", i, len(got), len(whole))
		}
		if p, err := jpeg.Inspect(got); err != nil || !p.Tables {
			t.Errorf("picture %d arrives as %+v, %v, want one with its tables", i, p, err)
		}
		if im, err := stdjpeg.Decode(bytes.NewReader(got)); err != nil || im.Bounds().Dx() != 64 {
			t.Errorf("picture %d: the standard library says %v", i, err)
		}
	}
}

// Goal: each option that changes the picture ends the pass-through.
func TestPassThroughEnds(t *testing.T) {
	whole, _ := motionJPEG(t, 64, 48)
	for name, tt := range map[string]struct {
		c    Config
		d    Encoding
		w, h int
		raw  bool
	}{
		"nothing":                 {Config{}, Encoding{Quality: 90}, 64, 48, false},
		"a quality for all":       {Config{}, Encoding{Quality: 50, Reencode: true}, 64, 48, false},
		"a quality for this":      {Config{Quality: 50}, Encoding{Quality: 90}, 64, 48, false},
		"another size":            {Config{SendW: 32, SendH: 24}, Encoding{Quality: 90}, 32, 24, false},
		"the policy's size":       {Config{}, Encoding{Quality: 90, WantW: 32, WantH: 24}, 32, 24, false},
		"a rotation":              {Config{Rotate: 90}, Encoding{Quality: 90}, 48, 64, false},
		"a crop":                  {Config{Crop: Rect{20, 10, 1, 1}}, Encoding{Quality: 90}, 20, 10, false},
		"raw":                     {Config{}, Encoding{}, 64, 48, true},
		"raw of another size":     {Config{SendW: 32, SendH: 24}, Encoding{}, 32, 24, true},
		"the policy's size it is": {Config{}, Encoding{Quality: 90, WantW: 64, WantH: 48}, 64, 48, false},
	} {
		f := film(camera.MJPEG, 64, 48, whole)
		e := New("top", f, 0)
		v := newTestEncoder(t, e, tt.c, tt.d)
		captureOne(t, e)
		var m wire.Image
		if _, err := v.Picture(&m); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		rttest.Want(t, m.Codec == wire.JPEG && bytes.Equal(m.Data, whole),
			name == "nothing" || name == "the policy's size it is", "%s: the camera's JPEG is sent as it is", name)
		if tt.raw != (m.Codec == wire.Raw) {
			t.Errorf("%s: codec %v", name, m.Codec)
		}
		w, h := m.W, m.H
		if !tt.raw {
			p := rttest.Must(jpeg.Inspect(m.Data))(t)
			w, h = p.W, p.H
		}
		if w != tt.w || h != tt.h || len(m.Data) > v.MaxBytes() {
			t.Errorf("%s: %dx%d in %d bytes, want %dx%d in at most %d", name, w, h, len(m.Data), tt.w, tt.h,
				v.MaxBytes())
		}
	}
}

func TestNewEncoderRefuses(t *testing.T) {
	f := &fakeCamera{format: camera.Format{Width: 320, Height: 180, Pixels: camera.YUYV, FPS: 30}}
	for want, tt := range map[string]struct {
		c Config
		d Encoding
	}{
		"add crop=240x180+40+0":          {Config{}, Encoding{Quality: 90, WantW: 160, WantH: 120}},
		"add crop=101x180+109+0":         {Config{Rotate: 90}, Encoding{Quality: 90, WantW: 320, WantH: 180}},
		"the policy wants 160x120":       {Config{SendW: 32, SendH: 24}, Encoding{Quality: 90, WantW: 160, WantH: 120}},
		"leaves the camera's picture of": {Config{Crop: Rect{320, 180, 1, 0}}, Encoding{Quality: 90}},
	} {
		v, err := NewEncoder(New("top", f, 0), &tt.c, tt.d)
		if err == nil {
			v.Close()
		}
		rttest.Fails(t, err, want)
	}
}

// Goal: a torn picture is counted and not sent; an error is counted and followed by another
// attempt.
func TestCaptureKeepsWholePicturesOnly(t *testing.T) {
	whole, _ := motionJPEG(t, 64, 48)
	other, _ := motionJPEG(t, 32, 48)
	var stop atomic.Bool
	var blind atomic.Int32
	blind.Store(1)
	f := &fakeCamera{
		format:   camera.Format{Width: 64, Height: 48, Pixels: camera.MJPEG, FPS: 30},
		clock:    rttest.NewClock(1),
		stop:     &stop,
		err:      camera.ErrGone,
		pictures: [][]byte{whole[:len(whole)/2], other, []byte("no picture"), whole},
	}
	e := New("top", f, 0)
	e.Run(rttest.NewClock(1), &stop, &blind)
	got := e.Stats()
	if got.Captured != 1 || got.Torn != 3 || got.Errors != 1 || !got.Lost || blind.Load() != 0 {
		t.Errorf("%+v with %d blind, want 1 captured, 3 torn, 1 error", got, blind.Load())
	}
}

// Goal: the way from the captured frame to the bytes of the message allocates nothing, in every layout and with every
// transformation. Even a raw camera's first picture allocates nothing, because the collector is off by then.
func TestPictureNoAlloc(t *testing.T) {
	const w, h = 640, 480
	whole, bare := motionJPEG(t, w, h)
	padded := film(camera.RGB8, w, h, make([]byte, 2000*h))
	padded.format.Stride = 2000
	for _, f := range []*fakeCamera{
		film(camera.YUYV, w, h, make([]byte, 2*w*h)),
		film(camera.NV12, w, h, make([]byte, w*h*3/2)),
		film(camera.Gray8, w, h, make([]byte, w*h)),
		film(camera.RGB8, w, h, make([]byte, 3*w*h)),
		film(camera.MJPEG, w, h, whole, bare), padded,
	} {
		for name, c := range map[string]Config{"as it is": {}, "changed": {Rotate: 90, SendW: 240, SendH: 320}} {
			for _, quality := range []int{90, 0} {
				e := New("top", f, 0)
				v := newTestEncoder(t, e, c, Encoding{Quality: quality})
				images := make([]wire.Image, 1)
				captureOne(t, e)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				rttest.Must(v.Picture(&images[0]))(t)
				runtime.ReadMemStats(&after)
				// the runtime's own threads may allocate a little
				if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 && f.format.Pixels != camera.MJPEG {
					t.Errorf("%v, %s, quality %d: the first picture allocates %d bytes", f.format, name, quality, n)
				}
				body := make([]byte, 0, 2<<20)
				if n := testing.AllocsPerRun(20, func() {
					captureOne(t, e)
					rttest.Must(v.Picture(&images[0]))(t)
					body = wire.AppendObservation(body[:0], &wire.Observation{Images: images})
				}); n != 0 {
					t.Errorf("%v, %s, quality %d: a picture allocates %v times, want 0", f.format, name, quality, n)
				}
			}
		}
	}
}

func TestSnapshot(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		camera, file string
		quality      int
		bad          string
	}{
		{"front=pattern:160x120", "a.jpg", 90, ""},
		{"front=sim:160x120@60,rotate=90", "b.png", 90, ""},
		{"front=pattern:160x120,send=80x60", "c.png", 0, ""},
		{"front=pattern:160x120", "d.jpg", 0, "name the file *.png"},
		{"front=pattern:160x120", "d.gif", 90, "want *.jpg or *.png"},
		{"front=/dev/video99", "d.jpg", 90, "plug it in"},
		{"front=" + dir + "/nothing", "d.jpg", 90, "no such file"},
	} {
		var out bytes.Buffer
		file := filepath.Join(dir, tt.file)
		err := Snapshot(&out, tt.camera, Encoding{Quality: tt.quality, Reencode: tt.quality == 0}, file)
		if errors.Is(err, jpeg.ErrNoLibrary) {
			t.Skip(err)
		}
		if tt.bad != "" {
			rttest.Fails(t, err, tt.bad)
			continue
		}
		if err != nil || !strings.HasSuffix(out.String(), "then edge-rt --camera "+tt.camera+"\n") {
			t.Errorf("%s: Snapshot() = %v, %q", tt.camera, err, out.String())
			continue
		}
		r := rttest.Must(os.Open(file))(t)
		im, _, err := image.Decode(r)
		r.Close()
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
		} else if want := map[string]int{"a.jpg": 160, "b.png": 120, "c.png": 80}[tt.file]; im.Bounds().Dx() != want {
			t.Errorf("%s is %d wide, want %d", tt.file, im.Bounds().Dx(), want)
		}
	}
}

// Goal: the number in the synthetic camera's picture survives the encoder and all layers between. So the picture at the
// far end is the captured one.
func TestPatternIsEncoded(t *testing.T) {
	clock := rttest.NewClock(rt.Instant(time.Second))
	source := pattern.NewSource(clock, camera.Format{Width: 160, Height: 120, Pixels: camera.RGB8, FPS: 30})
	e := New("top", source, 0)
	v := newTestEncoder(t, e, Config{}, Encoding{Quality: 60})
	d := rttest.Must(jpeg.NewDecoder())(t)
	defer d.Close()
	pix := make([]byte, 3*160*120)
	for range 5 {
		sequence := captureOne(t, e).Sequence
		var m wire.Image
		rttest.Must(v.Picture(&m))(t)
		rttest.Do(t, d.DecodeRGB(pix, m.Data, 160, 120))
		if n := pattern.Number(pix, 160, 120); uint64(n) != sequence {
			t.Errorf("picture %d arrives as %d", sequence, n)
		}
	}
}
