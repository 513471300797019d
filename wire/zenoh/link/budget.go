package link

import (
	"math/bits"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// collectFraction of the limit may lie about as garbage before it is collected.
	collectFraction = 4
	// collectInterval is the shortest time between two collections: a remote that
	// makes garbage for ever waits for its collection, and does not set its rate.
	collectInterval = 100 * time.Millisecond
	// debtFraction of the limit may be garbage, or held by links that are ending,
	// before readers wait for it to go: not much more than what starts a collection,
	// because a busy machine runs that late.
	debtFraction = 3
	// debtTimeout is how long they wait for links that are ending: a callback may
	// hold one up.
	debtTimeout = time.Second
)

// Budget bounds the memory of all buffers that the remotes of a session can make
// grow: what is being received, put together, or waits to be sent. It counts
// what is allocated, not what is in use.
//
// When it is exhausted the links that hold the most are ended, those of the host
// whose links together hold the most first, unless that is the one that asks: a
// flood hurts itself and not the others, over however many links it comes.
//
// What is given back is memory until it is collected, and what an ended link held
// until its goroutines have noticed. Both are the budget's debt: readers that
// want more wait while it is large.
type Budget struct {
	limit int

	mu      sync.Mutex
	used    int              // guarded by mu
	leaving int              // held by links that were ended for it; guarded by mu
	holders map[*memory]int  // guarded by mu
	hosts   map[string]*host // with a link; guarded by mu

	spare      [classes][][]byte // buffers of ended messages, by size; guarded by mu
	spareBytes int               // bytes of them; guarded by mu

	garbage    int       // given back and not collected yet; guarded by mu
	collecting bool      // or about to; guarded by mu
	collected  time.Time // when the last collection began; guarded by mu
	debtPaid   sync.Cond // on mu: the debt became less
}

// classes is how many sizes of shared buffers there are: powers of two.
const classes = 32

// lend returns an empty buffer of size bytes that were counted already.
func (b *Budget) lend(size int) []byte {
	if size&(size-1) != 0 {
		return make([]byte, 0, size)
	}
	c := bits.Len(uint(size)) - 1
	b.mu.Lock()
	if n := len(b.spare[c]); n > 0 {
		buf := b.spare[c][n-1]
		b.spare[c][n-1] = nil
		b.spare[c] = b.spare[c][:n-1]
		b.spareBytes -= size
		b.mu.Unlock()
		return buf
	}
	for i := classes - 1; i >= 0 && b.used+b.spareBytes > b.limit; i-- {
		for n := len(b.spare[i]); n > 0 && b.used+b.spareBytes > b.limit; n-- {
			b.spareBytes -= cap(b.spare[i][n-1])
			b.addGarbage(cap(b.spare[i][n-1]))
			b.spare[i][n-1] = nil
			b.spare[i] = b.spare[i][:n-1]
		}
	}
	b.mu.Unlock()
	return make([]byte, 0, size)
}

// recycle takes a lent buffer back.
func (b *Budget) recycle(buf []byte) {
	size := cap(buf)
	if size == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if size&(size-1) != 0 || b.used+b.spareBytes > b.limit {
		b.addGarbage(size)
		return
	}
	c := bits.Len(uint(size)) - 1
	b.spare[c] = append(b.spare[c], buf[:0])
	b.spareBytes += size
}

// addGarbage counts n bytes that nobody uses any more. They are memory until they
// are collected, and a program may have put its collector off: a part of the limit
// is collected by force. Called with mu held.
func (b *Budget) addGarbage(n int) {
	b.garbage += n
	b.collect()
}

// collect starts a collection when enough lies about, not too soon after the
// last. Called with mu held.
func (b *Budget) collect() {
	if b.garbage <= b.limit/collectFraction || b.collecting {
		return
	}
	b.collecting = true
	time.AfterFunc(collectInterval-time.Since(b.collected), func() {
		b.mu.Lock()
		old := b.garbage
		b.collected = time.Now()
		b.mu.Unlock()
		debug.FreeOSMemory()
		b.mu.Lock()
		b.garbage -= old
		b.collecting = false
		b.collect()
		b.mu.Unlock()
		b.debtPaid.Broadcast()
	})
}

// debt is what is memory though nobody uses it. Called with mu held.
func (b *Budget) debt() int { return b.leaving + b.garbage }

// NewBudget allows limit bytes.
func NewBudget(limit int) *Budget {
	b := &Budget{limit: limit, holders: map[*memory]int{}, hosts: map[string]*host{}}
	b.debtPaid.L = &b.mu
	return b
}

// AddGarbage counts n bytes of garbage beside the buffers, which are collected with
// them.
func (b *Budget) AddGarbage(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addGarbage(n)
}

// Used is how many bytes are taken.
func (b *Budget) Used() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
