package camera

import (
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Grid has the instants of a camera's pictures: frame k is at Origin + k/FPS seconds, rounded up to the next
// nanosecond. So rounding errors do not add up.
type Grid struct {
	Origin rt.Instant
	FPS    int // frames a second, at least 1
}

// Instant returns the instant of frame k.
//
//rt:noalloc
func (g Grid) Instant(k uint64) rt.Instant {
	fps := uint64(g.FPS)
	part := (k%fps*uint64(time.Second) + fps - 1) / fps
	return g.Origin + rt.Instant(k/fps*uint64(time.Second)+part)
}

// Sleep waits for the first coming frame whose number is at least the parameter next, and returns its number and
// instant. A late reader skips frames.
//
//rt:noalloc
func (g Grid) Sleep(clock rt.Clock, next uint64) (k uint64, at rt.Instant) {
	k = max(next, g.First(clock.Now()))
	at = g.Instant(k)
	clock.SleepUntil(at)
	return k, at
}

// First returns the number of the first frame taken at the instant now or later.
//
//rt:noalloc
func (g Grid) First(now rt.Instant) uint64 {
	if now <= g.Origin {
		return 0
	}
	fps, since := uint64(g.FPS), uint64(now-g.Origin)
	k := since/uint64(time.Second)*fps + since%uint64(time.Second)*fps/uint64(time.Second)
	if g.Instant(k) < now {
		k++
	}
	return k
}

// Paced is the part of a Source that has no device: it waits for the instants of its frames. Grab calls Wait.
type Paced struct {
	clock  rt.Clock
	format Format
	grid   Grid
	next   uint64 // number of the next frame; owner: the capture thread
	closed atomic.Bool
}

// NewPaced returns a Paced whose frames begin now, at the format's rate.
func NewPaced(clock rt.Clock, format Format) *Paced {
	return &Paced{clock: clock, format: format, grid: Grid{Origin: clock.Now(), FPS: format.FPS}}
}

// Format returns the format of the frames.
func (p *Paced) Format() Format { return p.format }

// Wait sleeps until the next frame's instant, and sets all of dst but its pixels. A late caller skips frames.
//
//rt:noalloc
func (p *Paced) Wait(dst *Frame) error {
	if p.closed.Load() {
		return ErrClosed
	}
	k, at := p.grid.Sleep(p.clock, p.next)
	if p.closed.Load() {
		return ErrClosed
	}
	dst.Format = p.format
	dst.Sequence = k
	dst.At = at
	p.next = k + 1
	return nil
}

// Close makes a sleeping Wait return ErrClosed at its frame's instant.
func (p *Paced) Close() error {
	p.closed.Store(true)
	return nil
}
