// Package memory is the one bound on the memory that robots can make a server keep: it counts their
// sessions, the buffers of their observations, the captures that wait for the disk, and the tokens
// of other servers. Code that needs such memory takes it here first. When the bound is reached,
// Take fails and the code must manage without the memory. The transport's links have a separate
// bound, which the manifest subtracts from this one.
package memory

import (
	"fmt"
	"sync/atomic"
)

// 1/spareFraction of the bound is reserved for robots that stay within the sizes of their open.
const spareFraction = 4

// Part is a use of memory.
type Part uint8

// The parts.
const (
	Sessions     Part = iota // memory of a robot while its session is open
	Observations             // buffers of observations, lent or free
	Captures                 // captures that wait for the disk
	Replicas                 // tokens of the other servers of the service
	NumParts
)

var partNames = [NumParts]string{"sessions", "observations", "captures", "replicas"}

func (p Part) String() string { return partNames[p] }

// Bound counts the bytes in use against a limit.
//
// Owner: any goroutine.
type Bound struct {
	limit int64 // constant

	// Atomic.
	used  atomic.Int64
	most  atomic.Int64 // largest value of used so far
	parts [NumParts]atomic.Int64
}

// New returns a bound of limit bytes, none of which is in use.
func New(limit int64) *Bound { return &Bound{limit: limit} }

// Take counts n more bytes as used by p and returns true, or returns false when fewer than n bytes are left.
//
//rt:noalloc
func (b *Bound) Take(p Part, n int64) bool { return b.take(p, n, b.limit) }

// TakeSpare does the same as Take for memory that no robot was promised: for captures, and for
// observations that are larger than their robot's open announced. It leaves 1/spareFraction of the
// bound to promised memory.
//
//rt:noalloc
func (b *Bound) TakeSpare(p Part, n int64) bool { return b.take(p, n, b.limit-b.limit/spareFraction) }

//rt:noalloc
func (b *Bound) take(p Part, n, limit int64) bool {
	for {
		used := b.used.Load()
		if used+n > limit {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			b.parts[p].Add(n)
			for most := b.most.Load(); used+n > most && !b.most.CompareAndSwap(most, used+n); {
				most = b.most.Load()
			}
			return true
		}
	}
}

// Release gives n bytes back.
//
//rt:noalloc
func (b *Bound) Release(p Part, n int64) {
	b.parts[p].Add(-n)
	b.used.Add(-n)
}

// Used returns the bytes in use.
//
//rt:noalloc
func (b *Bound) Used() int64 { return b.used.Load() }

// Most returns the largest value of Used so far.
func (b *Bound) Most() int64 { return b.most.Load() }

// Of returns the bytes in use by a part.
//
//rt:noalloc
func (b *Bound) Of(p Part) int64 { return b.parts[p].Load() }

// Promisable returns the bytes that may be promised to robots.
func (b *Bound) Promisable() int64 { return b.limit - b.Of(Replicas) }

// Limit returns the bound in bytes.
func (b *Bound) Limit() int64 { return b.limit }

// String shows the bytes in use, the limit, and the use by each part.
func (b *Bound) String() string {
	text := fmt.Sprintf("%s of %s are in use", Size(b.Used()), Size(b.limit))
	for p := range NumParts {
		separator := ", "
		if p == 0 {
			separator = " ("
		}
		text += fmt.Sprintf("%s%s %s", separator, p, Size(b.Of(p)))
	}
	return text + ")"
}

// Size formats a number of bytes for people.
type Size int64

func (s Size) String() string {
	if s < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(s)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(s)/(1<<20))
}
