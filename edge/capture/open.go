package capture

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/camera/files"
	"github.com/edge-rt/edge-rt/camera/pipe"
	"github.com/edge-rt/edge-rt/camera/v4l2"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/pattern"
	"github.com/edge-rt/edge-rt/sim/scene"
)

const (
	usualWidth  = 640
	usualHeight = 480
	usualFPS    = 30
)

// Options are the parameters of Open, in addition to the --camera flag.
type Options struct {
	Clock        rt.Clock
	World        func() *sim.Live // called for a simulated camera
	WantW, WantH int              // the policy's size; 0: any size
	SimFPS       int              // rate of a simulated camera that the policy uses
	Canceled     func() bool      // whether the wait for a program's first picture ends early; nil: never
	Decoded      bool             // the pictures will be decoded: they are sent raw, or in another quality
}

// OpenFiles opens a camera of files and refuses impossible sources. It returns nil for a source
// that Open must open.
func OpenFiles(c *Config, clock rt.Clock) (source camera.Source, picked string, err error) {
	if c.synthetic() {
		return nil, "", checkSynthetic(c)
	}
	if command, ok := c.program(); ok {
		return nil, "", checkProgram(c, command)
	}
	info, err := os.Stat(c.Source)
	switch {
	case err != nil && strings.HasPrefix(c.Source, "/dev/"):
		return nil, "", nil // the device may be plugged in later
	case err != nil:
		return nil, "", exit.Errorf(exit.Usage, "camera %s: %w", c.Name, err)
	case info.Mode()&os.ModeCharDevice != 0:
		return nil, "", checkDevice(c, info)
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil, "",
			exit.Errorf(exit.Config, "camera %s: %s is %v, want a camera's device, a picture or a folder of pictures",
				c.Name, c.Source, info.Mode())
	case len(c.Controls) > 0:
		return nil, "", exit.Errorf(exit.Usage, "camera %s: option %s: files have no controls", c.Name,
			c.Controls[0].Name)
	}
	r, err := files.Open(c.Source, cmp.Or(c.FPS, usualFPS), clock)
	if err != nil {
		return nil, "", exit.Errorf(exit.Config, "camera %s: %w", c.Name, err)
	}
	if f := r.Format(); c.Width > 0 && (c.Width != f.Width || c.Height != f.Height) || c.Pixels != 0 &&
		c.Pixels != f.Pixels {
		return nil, "", exit.Errorf(exit.Config, "camera %s: the files are %v, and the flag has another size or format",
			c.Name, f)
	}
	return r, fmt.Sprintf("files of %s: %v", c.Source, r.Format()), nil
}

// videoMajor is the kernel's major number of video devices.
const videoMajor = 81

// checkDevice refuses character devices that are not video devices.
func checkDevice(c *Config, info os.FileInfo) error {
	if at, ok := info.Sys().(*syscall.Stat_t); ok && unix.Major(uint64(at.Rdev)) != videoMajor {
		return openError(c.Name, fmt.Errorf("%w: %s; edge-rt cameras lists those that are here", v4l2.ErrNoVideo,
			c.Source))
	}
	return nil
}

// MayAppear reports whether Open may succeed later: the device is absent, or a program has no pictures.
func MayAppear(err error) bool {
	return errors.Is(err, v4l2.ErrAbsent) || errors.Is(err, pipe.ErrEnded) || errors.Is(err, pipe.ErrSilent)
}

// Open opens the camera.
func Open(c *Config, p Options) (source camera.Source, picked string, err error) {
	source, picked, err = OpenFiles(c, p.Clock)
	switch {
	case err != nil || source != nil:
		return source, picked, err
	case c.synthetic():
		return openSynthetic(c, p)
	}
	if command, ok := c.program(); ok {
		return openProgram(c, p, command)
	}
	return openDevice(c, p)
}

// checkProgram refuses options that a program's pictures do not support.
func checkProgram(c *Config, command string) error {
	switch {
	case len(c.Controls) > 0:
		return exit.Errorf(exit.Usage, "camera %s: option %s: a program has no controls; use its own options", c.Name,
			c.Controls[0].Name)
	case c.Pixels != 0 && c.Pixels != camera.MJPEG && c.Width == 0:
		return exit.Errorf(exit.Usage,
			"camera %s: format=%v without a size: raw pictures have no header, so declare the "+
				"size that the program writes, as in %s=pipe:'%s':640x480,format=%v", c.Name, c.Pixels, c.Name, command,
			c.Pixels)
	}
	return nil
}

