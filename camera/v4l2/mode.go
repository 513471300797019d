package v4l2

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/camera"
)

// Want holds the criteria for choosing a mode.
type Want struct {
	Width, Height int                // exactly; 0: any
	NearW, NearH  int                // if Width is 0: the smallest size that contains NearW x NearH; both 0: 640x480
	FPS           int                // the lowest rate that is at least FPS, else the highest rate; 0: 30
	Pixels        camera.PixelFormat // exactly; 0: the best
	// prefer formats that need no decoding, because the caller changes the pictures; without Raw, prefer MJPEG, which
	// the caller can send unchanged
	Raw bool
}

const (
	usualFPS    = 30
	usualWidth  = 640
	usualHeight = 480
	fpsSlack    = 0.6 // 29.97 is 30
)

func (w *Want) fps() float64 { return float64(cmp.Or(w.FPS, usualFPS)) }

// preference orders pixel formats, best first.
func (w *Want) preference() []camera.PixelFormat {
	if w.Raw {
		return []camera.PixelFormat{camera.YUYV, camera.NV12, camera.RGB8, camera.MJPEG, camera.Gray8}
	}
	return []camera.PixelFormat{camera.MJPEG, camera.NV12, camera.YUYV, camera.RGB8, camera.Gray8}
}

// choose returns a camera's best mode. Size counts first, then whether the rate suffices, then the preference of pixel
// formats, then the lower rate.
func choose(modes []Mode, w Want) (Mode, error) {
	if len(modes) == 0 {
		return Mode{}, fmt.Errorf("%w: it offers none of mjpeg, yuyv, nv12, grey and rgb", ErrMode)
	}
	left := modes
	if w.Pixels != 0 {
		left = without(left, func(m Mode) bool { return m.Pixels != w.Pixels })
		if len(left) == 0 {
			return Mode{}, fmt.Errorf("%w: pixel format %v; it has %s", ErrMode, w.Pixels,
				list(modes, func(m Mode) string {
					return m.Pixels.String()
				}))
		}
	}
	width, height := w.Width, w.Height
	if width == 0 {
		width, height = nearest(left, w)
	}
	sized := without(left, func(m Mode) bool { return m.Width != width || m.Height != height })
	if len(sized) == 0 {
		return Mode{}, fmt.Errorf("%w: %dx%d; it has %s", ErrMode, width, height, list(left, func(m Mode) string {
			return fmt.Sprintf("%dx%d", m.Width, m.Height)
		}))
	}
	enough, order := w.fps()-fpsSlack, w.preference()
	return slices.MinFunc(sized, func(a, b Mode) int {
		return cmp.Or(cmp.Compare(min(b.FPS, enough), min(a.FPS, enough)),
			slices.Index(order, a.Pixels)-slices.Index(order, b.Pixels), cmp.Compare(a.FPS, b.FPS))
	}), nil
}

// nearest returns the smallest size that contains the wanted size, or the largest size if none does.
func nearest(modes []Mode, w Want) (width, height int) {
	nw, nh := w.NearW, w.NearH
	if nw == 0 {
		nw, nh = usualWidth, usualHeight
	}
	rank := func(m Mode) int {
		if m.Width < nw || m.Height < nh {
			return math.MaxInt - m.Width*m.Height // after all modes that are large enough
		}
		return m.Width * m.Height
	}
	best := slices.MinFunc(modes, func(a, b Mode) int { return cmp.Compare(rank(a), rank(b)) })
	return best.Width, best.Height
}

func without(modes []Mode, drop func(Mode) bool) []Mode {
	return slices.DeleteFunc(slices.Clone(modes), drop)
}

// list joins the names of the modes, each once.
func list(modes []Mode, name func(Mode) string) string {
	var names []string
	for _, m := range modes {
		if n := name(m); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return strings.Join(names, ", ")
}

func (m Mode) String() string {
	return fmt.Sprintf("%v %dx%d at %v frames a second", m.Pixels, m.Width, m.Height, math.Round(m.FPS*100)/100)
}

func (m Mode) remark(w Want) string {
	fps := w.fps()
	if m.FPS < fps-fpsSlack {
		return fmt.Sprintf("%v frames a second is the most it gives at this size, wanted %v", math.Round(m.FPS*100)/100,
			fps)
	}
	return ""
}
