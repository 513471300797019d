package sim

import (
	"fmt"

	"github.com/edge-rt/edge-rt/camera"
)

// defaultFPS is the rate of a camera whose format has no rate.
const defaultFPS = 30

// liveView is one camera on a Live world.
type liveView struct {
	*camera.Paced
	live *Live
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
	return &liveView{camera.NewPaced(l.clock, format), l}
}

// Grab sleeps until the next frame's instant and paints the world of that instant.
//
//rt:noalloc
func (v *liveView) Grab(dst *camera.Frame) error {
	if err := v.Wait(dst); err != nil {
		return err
	}
	scene, shown := v.live.sceneAt(dst.At)
	dst.At = shown
	f := &dst.Format
	scene.render(dst.Pix[:f.FrameBytes()], f.Width, f.Height)
	return nil
}
