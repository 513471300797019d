package rt

import "sync/atomic"

const cacheLine = 64 // bytes; Cortex-A72/A76 and x86-64

// Ring is a bounded queue of slots that are allocated once and lent, not copied. Neither
// side blocks.
//
// Owner: one goroutine calls Reserve and Commit, one calls Peek and Release, and any may call Len.
type Ring[T any] struct {
	slots []T // len is a power of two

	_    [cacheLine]byte
	head atomic.Uint64 // next slot to fill; only the producer stores
	_    [cacheLine]byte
	tail atomic.Uint64 // next slot to drain; only the consumer stores
	_    [cacheLine]byte
}

// NewRing panics unless n is a power of two.
func NewRing[T any](n int) *Ring[T] {
	if n <= 0 || n&(n-1) != 0 {
		panic("rt: NewRing wants a power of two")
	}
	r := &Ring[T]{slots: make([]T, n)}
	clear(r.slots) // touches every page now instead of in the producer's first round
	return r
}

// Prepare calls init with each slot. Call it before either side begins.
func (r *Ring[T]) Prepare(init func(*T)) {
	for i := range r.slots {
		init(&r.slots[i])
	}
}

// Reserve lends the next free slot, or nil when the ring is full. The slot has the content of its
// last use, and stays reserved until Commit.
//
//rt:noalloc
func (r *Ring[T]) Reserve() *T {
	head := r.head.Load()
	if head-r.tail.Load() == uint64(len(r.slots)) {
		return nil
	}
	return &r.slots[head&uint64(len(r.slots)-1)]
}

// Commit passes the slot last lent by Reserve to the consumer.
//
//rt:noalloc
func (r *Ring[T]) Commit() { r.head.Store(r.head.Load() + 1) }

// Peek lends the oldest committed slot, or nil when the ring is empty.
//
//rt:noalloc
func (r *Ring[T]) Peek() *T {
	tail := r.tail.Load()
	if tail == r.head.Load() {
		return nil
	}
	return &r.slots[tail&uint64(len(r.slots)-1)]
}

// Release returns the slot last lent by Peek to the producer.
//
//rt:noalloc
func (r *Ring[T]) Release() { r.tail.Store(r.tail.Load() + 1) }

// Len returns the number of committed slots that the consumer has not released.
//
//rt:noalloc
func (r *Ring[T]) Len() int {
	tail := r.tail.Load() // tail is read before head: in the other order the difference could be negative
	return int(min(r.head.Load()-tail, uint64(len(r.slots))))
}
