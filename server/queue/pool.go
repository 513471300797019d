package queue

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"edgert/server/memory"
)

// The classes of buffers: four sizes for each doubling, so that at most a quarter
// of one is unused, where powers of two waste half.
const (
	smallestBits = 12 // 4 KiB
	largestBits  = 27 // above wire.MaxMessageBytes
	perDoubling  = 4
	classes      = (largestBits-smallestBits)*perDoubling + 1
)

// Pool lends buffers for observations. It holds as many as waited at the same time,
// whatever the number of robots, and no more than the bound that it takes them from
// allows.
//
// Owner: any goroutine.
type Pool struct {
	bound *memory.Bound
	bytes atomic.Int64 // of all its buffers, lent or not

	mu   sync.Mutex
	free [classes]freeList // guarded by mu
}

// freeList is the buffers of one class that nobody uses.
type freeList struct {
	first *Request
	count int
	least int // since the last Trim
}

// NewPool returns an empty pool that takes its buffers from a bound.
func NewPool(bound *memory.Bound) *Pool { return &Pool{bound: bound} }

// Bytes is what the buffers take.
//
//rt:noalloc
func (p *Pool) Bytes() int64 { return p.bytes.Load() }

// classOf is the smallest class whose buffers hold n bytes.
//
//rt:noalloc
func classOf(n int) int {
	if n <= 1<<smallestBits {
		return 0
	}
	doubling := bits.Len(uint(n-1)) - 1 // n is above 1<<doubling, and at most twice that
	step := (n - 1 - 1<<doubling) >> (doubling - 2)
	return (doubling-smallestBits)*perDoubling + step + 1
}

// sizeOf is how many bytes the buffers of a class hold.
//
//rt:noalloc
func sizeOf(class int) int {
	doubling := smallestBits + class/perDoubling
	return 1<<doubling + class%perDoubling<<(doubling-2)
}

// lend lends a buffer for n bytes, nil when that is more than there is. What is more
// than was asked for when its robot opened comes from what others leave. It allocates
// only when more are lent than ever before.
//
//rt:noalloc
func (p *Pool) lend(n int, asked bool) *Request {
	class := classOf(n)
	if class >= classes {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := class; c < min(class+perDoubling, classes); c++ { // one that is up to twice as large does as well
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
func (p *Pool) give(size int64) {
	p.bytes.Add(-size)
	p.bound.Give(memory.Observations, size)
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

// Return takes a buffer back.
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

// Trim lets go of the buffers that nobody needed since the last Trim.
func (p *Pool) Trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.free {
		l := &p.free[c]
		for range l.least {
			l.first = l.first.next
			l.count--
			p.give(int64(sizeOf(c)))
		}
		l.least = l.count
	}
}

// DropFree lets go of all that is not lent.
func (p *Pool) DropFree() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropFree()
}

// dropFree is DropFree with mu held.
//
//rt:noalloc
func (p *Pool) dropFree() {
	for c := range p.free {
		p.give(int64(sizeOf(c)) * int64(p.free[c].count))
		p.free[c] = freeList{}
	}
}
