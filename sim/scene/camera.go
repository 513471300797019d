package scene

import (
	"fmt"
	"sync"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt"
)

// Camera is a camera above a world that another process simulates.
type Camera struct {
	path   string
	format camera.Format
	clock  rt.Clock
	grid   camera.Grid
	next   uint64 // owner: the capture thread; number of the next frame

	mu     sync.Mutex
	viewer *Viewer // guarded by mu; nil: there is no connection
	closed bool    // guarded by mu
}

// OpenCamera opens a camera above the world that another process shows at path. It fails when there
// is no such world. The camera's pictures are RGB8, with format's size and rate.
func OpenCamera(path string, format camera.Format, clock rt.Clock) (*Camera, error) {
	c := &Camera{
		path:   path,
		format: format,
		clock:  clock,
		grid:   camera.Grid{Origin: clock.Now(), FPS: format.FPS},
	}
	_, err := c.connection()
	return c, err
}

// Format returns the format of Grab's frames.
func (c *Camera) Format() camera.Format { return c.format }

// Grab sleeps until the next frame's instant and paints the world of that instant. It returns
// camera.ErrGone when no program shows a world any more. The next Grab tries to connect again.
func (c *Camera) Grab(dst *camera.Frame) error {
	k, _ := c.grid.Sleep(c.clock, c.next)
	viewer, err := c.connection()
	if err != nil {
		return err
	}
	v, err := viewer.View()
	if err != nil {
		return c.lost(err)
	}
	dst.Format = c.format
	dst.Sequence = k
	dst.At = v.At
	v.Render(dst.Pix[:c.format.FrameBytes()], c.format.Width, c.format.Height)
	c.next = k + 1
	return nil
}

// connection returns the camera's viewer, and connects it if necessary.
func (c *Camera) connection() (*Viewer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, camera.ErrClosed
	}
	if c.viewer == nil {
		viewer, err := Dial(c.path)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", camera.ErrGone, err)
		}
		c.viewer = viewer
	}
	return c.viewer, nil
}

// lost closes the viewer after an error and returns the error for Grab's caller.
func (c *Camera) lost(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return camera.ErrClosed
	}
	c.viewer.Close()
	c.viewer = nil
	return fmt.Errorf("%w: the world at %s: %w", camera.ErrGone, c.path, err)
}

// Close makes Grab return camera.ErrClosed.
func (c *Camera) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.viewer != nil {
		c.viewer.Close()
	}
	return nil
}
