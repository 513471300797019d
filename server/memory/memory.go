// Package memory is the one bound on the memory that robots can make a server keep: their sessions,
// their observations until they have been worked on, the captures that wait for the disk, and the
// tokens of other servers. Code that needs some takes it here first, and goes without when it is
// used up. The memory of the transport's links has a bound of its own, which the manifest takes off
// this one's.
package memory

import (
	"fmt"
	"sync/atomic"
)

// spareFraction of the bound is kept for robots that stay within their announcement at open: others
// get nothing of it.
const spareFraction = 4

// Part is what memory is used for.
type Part uint8

// The parts.
const (
	Sessions     Part = iota // memory of a robot while its session is open
	Observations             // buffers, lent or not
	Captures                 // that wait for the disk
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
	most  atomic.Int64 // that were ever used
	parts [NumParts]atomic.Int64
}

// New returns an unused bound of limit bytes.
func New(limit int64) *Bound { return &Bound{limit: limit} }

// Take counts n bytes, or reports that there are not so many left.
//
//rt:noalloc
func (b *Bound) Take(p Part, n int64) bool { return b.take(p, n, b.limit) }

// TakeSpare is Take for a robot that needs more than it announced: it leaves a part of the bound to
// the others.
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

// Give gives n bytes back.
//
//rt:noalloc
func (b *Bound) Give(p Part, n int64) {
	b.parts[p].Add(-n)
	b.used.Add(-n)
}

// Used is how many bytes are in use.
//
//rt:noalloc
func (b *Bound) Used() int64 { return b.used.Load() }

// Most is how many ever were.
func (b *Bound) Most() int64 { return b.most.Load() }

// Of is how many bytes a part uses.
//
//rt:noalloc
func (b *Bound) Of(p Part) int64 { return b.parts[p].Load() }

// Promisable is how many bytes may be promised to robots.
func (b *Bound) Promisable() int64 { return b.limit - b.Of(Replicas) }

// Limit is how many bytes there are.
func (b *Bound) Limit() int64 { return b.limit }

// String shows how much is used, of how much and for which purpose.
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

// Size is a number of bytes for people.
type Size int64

func (s Size) String() string {
	if s < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(s)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(s)/(1<<20))
}
