package capture

import (
	"sync/atomic"
	"time"

	"edgert/camera"
	"edgert/rt"
)

// Tap copies a camera's frames for a second reader, which has all the time that it
// wants: what it does not fetch is replaced.
type Tap struct {
	Frames *Camera // holds the copies, for an Encoder of their own
	Every  time.Duration

	missed atomic.Uint64
	next   rt.Instant // owner: the capture thread
}

// Tap begins to copy frames, at most one in so long; 0: all. Call it before Run.
func (e *Camera) Tap(every time.Duration) *Tap {
	size := e.Source.Format().FrameBytes()
	e.tap = &Tap{Every: every, Frames: &Camera{
		Name: e.Name, ImageName: e.ImageName, Source: e.Source, MaxAge: e.MaxAge, Age: rt.NewHist(),
		Newest: rt.NewLatest(func(s *Frame) { s.Pix = make([]byte, 0, size) }),
	}}
	return e.tap
}

// Missed returns how many copies nobody has fetched. Any thread may call it.
func (t *Tap) Missed() uint64 { return t.missed.Load() + t.Frames.Newest.Replaced() }

// offer copies a frame. Owner: the capture thread.
//
//rt:noalloc
func (t *Tap) offer(s *Frame) {
	if s.At < t.next {
		return
	}
	t.next = s.At.Add(t.Every)
	pix := s.Pix
	if s.Pixels == camera.MJPEG {
		pix = pix[:s.JPEG.End]
	}
	c := t.Frames.Newest.Back()
	own := c.Pix[:0]
	if len(pix) > cap(own) {
		t.missed.Add(1)
		return
	}
	*c = *s
	c.Pix = append(own, pix...)
	t.Frames.Newest.Publish(int64(s.At))
}
