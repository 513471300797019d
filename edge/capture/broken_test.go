package capture

import (
	"bytes"
	"errors"
	"image"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

const sceneW, sceneH = 96, 64

// testPictures returns four versions of a camera's picture. good is correct, and stray has the four stray bytes of a
// Logitech C270. half lacks data although its markers are complete, and garbled has a wrong byte.
func testPictures(t testing.TB) (good, stray, half, garbled []byte) {
	t.Helper()
	good = rttest.Must(os.ReadFile(filepath.Join("..", "..", "testdata", "jpeg", "golden", "scene_422.jpg")))(t)
	end := len(good) - 2
	stray = slices.Insert(slices.Clone(good), end, 0x12, 0x00, 0x7f, 0x31)
	half = append(slices.Clone(good[:len(good)-400]), good[end:]...)
	garbled = slices.Clone(good)
	garbled[len(good)-340] ^= 0x55
	return good, stray, half, garbled
}

func brokenCamera(shots ...[]byte) *fakeCamera {
	f := film(camera.MJPEG, sceneW, sceneH, shots...)
	f.clock = rttest.NewClock(1000)
	return f
}

// Goal: a picture with stray bytes is used and counted. A broken picture is counted, and the
// previous picture with its age is used in its place, in every form that a policy needs.
func TestBrokenPicturesAreSkipped(t *testing.T) {
	good, stray, half, garbled := testPictures(t)
	for name, tt := range map[string]struct {
		c Config
		d Encoding
	}{
		"encoded":        {Config{}, Encoding{Quality: 90, Reencode: true}},
		"scaled":         {Config{SendW: 48, SendH: 32}, Encoding{Quality: 90}},
		"raw":            {Config{}, Encoding{}},
		"raw and turned": {Config{Rotate: 180}, Encoding{}},
	} {
		f := brokenCamera(half, good, stray, half, garbled, half, good, stray)
		e := New("front", f, 0)
		v := newTestEncoder(t, e, tt.c, tt.d)
		var first []byte
		for i, want := range []struct {
			fails             bool
			at                rt.Instant // instant of the picture in the message
			warned, undecoded uint64
		}{
			{true, 0, 0, 1}, {false, 1001, 0, 1}, {false, 1002, 1, 1},
			{true, 1002, 1, 2}, {true, 1002, 1, 3}, {true, 1002, 1, 4},
			{false, 1006, 1, 4}, {false, 1007, 2, 4},
		} {
			captureOne(t, e)
			for range 2 { // the second call does not count the same picture again
				var m wire.Image
				at, err := v.Picture(&m)
				if at != want.at || (err != nil) != want.fails || err != nil && !errors.Is(err, jpeg.ErrCorrupt) {
					t.Errorf("%s, picture %d: Picture() = %v, %v; want %v, an error %v", name, i, at, err, want.at,
						want.fails)
				}
				if err != nil && !strings.Contains(v.cameraError(err).Error(), "camera front: jpeg: corrupt") {
					t.Errorf("%s, picture %d: cameraError() = %v", name, i, v.cameraError(err))
				}
				if at != 0 && first == nil {
					first = bytes.Clone(m.Data)
				}
				if im, _, err := image.Decode(bytes.NewReader(m.Data)); at != 0 && m.Codec == wire.JPEG &&
					(err != nil || im.Bounds().Dx()%48 != 0) {
					t.Errorf("%s, picture %d: %v", name, i, err)
				}
				if at != 0 && (!bytes.Equal(m.Data, first) || m.Name != e.ImageName) {
					t.Errorf("%s, picture %d: %s has another picture than the first", name, i, m.Name)
				}
				if got := e.Stats(); got.Warned != want.warned || got.Undecoded != want.undecoded {
					t.Errorf("%s, picture %d: %d warned, %d undecoded; want %d and %d", name, i, got.Warned,
						got.Undecoded, want.warned, want.undecoded)
				}
			}
		}
	}
}

// Goal: a broken picture makes no garbage, because the collector is off during a run.
func TestBrokenPictureNoAlloc(t *testing.T) {
	good, stray, half, _ := testPictures(t)
	e := New("front", brokenCamera(good, half, stray), 0)
	v := newTestEncoder(t, e, Config{}, Encoding{Quality: 90, Reencode: true})
	var m wire.Image
	rttest.NoAllocs(t, "a picture allocates %v times, want 0", 30, func() { captureOne(t, e); v.Picture(&m) })
}

// Goal: a camera's own JPEG is sent with its stray bytes.
func TestStrayBytesPassThrough(t *testing.T) {
	good, stray, _, _ := testPictures(t)
	front := slices.Insert(slices.Clone(good), bytes.Index(good, []byte{0xff, 0xdb}), 0x55)
	e := New("front", brokenCamera(stray, front), 0)
	v := newTestEncoder(t, e, Config{}, Encoding{Quality: 90})
	for _, want := range [][]byte{stray, front} {
		captureOne(t, e)
		var m wire.Image
		if at, err := v.Picture(&m); err != nil || at == 0 || !bytes.Equal(m.Data, want) {
			t.Errorf("Picture() = %v, %v with %d bytes, want the camera's %d", at, err, len(m.Data), len(want))
		}
	}
}

// Goal: Err returns a reason when a camera has given no usable picture for MaxAge, and nil as soon as a usable picture
// arrives.
func TestCameraErr(t *testing.T) {
	good, _, half, _ := testPictures(t)
	clock := rttest.NewClock(rt.Instant(time.Second))
	var stop atomic.Bool
	var blind atomic.Int32
	for name, tt := range map[string]struct {
		shots [][]byte
		err   error
		says  string
	}{
		"cut":          {[][]byte{good[:len(good)/2]}, nil, "no picture is whole, the last has 929 bytes"},
		"empty":        {[][]byte{{}}, nil, "no picture is whole, the last has 0 bytes"},
		"no picture":   {[][]byte{[]byte("hello")}, nil, "corrupt"},
		"another size": {[][]byte{sized(good)}, nil, "its pictures are 96x32 by now, want 96x64"},
		"unplugged":    {nil, camera.ErrGone, "unplugged"},
	} {
		f := brokenCamera(tt.shots...)
		f.err, f.clock = tt.err, clock
		e := New("front", f, 100*time.Millisecond)
		tries := 0
		f.pace = func() {
			if tries++; tries == 3 && e.Err() != nil {
				t.Errorf("%s: after %d tries it says %v already", name, tries, e.Err())
			}
			if tries == 20 {
				stop.Store(true)
			}
			clock.SleepUntil(clock.Now().Add(20 * time.Millisecond))
		}
		stop.Store(false)
		e.Run(clock, &stop, &blind)
		rttest.Fails(t, e.Err(), tt.says)
		f.pictures = [][]byte{good}
		f.next = 0
		f.err = nil
		tries = 19
		stop.Store(false)
		e.Run(clock, &stop, &blind)
		if err := e.Err(); err != nil || e.Stats().Captured == 0 {
			t.Errorf("%s: Err() = %v after %d good pictures", name, err, e.Stats().Captured)
		}
	}

	f := brokenCamera(half)
	f.clock = clock
	e := New("front", f, 100*time.Millisecond)
	v := newTestEncoder(t, e, Config{}, Encoding{Quality: 90, Reencode: true})
	var m wire.Image
	for i := range 12 {
		clock.SleepUntil(clock.Now().Add(20 * time.Millisecond))
		captureOne(t, e)
		v.Picture(&m)
		if err := e.Err(); (err != nil) != (i >= 5) || err != nil &&
			!rttest.Says(err, "premature end of data segment") {
			t.Errorf("picture %d that does not decode: Err() = %v", i, err)
		}
	}
	f.pictures = [][]byte{good}
	captureOne(t, e)
	if v.Picture(&m); e.Err() != nil {
		t.Errorf("after a good picture: %v", e.Err())
	}
}

// Goal: a camera that fails after its first pictures has no rate. A pause precedes each further attempt.
func TestARateNeedsAPicture(t *testing.T) {
	f, tries := film(camera.Gray8, 2, 2, make([]byte, 4)), 0
	f.err = camera.ErrGone
	f.pace = func() {
		if tries++; tries > 100 {
			t.Fatal("it is asked without a pause")
		}
	}
	e := New("front", f, 0)
	rttest.Want(t, rttest.Must(e.take(f.clock, 5, time.Second))(t), 1, "pictures before it fails")
	if n, err := e.take(f.clock, 5, time.Second); n != 0 || !errors.Is(err, camera.ErrGone) {
		t.Errorf("%d pictures, %v; want none, and the reason", n, err)
	}
}

// sized returns a picture with another height in its header.
func sized(src []byte) []byte {
	out := slices.Clone(src)
	out[bytes.Index(out, []byte{0xff, 0xc0})+6] /= 2
	return out
}

// Goal: a camera is pending until a picture of it can be used.
func TestPendingUntilAPictureDecodes(t *testing.T) {
	good, _, half, _ := testPictures(t)
	for name, tt := range map[string]struct {
		d     Encoding
		after []int32 // pending cameras after each picture
	}{
		"encoded":      {Encoding{Quality: 90, Reencode: true}, []int32{1, 1, 0, 0}},
		"pass-through": {Encoding{Quality: 90}, []int32{0, 0, 0, 0}},
	} {
		var blind atomic.Int32
		blind.Store(1)
		e := New("front", brokenCamera(), 0)
		f := e.Source.(*fakeCamera)
		v := newTestEncoder(t, e, Config{}, tt.d)
		for i, shot := range [][]byte{half, half, good, half} {
			var stop atomic.Bool
			f.pictures = [][]byte{shot}
			f.next = 0
			f.stop = &stop
			f.err = camera.ErrStalled
			e.Run(f.clock, &stop, &blind)
			v.AwaitFirst(&blind)
			rttest.Want(t, blind.Load(), tt.after[i], "%s, after picture %d: blind", name, i)
		}
	}
}
