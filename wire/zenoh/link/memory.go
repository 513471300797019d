package link

import (
	"math/bits"
	"runtime/debug"
	"sync"
	"time"
)

// keepBytes is how large a buffer stays allocated for the next message, as long
// as less than half of the budget is taken.
const keepBytes = 4 << 20

const (
	// collectPart of the limit may lie about as garbage before it is collected.
	collectPart = 4
	// debtPart of the limit may be garbage, or held by links that are ending,
	// before readers wait for it to go.
	debtPart = 2
	// debtPatience is how long they wait at most: a callback may hold a link up.
	debtPatience = time.Second
)

// Budget bounds the memory of all buffers that the remotes of a session can make
// grow: what is being received, put together, or waits to be sent. It counts
// what is allocated, not what is in use.
//
// When it is exhausted the links that hold the most are ended, unless that is the
// one that asks: a flood hurts itself and not the others.
//
// What is given back is memory until it is collected, and what an ended link held
// until its goroutines have noticed. Both are the budget's debt: readers that
// want more wait while it is large.
type Budget struct {
	limit int

	mu      sync.Mutex
	used    int             // guarded by mu
	leaving int             // held by links that were ended for it; guarded by mu
	holders map[*memory]int // guarded by mu

	spare  [classes][][]byte // buffers of ended messages, by size; guarded by mu
	spared int               // bytes of them; guarded by mu

	garbage    int       // given back and not collected yet; guarded by mu
	collecting bool      // guarded by mu
	paid       sync.Cond // on mu: the debt became less
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
		b.spared -= size
		b.mu.Unlock()
		return buf
	}
	for i := classes - 1; i >= 0 && b.used+b.spared > b.limit; i-- {
		for n := len(b.spare[i]); n > 0 && b.used+b.spared > b.limit; n-- {
			b.spared -= cap(b.spare[i][n-1])
			b.discard(cap(b.spare[i][n-1]))
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
	if size&(size-1) != 0 || b.used+b.spared > b.limit {
		b.discard(size)
		return
	}
	c := bits.Len(uint(size)) - 1
	b.spare[c] = append(b.spare[c], buf[:0])
	b.spared += size
}

// discard notes n bytes that nobody uses any more. They are memory until they
// are collected, and a program may have put its collector off: a part of the limit
// is collected by force. Called with mu held.
func (b *Budget) discard(n int) {
	b.garbage += n
	b.collect()
}

// collect starts a collection when enough lies about. Called with mu held.
func (b *Budget) collect() {
	if b.garbage <= b.limit/collectPart || b.collecting {
		return
	}
	b.collecting = true
	old := b.garbage
	go func() {
		debug.FreeOSMemory()
		b.mu.Lock()
		b.garbage -= old
		b.collecting = false
		b.collect()
		b.mu.Unlock()
		b.paid.Broadcast()
	}()
}

// debt is what is memory though nobody uses it. Called with mu held.
func (b *Budget) debt() int { return b.leaving + b.garbage }

// await holds a reader up while there is much debt, for it to grow no further.
func (m *memory) await() {
	b := m.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.ended || b.debt() <= b.limit/debtPart {
		return
	}
	over := false
	patience := time.AfterFunc(debtPatience, func() {
		b.mu.Lock()
		over = true
		b.mu.Unlock()
		b.paid.Broadcast()
	})
	defer patience.Stop()
	for !over && !m.ended && b.debt() > b.limit/debtPart {
		b.paid.Wait()
	}
}

// NewBudget allows limit bytes.
func NewBudget(limit int) *Budget {
	b := &Budget{limit: limit, holders: map[*memory]int{}}
	b.paid.L = &b.mu
	return b
}

// Discard notes n bytes of garbage beside the buffers, which are collected with
// them.
func (b *Budget) Discard(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.discard(n)
}

// Used is how many bytes are taken.
func (b *Budget) Used() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Hold counts n bytes that the session keeps for this link's remote beside its
// buffers, fewer for a negative n. It reports whether there is room; the end of
// the link gives everything back.
func (l *Link) Hold(n int) bool {
	if n > 0 {
		return l.mem.take(n)
	}
	l.mem.force(n)
	return true
}

// memory is one link's part of the budget.
type memory struct {
	budget *Budget
	end    func() // ends the link; called with locks held, must take none
	ended  bool   // guarded by Budget.mu
	left   int    // bytes that it held when it was ended for them; guarded by Budget.mu
}

// take counts n bytes more. When they do not fit, the links that hold more than
// this one then would are ended, the largest first, until they do.
func (m *memory) take(n int) bool {
	b := m.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	for !m.ended && b.used+n > b.limit {
		most, held := m, b.holders[m]+n
		for h, n := range b.holders {
			if n > held {
				most, held = h, n
			}
		}
		if most == m {
			return false
		}
		// Its memory is as good as free: its reader wakes up at once.
		most.left = b.holders[most]
		b.leaving += most.left
		most.forget()
		most.end()
		b.paid.Broadcast() // it may be waiting itself
	}
	m.count(n)
	return !m.ended
}

// forget counts nothing for it any more. Called with Budget.mu held.
func (m *memory) forget() {
	m.ended = true
	m.budget.used -= m.budget.holders[m]
	delete(m.budget.holders, m)
}

// release is the end of the link, whose buffers nobody reaches any more.
func (m *memory) release() {
	b := m.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	gone := m.left + b.holders[m]
	m.forget()
	b.leaving -= m.left
	m.left = 0
	b.discard(gone)
	b.paid.Broadcast()
}

// force counts n bytes whether or not there is room, fewer for a negative n.
func (m *memory) force(n int) {
	b := m.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < 0 {
		b.discard(-n)
	}
	m.count(n)
}

// recycle gives a lent buffer back at the end of the link.
func (m *memory) recycle(buf []byte) {
	m.budget.mu.Lock()
	gone := min(m.left, cap(buf)) // of what is leaving, when the link was ended for it
	m.left -= gone
	m.budget.leaving -= gone
	m.count(-cap(buf))
	m.budget.mu.Unlock()
	m.budget.recycle(buf)
}

// settle is force without garbage.
func (m *memory) settle(n int) {
	m.budget.mu.Lock()
	defer m.budget.mu.Unlock()
	m.count(n)
}

// count is called with Budget.mu held.
func (m *memory) count(n int) {
	if !m.ended {
		m.budget.used += n
		m.budget.holders[m] += n
	}
}

func (m *memory) fits(n int) bool {
	b := m.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used+n <= b.limit
}

// roomy reports whether an idle buffer may be kept.
func (m *memory) roomy() bool {
	b := m.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used <= b.limit/2
}

// reserve makes room for n more bytes. It grows to twice the need, so that
// messages of varying size soon stop growing it; ok is false when the budget has
// no room for that, and b is as it was.
func (m *memory) reserve(b []byte, n int) (roomier []byte, ok bool) {
	need := len(b) + n
	if need <= cap(b) {
		return b, true
	}
	size := need + need/4
	if need < keepBytes/2 {
		size = max(4096, 1<<bits.Len(uint(2*need-1)))
	}
	if !m.fits(size - cap(b)) {
		size = need
	}
	return m.resize(b, size)
}

// lend is reserve in buffers that are shared: nobody may look at b afterwards.
func (m *memory) lend(b []byte, n int) (roomier []byte, ok bool) {
	need := len(b) + n
	if need <= cap(b) {
		return b, true
	}
	size := max(4096, 1<<bits.Len(uint(need-1)))
	if need < keepBytes/2 && m.fits(2*size-cap(b)) {
		size *= 2
	}
	if !m.fits(size - cap(b)) {
		size = need
	}
	m.await()
	if !m.take(size - cap(b)) {
		return b, false
	}
	roomier = append(m.budget.lend(size), b...)
	m.budget.recycle(b)
	return roomier, true
}

// giveBack is the end of lend, unless the buffer may be kept for the next.
func (m *memory) giveBack(b []byte) []byte {
	if cap(b) == 0 || cap(b) <= keepBytes && m.roomy() {
		return b[:0]
	}
	m.settle(-cap(b))
	m.budget.recycle(b)
	return nil
}

// resize moves b into a buffer of another size.
func (m *memory) resize(b []byte, size int) ([]byte, bool) {
	if !m.take(size - cap(b)) {
		return b, false
	}
	if cap(b) > 0 {
		m.budget.mu.Lock()
		m.budget.discard(cap(b))
		m.budget.mu.Unlock()
	}
	return append(make([]byte, 0, size), b...), true
}

// drop empties a buffer, and frees one that is too large to keep.
func (m *memory) drop(b []byte) []byte {
	if b == nil || cap(b) <= keepBytes && m.roomy() {
		return b[:0]
	}
	m.force(-cap(b))
	return nil
}
