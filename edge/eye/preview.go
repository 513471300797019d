package eye

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"edgert/jpeg"
	"edgert/rt"
	"edgert/wire"
)

const (
	// PreviewPatience is how long somebody who looks waits for a picture of an
	// observation before the sender makes one for the preview alone. One that leaves
	// as it comes from the camera is there without waiting.
	PreviewPatience = 500 * time.Millisecond
	// previewShare is the age from which a copy is not handed to the next who looks.
	previewShare = 150 * time.Millisecond
	// previewMax is the largest picture that is shown, in bytes.
	previewMax = 8 << 20
	// previewQuality is of pictures that are sent raw and encoded to be shown.
	previewQuality = 80
)

// ErrNoPicture means that there is none to show now; one may come.
var ErrNoPicture = errors.New("no picture")

// Preview lends a camera's pictures to people who look. It is the picture of the
// observation, as the policy gets it: copied by the sender once it has left, and
// only when somebody has asked for it.
type Preview struct {
	eye     *Eye
	room    int           // of one picture to show
	encoder *jpeg.Encoder // of raw pictures; nil: they are JPEG; guarded by mu

	// Owner: the sender thread.
	develop *Developer
	picture wire.Image
	count   int64

	asked  atomic.Int64       // since when somebody waits; 0: nobody does
	huge   atomic.Int64       // bytes of the last picture, when they are more than is shown
	failed atomic.Bool        // the last picture could not be made
	shown  *rt.Latest[copied] // producer: the sender; consumer: who holds mu

	mu sync.Mutex // among those who look
}

// copied is a picture on its way from the sender to those who look.
type copied struct {
	taken  rt.Instant // by the camera
	copied rt.Instant
	w, h   int // of a raw one
	data   []byte
}

// Still is a picture to show.
type Still struct {
	At   rt.Instant // when it was taken
	Data []byte     // JPEG, in the memory given to Take
}

// NewPreview allocates what previews of the developer's pictures need; Close
// frees it.
func NewPreview(v *Developer) (*Preview, error) {
	p := &Preview{eye: v.eye, develop: v}
	room := min(v.MaxBytes(), previewMax)
	p.room = room
	if v.encoder == nil && !v.pass {
		var err error
		if p.encoder, err = jpeg.NewEncoderOf(jpeg.Params{Quality: previewQuality, Chroma: jpeg.Chroma420}); err != nil {
			return nil, err
		}
		p.room = min(jpeg.MaxSizeOf(v.rework.outW, v.rework.outH, jpeg.Chroma420), previewMax)
	}
	p.shown = rt.NewLatest(func(c *copied) { c.data = make([]byte, 0, room) })
	return p, nil
}

// Name is the camera's.
func (p *Preview) Name() string { return p.eye.Name }

// MaxBytes is the memory that Take wants.
func (p *Preview) MaxBytes() int { return p.room }

// Close frees the encoder. Take may be called still.
func (p *Preview) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.encoder != nil {
		p.encoder.Close()
	}
}

// Ask says that somebody waits for a picture. Any goroutine may.
func (p *Preview) Ask(now rt.Instant) { p.asked.CompareAndSwap(0, int64(now)) }

// Offer copies a picture that was sent, if somebody waits for one.
//
// Owner: the sender thread.
//
//rt:noalloc
func (p *Preview) Offer(m *wire.Image, taken, now rt.Instant) {
	if p.asked.Load() == 0 {
		return
	}
	p.asked.Store(0)
	n := len(m.Data) + len(m.Splice)
	c := p.shown.Back()
	if n > cap(c.data) {
		p.huge.Store(int64(n))
		return
	}
	c.taken, c.copied, c.w, c.h = taken, now, m.W, m.H
	c.data = append(append(append(c.data[:0], m.Data[:m.SpliceAt]...), m.Splice...), m.Data[m.SpliceAt:]...)
	p.huge.Store(0)
	p.failed.Store(false)
	p.count++
	p.shown.Publish(p.count)
}

// Look makes a picture for those who have waited for long: the run is paused, or
// has no server, and sends none.
//
// Owner: the sender thread.
//
//rt:noalloc
func (p *Preview) Look(now rt.Instant) {
	since := rt.Instant(p.asked.Load())
	if since == 0 || !p.develop.idle() && now.Sub(since) < PreviewPatience {
		return
	}
	taken, err := p.develop.Picture(&p.picture)
	switch {
	case err != nil:
		p.asked.Store(0)
		p.failed.Store(true)
	case taken != 0:
		p.Offer(&p.picture, taken, now)
	}
}

// Take returns the newest picture in the memory of room, which has MaxBytes, if
// it was copied since then or shortly before.
//
// Errors: ErrNoPicture with the reason when there is none yet; Ask for one. Any
// other one stays.
func (p *Preview) Take(room []byte, since rt.Instant) (Still, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, key, _ := p.shown.Front()
	switch {
	case p.huge.Load() > 0:
		return Still{}, fmt.Errorf("%w: the last one had %d bytes, more than is shown; make it smaller with send=WxH, or send JPEG", ErrNoPicture, p.huge.Load())
	case p.failed.Load():
		return Still{}, fmt.Errorf("%w: the last one was broken", ErrNoPicture)
	case key == rt.NoKey && p.eye.captured.Load() == 0:
		return Still{}, fmt.Errorf("%w: none has come since the start, %d attempts failed", ErrNoPicture, p.eye.errors.Load())
	case key == rt.NoKey || since.Sub(c.copied) > previewShare:
		return Still{}, fmt.Errorf("%w: the sender is busy", ErrNoPicture)
	case p.encoder == nil:
		return Still{c.taken, append(room[:0], c.data...)}, nil
	case len(room) < jpeg.MaxSizeOf(c.w, c.h, jpeg.Chroma420):
		return Still{}, fmt.Errorf("a raw picture of %dx%d is too large to be shown: send JPEG (--jpeg-quality)", c.w, c.h)
	}
	n, err := p.encoder.Encode(room, &jpeg.Image{W: c.w, H: c.h, Layout: jpeg.RGB, Pix: c.data})
	if err != nil {
		return Still{}, fmt.Errorf("encode: %w", err)
	}
	return Still{c.taken, room[:n]}, nil
}