// openProgram starts a program and waits for its first picture. If the program gives no picture, a later attempt may
// succeed: the program may find its camera later.
func openProgram(c *Config, p Options, command string) (camera.Source, string, error) {
	s, err := pipe.Open(pipe.Config{
		Command: command,
		Format: camera.Format{
			Width:  c.Width,
			Height: c.Height,
			Pixels: cmp.Or(c.Pixels, camera.MJPEG),
			FPS:    cmp.Or(c.FPS, usualFPS),
		},
		Canceled: p.Canceled,
	}, p.Clock)
	switch {
	case errors.Is(err, pipe.ErrProgram), errors.Is(err, pipe.ErrPictures):
		return nil, "", exit.Errorf(exit.Config, "camera %s: %w", c.Name, err)
	case err != nil:
		return nil, "", openError(c.Name, err)
	}
	return s, "program: " + s.Format().String() + ", aged from their arrival", nil
}

// checkSynthetic refuses options that simulations and the pattern do not support.
func checkSynthetic(c *Config) error {
	switch {
	case c.Pixels != 0 && c.Pixels != camera.RGB8:
		return exit.Errorf(exit.Usage, "camera %s: format=%v, but %s paints rgb", c.Name, c.Pixels, c.Source)
	case c.Source == Pattern && c.Width > 0 && (c.Width < pattern.MinWidth || c.Height < pattern.MinHeight):
		return patternTooSmall(c, c.Width, c.Height)
	}
	return nil
}

func patternTooSmall(c *Config, w, h int) error {
	return exit.Errorf(exit.Usage, "camera %s: the pattern needs %dx%d or more, got %dx%d", c.Name, pattern.MinWidth,
		pattern.MinHeight, w, h)
}

// openSynthetic opens a simulation or the pattern, in the given size, else the policy's, else the usual one.
func openSynthetic(c *Config, p Options) (camera.Source, string, error) {
	f := camera.Format{
		Width:  c.Width,
		Height: c.Height,
		Pixels: camera.RGB8,
		FPS:    c.FPS,
	}
	if f.FPS == 0 && p.WantW > 0 && c.Source != Pattern {
		f.FPS = p.SimFPS
	}
	if f.Width == 0 {
		f.Width, f.Height = p.WantW, p.WantH
		if c.SendW > 0 || c.Crop != (Rect{}) || c.Rotate != 0 || f.Width == 0 {
			f.Width, f.Height = usualWidth, usualHeight
		}
	}
	f.FPS = cmp.Or(f.FPS, usualFPS)
	if c.Source == Sim {
		return p.World().Camera(c.Name, f), "simulated: " + f.String(), nil
	}
	if path, ok := strings.CutPrefix(c.Source, simOf); ok {
		source, err := scene.OpenCamera(path, f, p.Clock)
		if err != nil { // the simulator of the world may be started later
			return nil, "", openError(c.Name, fmt.Errorf("%w: %w", v4l2.ErrAbsent, err))
		}
		return source, "simulated by another process: " + f.String(), nil
	}
	if f.Width < pattern.MinWidth || f.Height < pattern.MinHeight {
		return nil, "", patternTooSmall(c, f.Width, f.Height)
	}
	return pattern.NewSource(p.Clock, f), "pattern: " + f.String(), nil
}

func openDevice(c *Config, p Options) (camera.Source, string, error) {
	want := v4l2.Want{
		Width:  c.Width,
		Height: c.Height,
		NearW:  p.WantW,
		NearH:  p.WantH,
		FPS:    c.FPS,
		Pixels: c.Pixels,
		Raw:    p.Decoded || c.Quality > 0 || c.Rotate != 0 || c.Crop != (Rect{}) || c.SendW > 0,
	}
	if c.Crop != (Rect{}) {
		want.NearW, want.NearH = max(want.NearW, c.Crop.X+c.Crop.W), max(want.NearH, c.Crop.Y+c.Crop.H)
	} else if c.Rotate == 90 || c.Rotate == 270 {
		want.NearW, want.NearH = want.NearH, want.NearW
	}
	if c.SendW > 0 && want.NearW == 0 {
		want.NearW, want.NearH = c.SendW, c.SendH
	}
	s, err := v4l2.Open(v4l2.Config{Path: c.Source, Want: want, Controls: c.Controls}, p.Clock)
	if err != nil {
		return nil, "", openError(c.Name, err)
	}
	card, picked, remark := s.Describe()
	text := card + ": " + picked
	if remark != "" {
		text += " (" + remark + ")"
	}
	return s, text, nil
}

// openError adds the exit code to an error of opening a camera. An absent camera may appear later.
func openError(name string, err error) error {
	code := exit.Absent
	if errors.Is(err, v4l2.ErrMode) || errors.Is(err, v4l2.ErrControl) || errors.Is(err, v4l2.ErrNoVideo) {
		code = exit.Config
	}
	return exit.Errorf(code, "camera %s: %w", name, err)
}
