package chunk

import "math"

// Watermark is the key of a last-write-wins register: it accepts only keys above
// every key it has seen. The zero value accepts keys from 1 on; NewWatermark
// starts lower.
//
// A register with a reader is two of them, one on each side: the writer's
// refuses what is not newer, the reader's says whether it has seen the newest.
type Watermark struct{ last int64 }

// NewWatermark returns a watermark that accepts keys above initial.
func NewWatermark(initial int64) Watermark { return Watermark{last: initial} }

// Accept reports whether key is newer than everything before, and remembers it.
// Ties keep the incumbent.
//
//rt:noalloc
func (w *Watermark) Accept(key int64) bool {
	if key <= w.last {
		return false
	}
	w.last = key
	return true
}

// Last returns the newest key accepted, or the initial one.
func (w *Watermark) Last() int64 { return w.last }

// noKey is below every request key, so that the first request always wins.
const noKey = math.MinInt64
