package capture

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
)

const (
	// PreviewDelay is the time for which a request waits for the next observation, before the
	// sender encodes a picture for the preview alone.
	PreviewDelay = 500 * time.Millisecond
	// previewMaxAge is the age up to which one copy serves several requests.
	previewMaxAge   = 150 * time.Millisecond
	previewMaxBytes = 8 << 20 // largest picture
	previewQuality  = 80      // JPEG quality of the preview of pictures that are sent raw
)

// ErrNoPicture means that no picture is available now; one may arrive later.
var ErrNoPicture = errors.New("no picture")

// Preview shows people the pictures of observations. The sender copies a picture when a reader has
// requested one.
type Preview struct {
	Alone bool // no observations are sent: a requested picture is encoded at once

	camera   *Camera
	maxBytes int           // size of the buffer for one picture
	encoder  *jpeg.Encoder // encodes raw pictures; nil: the pictures are JPEG. Guarded by mu

	// Owner: the sender thread.
	source  *Encoder
	picture wire.Image
	count   int64

	requested atomic.Int64            // instant of the request; 0: no request
	tooLarge  atomic.Int64            // bytes of the last picture if it exceeds the limit, else 0
	failed    atomic.Bool             // the last picture could not be made
	newest    *rt.Latest[pictureCopy] // producer: the sender; consumer: the holder of mu

	mu sync.Mutex // serializes readers
}

// pictureCopy is a picture on its way from the sender to the readers.
type pictureCopy struct {
	taken  rt.Instant // instant at which the camera took it
	copied rt.Instant
	w, h   int // size of a raw picture
	data   []byte
}

// Still is a picture to show.
type Still struct {
	At   rt.Instant // instant at which the camera took it
	Data []byte     // JPEG, in the memory given to Read
}

// NewPreview allocates the memory for previews of the encoder's pictures; Close frees it.
func NewPreview(v *Encoder) (*Preview, error) {
	p := &Preview{camera: v.camera, source: v}
	room := min(v.MaxBytes(), previewMaxBytes)
	p.maxBytes = room
	if v.encoder == nil && !v.passthrough {
		var err error
		if p.encoder, err = jpeg.NewEncoder(previewQuality, jpeg.Chroma420); err != nil {
			return nil, err
		}
		p.maxBytes = min(jpeg.MaxSize(v.transform.outW, v.transform.outH, jpeg.Chroma420), previewMaxBytes)
	}
	p.newest = rt.NewLatest(func(c *pictureCopy) { c.data = make([]byte, 0, room) })
	return p, nil
}

// Name returns the camera's name.
func (p *Preview) Name() string { return p.camera.Name }

// MaxBytes returns the necessary size of Read's buffer.
func (p *Preview) MaxBytes() int { return p.maxBytes }

// Close frees the encoder. Read may still be called.
func (p *Preview) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.encoder != nil {
		p.encoder.Close()
	}
}

// Request requests a picture from the sender. Any goroutine may call it.
func (p *Preview) Request(now rt.Instant) { p.requested.CompareAndSwap(0, int64(now)) }

// Publish copies a sent picture if one was requested. Owner: the sender thread.
//
//rt:noalloc
func (p *Preview) Publish(m *wire.Image, taken, now rt.Instant) {
	if p.requested.Swap(0) == 0 {
		return
	}
	n := len(m.Data) + len(m.Splice)
	c := p.newest.Back()
	if n > cap(c.data) {
		p.tooLarge.Store(int64(n))
		return
	}
	c.taken = taken
	c.copied = now
	c.w = m.W
	c.h = m.H
	c.data = m.AppendData(c.data[:0])
	p.tooLarge.Store(0)
	p.failed.Store(false)
	p.count++
	p.newest.Publish(p.count)
}

// Refresh encodes a picture for a request that has waited for PreviewDelay, as in a paused run. For a
// picture that needs no encoding it does not wait. Owner: the sender thread.
//
//rt:noalloc
func (p *Preview) Refresh(now rt.Instant) {
	since := rt.Instant(p.requested.Load())
	if since == 0 || !p.Alone && !p.source.unchanged() && now.Sub(since) < PreviewDelay {
		return
	}
	taken, err := p.source.Picture(&p.picture)
	switch {
	case err != nil:
		p.requested.Store(0)
		p.failed.Store(true)
	case taken != 0:
		p.Publish(&p.picture, taken, now)
	}
}

// Read copies the newest picture into room, a buffer of MaxBytes bytes. The sender has copied the picture after the
// instant since, or shortly before. An error that wraps ErrNoPicture has the reason for a missing picture;
// any other error is permanent.
func (p *Preview) Read(room []byte, since rt.Instant) (Still, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, key, _ := p.newest.Front()
	switch {
	case p.tooLarge.Load() > 0:
		return Still{}, fmt.Errorf("%w: the last one had %d bytes, more than is shown; make it smaller with "+
			"send=WxH, or send JPEG", ErrNoPicture, p.tooLarge.Load())
	case p.failed.Load():
		return Still{}, fmt.Errorf("%w: the last one was broken", ErrNoPicture)
	case key == rt.NoKey && p.camera.captured.Load() == 0:
		return Still{}, fmt.Errorf("%w since the start, %d attempts failed", ErrNoPicture, p.camera.errors.Load())
	case key == rt.NoKey || since.Sub(c.copied) > previewMaxAge:
		return Still{}, fmt.Errorf("%w: the sender is busy", ErrNoPicture)
	case p.encoder == nil:
		return Still{c.taken, append(room[:0], c.data...)}, nil
	case len(room) < jpeg.MaxSize(c.w, c.h, jpeg.Chroma420):
		return Still{}, fmt.Errorf("a raw picture of %dx%d is too large to be shown: send JPEG (--jpeg-quality)", c.w,
			c.h)
	}
	n, err := p.encoder.Encode(room, &jpeg.Image{
		W:      c.w,
		H:      c.h,
		Layout: jpeg.RGB,
		Pix:    c.data,
	})
	if err != nil {
		return Still{}, fmt.Errorf("encode: %w", err)
	}
	return Still{c.taken, room[:n]}, nil
}
