package queue

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/server/memory"
)

// The sizes of buffers form classes, with perDoubling classes between a power of two and the next. So at most a fifth
// of a new buffer is unused; with powers of two alone it would be up to a half.
const (
	smallestBits = 12 // 4 KiB
	largestBits  = 27 // this class holds more than wire.MaxMessageBytes
	perDoubling  = 4
	classes      = (largestBits-smallestBits)*perDoubling + 1
)

// Pool lends buffers for observations. It makes only as many buffers as there are observations in
// memory at the same time, for any number of robots. It does not exceed its bound on memory.
//
// Owner: any goroutine.
type Pool struct {
	bound *memory.Bound
	bytes atomic.Int64 // size of all buffers of the pool, lent or free

	mu   sync.Mutex
	free [classes]freeList // guarded by mu
}

// freeList holds the free buffers of one class.
type freeList struct {
	first *Request
	count int
	least int // smallest count since the last Trim
}

// NewPool returns an empty pool that counts the memory of its buffers in bound.
func NewPool(bound *memory.Bound) *Pool { return &Pool{bound: bound} }

// Bytes returns the size of all buffers.
//
//rt:noalloc
func (p *Pool) Bytes() int64 { return p.bytes.Load() }

// classOf returns the smallest class whose buffers hold n bytes.
//
//rt:noalloc
func classOf(n int) int {
	if n <= 1<<smallestBits {
		return 0
	}
	doubling := bits.Len(uint(n-1)) - 1 // 1<<doubling < n <= 2<<doubling
	step := (n - 1 - 1<<doubling) >> (doubling - 2)
	return (doubling-smallestBits)*perDoubling + step + 1
}

// sizeOf returns the size of the buffers of a class in bytes.
//
//rt:noalloc
func sizeOf(class int) int {
	doubling := smallestBits + class/perDoubling
	return 1<<doubling + class%perDoubling<<(doubling-2)
}

// lend lends a buffer for n bytes, and returns nil when there is no memory for it. The parameter asked is false for
// an observation that is larger than its robot's open announced. Such an observation gets only memory that is not
// reserved for robots. lend allocates only when no free buffer fits.
//
//rt:noalloc
func (p *Pool) lend(n int, asked bool) *Request {
	class := classOf(n)
	if class >= classes {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// a free buffer of up to twice the size is large enough and not wasteful
	for c := class; c < min(class+perDoubling, classes); c++ {
		if r := p.free[c].take(); r != nil {
			return r
		}
	}
	size := int64(sizeOf(class))
	if !p.take(size, asked) {
		p.dropFree()
		if !p.take(size, asked) {
			return nil
		}
	}
	p.bytes.Add(size)
	return newRequest(class)
}

//rt:noalloc
func (p *Pool) take(size int64, asked bool) bool {
	if asked {
		return p.bound.Take(memory.Observations, size)
	}
	return p.bound.TakeSpare(memory.Observations, size)
}

//rt:noalloc
func (p *Pool) release(size int64) {
	p.bytes.Add(-size)
	p.bound.Release(memory.Observations, size)
}

//go:noinline
func newRequest(class int) *Request {
	return &Request{class: class, Body: make([]byte, 0, sizeOf(class))}
}

//rt:noalloc
func (l *freeList) take() *Request {
	r := l.first
	if r == nil {
		return nil
	}
	l.first, r.next = r.next, nil
	l.count--
	l.least = min(l.least, l.count)
	return r
}

// Return puts a lent buffer back.
//
//rt:noalloc
func (p *Pool) Return(r *Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &p.free[r.class]
	r.next = l.first
	l.first = r
	l.count++
}

// Trim frees the buffers that were not needed since the last Trim.
func (p *Pool) Trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.free {
		l := &p.free[c]
		for range l.least {
			l.first = l.first.next
			l.count--
			p.release(int64(sizeOf(c)))
		}
		l.least = l.count
	}
}

// DropFree frees all buffers that are not lent.
func (p *Pool) DropFree() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropFree()
}

// dropFree does the work of DropFree. The caller holds mu.
//
//rt:noalloc
func (p *Pool) dropFree() {
	for c := range p.free {
		p.release(int64(sizeOf(c)) * int64(p.free[c].count))
		p.free[c] = freeList{}
	}
}
