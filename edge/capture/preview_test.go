package capture

import (
	"bytes"
	stdjpeg "image/jpeg"
	"testing"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

func newTestPreview(t *testing.T, v *Encoder) *Preview {
	t.Helper()
	p := rttest.Must(NewPreview(v))(t)
	t.Cleanup(p.Close)
	return p
}

// Goal: a camera's own JPEG is shown at once, and unchanged except for Huffman tables if it has none. A request a
// moment later gets the same copy.
func TestPreviewOfACamerasOwnJPEG(t *testing.T) {
	whole, bare := motionJPEG(t, 64, 48)
	f := film(camera.MJPEG, 64, 48, whole, bare)
	e := New("top", f, 0)
	p := newTestPreview(t, newTestEncoder(t, e, Config{Name: "top"}, Encoding{Quality: 90}))
	room, now := make([]byte, p.MaxBytes()), rt.Instant(1e9)
	// There is no picture yet.
	rttest.FailsAs(t, rttest.Err(p.Read(room, now)), ErrNoPicture, "no picture since the start")
	p.Request(now)
	p.Refresh(now)
	for i := range f.pictures {
		captureOne(t, e)
		p.Request(now)
		p.Refresh(now)
		p.Refresh(now + 1) // no request waits any more
		for range 2 {
			still, err := p.Read(room, now)
			if err != nil {
				t.Fatalf("picture %d: %v", i, err)
			}
			if im, err := stdjpeg.Decode(bytes.NewReader(still.Data)); err != nil || im.Bounds().Dx() != 64 {
				t.Errorf("picture %d: the standard library says %v", i, err)
			}
			if i == 0 && !bytes.Equal(still.Data, whole) {
				t.Errorf("%d bytes are shown, want the camera's %d", len(still.Data), len(whole))
			}
		}
		if p.count != int64(i+1) {
			t.Errorf("picture %d was copied %d times", i, p.count-int64(i))
		}
		now = now.Add(2 * previewMaxAge)
		rttest.FailsAs(t, rttest.Err(p.Read(room, now)), ErrNoPicture) // a copy of long ago
	}
	rttest.NoAllocs(t, "%v allocations for each picture", 100, func() { p.Request(now); p.Refresh(now) })
}

// Goal: while a picture cannot be shown, the error gives the reason. The next picture that can be shown ends the error.
func TestPreviewSaysWhyNot(t *testing.T) {
	whole, _ := motionJPEG(t, 64, 48)
	torn := append(bytes.Clone(whole[:len(whole)-100]), 0xff, 0xd9)
	f := film(camera.MJPEG, 64, 48, whole, torn)
	e := New("top", f, 0)
	v := newTestEncoder(t, e, Config{Name: "top"}, Encoding{Quality: 90, Reencode: true})
	p := newTestPreview(t, v)
	captureOne(t, e)
	room, now := make([]byte, p.MaxBytes()), rt.Instant(1e9)
	ask := func() error {
		p.Request(now)
		p.Refresh(now.Add(PreviewDelay))
		_, err := p.Read(room, now)
		return err
	}
	rttest.Do(t, ask())
	captureOne(t, e)
	rttest.FailsAs(t, ask(), ErrNoPicture, "broken") // a torn picture
	captureOne(t, e)
	if err := ask(); err != nil {
		t.Errorf("after a torn picture: %v", err)
	}
	p.Request(now)
	p.Publish(&wire.Image{Data: make([]byte, v.MaxBytes()+1)}, now, now)
	rttest.FailsAs(t, rttest.Err(p.Read(room, now)), ErrNoPicture, "more than is shown") // a huge picture
	if err := ask(); err != nil {
		t.Errorf("after a huge picture: %v", err)
	}
	p.Close()
	if _, err := p.Read(room, now); err != nil {
		t.Errorf("after Close: %v, want the last picture: somebody may be looking still", err)
	}
}

// Goal: only when no observation has left for a while does the sender decode or scale a raw picture for the preview.
// Until then it has other work.
func TestPreviewDelaysCostlyPictures(t *testing.T) {
	whole, _ := motionJPEG(t, 64, 48)
	jpegs := film(camera.MJPEG, 64, 48, whole)
	plain := film(camera.RGB8, 64, 48, make([]byte, 3*64*48))
	for name, tt := range map[string]struct {
		film  *fakeCamera
		cfg   Config
		alone bool
		free  bool
	}{
		"decoded":                  {jpegs, Config{Name: "top"}, false, false},
		"scaled":                   {plain, Config{Name: "top", SendW: 32, SendH: 24}, false, false},
		"as it is":                 {plain, Config{Name: "top"}, false, true},
		"scaled, without a sender": {plain, Config{Name: "top", SendW: 32, SendH: 24}, true, true},
	} {
		e := New("top", tt.film, 0)
		p := newTestPreview(t, newTestEncoder(t, e, tt.cfg, Encoding{}))
		p.Alone = tt.alone
		captureOne(t, e)
		p.Request(1)
		p.Refresh(1)
		if at := p.count; at != 0 != tt.free {
			t.Errorf("%s: %d pictures made at once", name, at)
		}
		p.Refresh(1 + rt.Instant(PreviewDelay))
		rttest.Want(t, p.count, 1, "%s: pictures after a while", name)
	}
}

// Goal: raw pictures are encoded for the preview, unless they are too large.
func TestPreviewOfRawPictures(t *testing.T) {
	preview := func(width, height int) *Preview {
		e := New("top", film(camera.RGB8, width, height, make([]byte, 3*width*height)), 0)
		p := newTestPreview(t, newTestEncoder(t, e, Config{Name: "top"}, Encoding{}))
		captureOne(t, e)
		p.Request(1)
		p.Refresh(1)
		return p
	}
	p := preview(4096, 2160)
	if _, err := p.Read(make([]byte, p.MaxBytes()), 1); err == nil || p.MaxBytes() > previewMaxBytes {
		t.Errorf("26 MB: %v with room for %d bytes, want a refusal and at most %d", err, p.MaxBytes(), previewMaxBytes)
	}
	p = preview(64, 48)
	room := make([]byte, p.MaxBytes())
	still := rttest.Must(p.Read(room, 1))(t)
	if im, err := stdjpeg.Decode(bytes.NewReader(still.Data)); err != nil || im.Bounds().Dx() != 64 ||
		im.Bounds().Dy() != 48 {
		t.Errorf("the standard library says %v", err)
	}
	p.Close()
	rttest.Fails(t, rttest.Err(p.Read(room, 1)))
}
