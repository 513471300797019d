package sim

import (
	"fmt"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/camera"
)

// defaultFPS is the rate of a camera whose format has no rate.
const defaultFPS = 30

// liveView is one camera on a Live world.
type liveView struct {
	live   *Live
	format camera.Format
	grid   camera.Grid

	next   uint64      // owner: the capture thread; number of the next frame to deliver
	closed atomic.Bool // atomic
}

// Camera returns a camera with its own grid of frames, which begins now. Zero fields of format mean
// 160x120 RGB8 at 30 frames a second. A late reader gets the next frame, and Frame.Sequence shows
// the gap. Frame.At is the instant of the world that the picture shows.
func (l *Live) Camera(name string, format camera.Format) camera.Source {
	if format.Width == 0 && format.Height == 0 {
		format.Width, format.Height = NativeWidth, NativeHeight
	}
	if format.Pixels == 0 {
		format.Pixels = camera.RGB8
	}
	if format.FPS == 0 {
		format.FPS = defaultFPS
	}
	if format.Width < 1 || format.Height < 1 || format.Width > MaxSide || format.Height > MaxSide || format.FPS < 1 ||
		format.Pixels != camera.RGB8 {
		panic(fmt.Sprintf("sim: camera %s: got %+v, want sides of 1 to %d pixels, RGB8 and at least 1 frame a second",
			name, format, MaxSide))
	}
	return &liveView{live: l, format: format, grid: camera.Grid{Origin: l.clock.Now(), FPS: format.FPS}}
}

// Format returns the format of Grab's frames.
func (v *liveView) Format() camera.Format { return v.format }

// Grab sleeps until the next frame's instant and paints the world of that instant.
//
//rt:noalloc
func (v *liveView) Grab(dst *camera.Frame) error {
	if v.closed.Load() {
		return camera.ErrClosed
	}
	k, at := v.grid.Sleep(v.live.clock, v.next)
	if v.closed.Load() {
		return camera.ErrClosed
	}
	scene, shown := v.live.sceneAt(at)
	dst.Format = v.format
	dst.Sequence = k
	dst.At = shown
	scene.render(dst.Pix[:v.format.FrameBytes()], v.format.Width, v.format.Height)
	v.next = k + 1
	return nil
}

// Close ends a Grab that sleeps: at the instant of its frame, Grab returns camera.ErrClosed.
func (v *liveView) Close() error {
	v.closed.Store(true)
	return nil
}
