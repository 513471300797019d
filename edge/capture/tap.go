package capture

import (
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt"
)

// Tap copies a camera's frames for a second reader, which may be slow. A frame without room is
// counted as missed.
type Tap struct {
	Frames *Camera // holds the newest copy after Next, for the reader's Encoder
	Every  time.Duration

	queue  *rt.Ring[Frame]
	missed atomic.Uint64
	next   rt.Instant // owner: the capture thread
}

// Tap begins to copy frames: at most one in each interval of length every, or all frames if every is 0. The parameter
// waiting, a power of two, limits the copies that wait for their reader. Call Tap before Run.
func (e *Camera) Tap(every time.Duration, waiting int) *Tap {
	size := e.Source.Format().FrameBytes()
	room := func(s *Frame) { s.Pix = make([]byte, 0, size) }
	e.tap = &Tap{
		Every: every, queue: rt.NewRing[Frame](waiting),
		Frames: &Camera{
			Name:      e.Name,
			ImageName: e.ImageName,
			Source:    e.Source,
			MaxAge:    e.MaxAge,
			Age:       rt.NewHist(),
			Newest:    rt.NewLatest(room),
		},
	}
	e.tap.queue.Prepare(room)
	return e.tap
}

// Missed returns the number of frames for which the queue had no room, and of copies that a newer
// copy replaced before the reader fetched them. Any thread may call it.
func (t *Tap) Missed() uint64 { return t.missed.Load() + t.Frames.Newest.Replaced() }

// Next makes the oldest waiting copy the newest of Frames, and reports whether there was one.
// Owner: the reader.
//
//rt:noalloc
func (t *Tap) Next() bool {
	from := t.queue.Peek()
	if from == nil {
		return false
	}
	to := t.Frames.Newest.Back()
	room := to.Pix
	*to = *from
	from.Pix = room
	t.queue.Release()
	t.Frames.Newest.Publish(int64(to.At))
	return true
}

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
	c := t.queue.Reserve()
	if c == nil || len(pix) > cap(c.Pix) {
		t.missed.Add(1)
		return
	}
	own := c.Pix[:0]
	*c = *s
	c.Pix = append(own, pix...)
	t.queue.Commit()
}

// Torn returns the number of pictures that were dropped because of torn markers or another size.
// Any thread may call it.
func (e *Camera) Torn() uint64 { return e.torn.Load() }

// NewestAt returns the instant of the newest picture. Owner: the reader of Newest.
func (e *Camera) NewestAt() rt.Instant {
	s, _, _ := e.Newest.Front()
	return s.At
}

// AsItCame reports whether a camera's own JPEG is sent without being decoded.
func (v *Encoder) AsItCame() bool { return v.passthrough }
