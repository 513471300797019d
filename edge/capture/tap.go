package capture

import (
	"sync/atomic"
	"time"

	"edgert/camera"
	"edgert/rt"
)

// Tap copies a camera's frames for a second reader, which has all the time that it
// wants: what finds no room is missed.
type Tap struct {
	Frames *Camera // holds the copy that Next has made the newest, for an Encoder of its own
	Every  time.Duration

	queue  *rt.Ring[Frame]
	missed atomic.Uint64
	next   rt.Instant // owner: the capture thread
}

// Tap begins to copy frames, at most one in so long (0: all), of which so many, a power of
// two, wait for their reader. Call it before Run.
func (e *Camera) Tap(every time.Duration, waiting int) *Tap {
	size := e.Source.Format().FrameBytes()
	room := func(s *Frame) { s.Pix = make([]byte, 0, size) }
	e.tap = &Tap{
		Every: every, queue: rt.NewRing[Frame](waiting),
		Frames: &Camera{Name: e.Name, ImageName: e.ImageName, Source: e.Source, MaxAge: e.MaxAge, Age: rt.NewHist(), Newest: rt.NewLatest(room)},
	}
	e.tap.queue.Prepare(room)
	return e.tap
}

// Missed returns how many frames found no room, or were followed by another before they
// were fetched. Any thread may call it.
func (t *Tap) Missed() uint64 { return t.missed.Load() + t.Frames.Newest.Replaced() }

// Next makes the oldest copy that waits the newest of Frames, if there is one. Owner: the
// reader.
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

// Torn is how many pictures were dropped because their markers say that they are torn, or of
// another size. Any thread may call it.
func (e *Camera) Torn() uint64 { return e.torn.Load() }

// NewestAt is when the newest picture was taken. Owner: the reader of Newest.
func (e *Camera) NewestAt() rt.Instant {
	s, _, _ := e.Newest.Front()
	return s.At
}

// AsItCame reports whether a camera's own JPEG leaves without being decoded.
func (v *Encoder) AsItCame() bool { return v.passthrough }
