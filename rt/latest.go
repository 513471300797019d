package rt

import (
	"math"
	"sync/atomic"
)

// NoKey is the key of a Latest before its first Publish. It is below every other key.
const NoKey = math.MinInt64

// Latest passes the newest value from one producer to one consumer, blocking neither: three slots,
// one at the producer, one at the consumer, one in transit. A newer value replaces a value that the
// consumer has not taken.
//
// Newer means a higher key (a sequence number, an instant, a step). A key not above the last
// published one is refused, so the consumer's values only become newer.
//
// Owner: one goroutine calls Back and Publish, one calls Front, any may call Replaced.
type Latest[T any] struct {
	slots [3]slot[T]

	// Owner: producer.
	back   uint32
	newest int64 // key published last

	// Owner: consumer.
	_     [cacheLine]byte
	front uint32

	// Atomic.
	_        [cacheLine]byte
	transit  atomic.Uint32 // index of the slot in transit, with the bit unread
	replaced atomic.Uint64
}

type slot[T any] struct {
	value T
	key   int64
}

const unread = 1 << 31 // the slot in transit was published and not yet taken

// NewLatest returns a Latest whose slots were each prepared by init, which may be nil.
func NewLatest[T any](init func(*T)) *Latest[T] {
	l := &Latest[T]{back: 0, front: 1, newest: NoKey}
	l.transit.Store(2)
	for i := range l.slots {
		l.slots[i].key = NoKey
		if init != nil {
			init(&l.slots[i].value)
		}
	}
	return l
}

// Back lends the producer the slot to fill before the next Publish. The slot still has an older value.
//
//rt:noalloc
func (l *Latest[T]) Back() *T { return &l.slots[l.back].value }

// Publish makes the Back slot the newest value under the key. If the key is not above the last published key, it
// changes nothing and returns false.
//
//rt:noalloc
func (l *Latest[T]) Publish(key int64) bool {
	if key <= l.newest {
		return false
	}
	l.newest = key
	l.slots[l.back].key = key
	old := l.transit.Swap(l.back | unread)
	if old&unread != 0 {
		l.replaced.Add(1)
	}
	l.back = old &^ unread
	return true
}

// Front lends the consumer the newest value until the next Front, with its key, and reports whether the value is new
// since the last Front. Before the first Publish, the value is a slot as init left it, and the key is NoKey.
//
//rt:noalloc
func (l *Latest[T]) Front() (v *T, key int64, fresh bool) {
	if fresh = l.transit.Load()&unread != 0; fresh {
		l.front = l.transit.Swap(l.front) &^ unread
	}
	s := &l.slots[l.front]
	return &s.value, s.key, fresh
}

// Replaced returns how many published values were replaced before the consumer took them.
func (l *Latest[T]) Replaced() uint64 { return l.replaced.Load() }
