package scene

import (
	"bytes"
	"math"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim"
)

// shown starts a world that is shown at a socket. Only the test advances the world's clock.
func shown(t *testing.T, path string) (*sim.Live, *rttest.Clock, net.Listener) {
	t.Helper()
	clock := rttest.NewClock(rt.Instant(time.Second))
	world := sim.NewLive(sim.NewWorld(3, 1), clock, clock.Now())
	l := rttest.Must(Listen(path))(t)
	t.Cleanup(func() { l.Close() })
	go Serve(l, world)
	return world, clock, l
}

// Another process gets the same world at the same instant, and paints the same picture.
func TestTheSameWorldIsSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scene")
	world, clock, _ := shown(t, path)
	viewer := rttest.Must(Dial(path))(t)
	defer viewer.Close()
	format := camera.Format{Width: 80, Height: 60, Pixels: camera.RGB8, FPS: 30}
	far := rttest.Must(OpenCamera(path, format, clock))(t)
	defer far.Close()
	near := world.Camera("top", format)
	for joint := range 3 {
		world.Torque(clock.Now(), joint, true)
		world.Goal(clock.Now(), joint, 2300+100*joint)
	}
	var a, b camera.Frame
	a.Pix, b.Pix = make([]byte, format.FrameBytes()), make([]byte, format.FrameBytes())
	for range 20 {
		clock.Advance(50 * time.Millisecond)
		got, err := viewer.View()
		if want := world.View(); err != nil || got != want {
			t.Fatalf("View() = %+v, %v, want %+v", got, err, want)
		}
		rttest.Do(t, far.Grab(&a))
		rttest.Do(t, near.Grab(&b))
		if a.At != b.At || a.Format != b.Format || !bytes.Equal(a.Pix, b.Pix) {
			t.Fatalf("at %v the far camera has another picture than the near one at %v", a.At, b.At)
		}
	}
	if clock.Advance(20 * time.Second); world.View().Timeouts == 0 {
		t.Fatal("the world has judged nothing")
	}
	if got, err := viewer.View(); err != nil || got.Timeouts != world.View().Timeouts {
		t.Errorf("View() = %+v, %v, want its %d time-outs", got, err, world.View().Timeouts)
	}
}

// When its simulator has ended, a camera returns the error of an unplugged camera. When the
// simulator is started again, the camera finds it. Close ends a Grab.
func TestAWorldThatIsGoneComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scene")
	_, clock, l := shown(t, path)
	format := camera.Format{Width: 8, Height: 6, Pixels: camera.RGB8, FPS: 30}
	c := rttest.Must(OpenCamera(path, format, clock))(t)
	frame := camera.Frame{Pix: make([]byte, format.FrameBytes())}
	rttest.Do(t, c.Grab(&frame))
	l.Close()
	c.viewer.Close() // the kernel closes a connection in the same way when the process has ended
	for range 2 {
		rttest.FailsAs(t, c.Grab(&frame), camera.ErrGone)
	}
	before := frame.Sequence
	shown(t, path)
	if err := c.Grab(&frame); err != nil || frame.Sequence <= before {
		t.Errorf("Grab() of the world that is back = %v, frame %d behind %d", err, frame.Sequence, before)
	}
	c.Close()
	rttest.FailsAs(t, c.Grab(&frame), camera.ErrClosed)
	rttest.FailsAs(t, rttest.Err(OpenCamera(filepath.Join(t.TempDir(), "none"), format, clock)), camera.ErrGone)
}

// A socket that a killed simulator has left is replaced; a socket in use is not.
func TestPlacesForTheSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "scene")
	l := rttest.Must(net.Listen("unix", path))(t)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal("the old socket is gone already")
	}
	shown(t, path)
	rttest.FailsAs(t, rttest.Err(Listen(path)), errSocket, "another simulator")
	file := rttest.WriteFile(t, dir, "file", "kept")
	rttest.FailsAs(t, rttest.Err(Listen(file)), errSocket)
	if text, _ := os.ReadFile(file); string(text) != "kept" {
		t.Errorf("the file is %q now", text)
	}
}

// Bytes that are not an answer are refused.
func TestAnswersThatAreRefused(t *testing.T) {
	v := sim.NewLive(sim.NewWorld(1, 1), rttest.NewClock(1), 1).View()
	if got, err := parseView(appendView(nil, &v)); err != nil || got != v {
		t.Fatalf("parseView() = %+v, %v, want %+v", got, err, v)
	}
	other := appendView(nil, &v)
	other[0] = version + 1
	rttest.Fails(t, rttest.Err(parseView(other)), "version") // an answer of another version
	v.Post.Y = math.NaN()
	rttest.Fails(t, rttest.Err(parseView(appendView(nil, &v))))
}
