package link

import (
	"math/bits"
	"runtime"
	"sync"
)

// keepBytes is how large a buffer stays allocated for the next message, as long
// as less than half of the budget is taken.
const keepBytes = 4 << 20

// Budget bounds the memory of all buffers that the remotes of a session can make
// grow: what is being received, put together, or waits to be sent. It counts
// what is allocated, not what is in use.
//
// When it is exhausted the links that hold the most are ended, unless that is the
// one that asks: a flood hurts itself and not the others.
type Budget struct {
	limit int

	mu      sync.Mutex
	used    int             // guarded by mu
	holders map[*memory]int // guarded by mu

	spare  [classes][][]byte // buffers of ended messages, by size; guarded by mu
	spared int               // bytes of them; guarded by mu

	garbage    int  // given back and not collected yet; guarded by mu
	collecting bool // guarded by mu
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
// are collected, and a program may have put its collector off: half of the limit
// is collected by force. Called with mu held.
func (b *Budget) discard(n int) {
	if b.garbage += n; b.garbage <= b.limit/2 || b.collecting {
		return
	}
	b.garbage, b.collecting = 0, true
	go func() {
		runtime.GC()
		b.mu.Lock()
		b.collecting = false
		b.mu.Unlock()
	}()
}

// NewBudget allows limit bytes.
func NewBudget(limit int) *Budget { return &Budget{limit: limit, holders: map[*memory]int{}} }

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
		most.forget()
		most.end()
	}
	m.count(n)
	return !m.ended
}

// forget gives everything back for good. Called with Budget.mu held.
func (m *memory) forget() {
	m.ended = true
	m.budget.used -= m.budget.holders[m]
	m.budget.discard(m.budget.holders[m])
	delete(m.budget.holders, m)
}

// release is the end of the link.
func (m *memory) release() {
	m.budget.mu.Lock()
	defer m.budget.mu.Unlock()
	m.forget()
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
