package link

import (
	"math/bits"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// A collection starts when 1/collectFraction of the limit is garbage.
	collectFraction = 4
	// collectInterval is the shortest time between two forced collections. A remote that causes garbage must wait for
	// the next collection; it cannot make collections more frequent.
	collectInterval = 100 * time.Millisecond
	// Readers wait while more than 1/debtFraction of the limit is garbage or held by links that are ending. This is not
	// much more than the garbage that starts a collection, because a busy machine runs the collection late.
	debtFraction = 3
	// debtTimeout is the longest time for which readers wait for links that are ending. There is a limit because a
	// callback may delay the end of a link.
	debtTimeout = time.Second
	// maxIdleBytes is the size of the largest buffer that a link keeps for the next message while less than half of the
	// budget is in use.
	maxIdleBytes = 4 << 20
	// tlsBytes estimates the memory that TLS keeps for a link: the connection's state, and buffers for the longest
	// records.
	tlsBytes = 48 << 10
	// classes is the number of sizes that shared buffers may have. The sizes are powers of two.
	classes = 32
)

// Budget bounds the memory of all buffers that the remotes of a session can make grow: messages
// that are being received or assembled, or wait to be sent. It counts allocated memory, used or
// not.
//
// When it is exhausted, the budget ends links until there is room: each time the largest link of the host whose links
// together hold the most. It stops when the next such link is the link that needs the memory. So a flood ends its own
// links and no others, however many links it uses.
//
// Freed memory remains in use until it is collected, and the memory of an ended link until its goroutines have
// returned. Both are the budget's debt. Readers that need more memory wait while the debt is large.
type Budget struct {
	limit int

	// Guarded by mu.
	mu      sync.Mutex
	used    int
	leaving int // bytes that are still held by links that were ended to free memory
	holders map[*account]int
	hosts   map[string]*host // hosts with a link, by name

	free      [classes][][]byte // free buffers by size, from messages that are no longer needed
	freeBytes int

	garbage    int       // bytes freed and not collected yet
	collecting bool      // a collection runs, or is about to
	collected  time.Time // when the last collection began
	debtPaid   sync.Cond // condition on mu: the debt has become less
}

// NewBudget allows limit bytes.
func NewBudget(limit int) *Budget {
	b := &Budget{limit: limit, holders: map[*account]int{}, hosts: map[string]*host{}}
	b.debtPaid.L = &b.mu
	return b
}

// AddGarbage counts n bytes of garbage that is not in the buffers. The next collection frees it, too.
func (b *Budget) AddGarbage(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addGarbage(n)
}

// Used is the number of bytes taken.
func (b *Budget) Used() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// addGarbage counts freed bytes. A program may switch the garbage collector off, so addGarbage forces a collection when
// a fraction of the limit is garbage. Called with mu held.
func (b *Budget) addGarbage(n int) {
	b.garbage += n
	b.collect()
}

// collect starts a collection when there is enough garbage, at least collectInterval after the
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

// debt is the number of bytes that are counted but no longer used. Called with mu held.
func (b *Budget) debt() int { return b.leaving + b.garbage }

// lend returns an empty buffer with a capacity of size bytes. The caller has counted these bytes already.
func (b *Budget) lend(size int) []byte {
	if size&(size-1) != 0 {
		return make([]byte, 0, size)
	}
	c := bits.Len(uint(size)) - 1
	b.mu.Lock()
	if len(b.free[c]) > 0 {
		buf := b.popFree(c)
		b.mu.Unlock()
		return buf
	}
	for i := classes - 1; i >= 0; i-- {
		for len(b.free[i]) > 0 && b.used+b.freeBytes > b.limit {
			b.addGarbage(cap(b.popFree(i)))
		}
	}
	b.mu.Unlock()
	return make([]byte, 0, size)
}

// popFree removes and returns a free buffer of a class. Called with mu held.
func (b *Budget) popFree(class int) []byte {
	last := len(b.free[class]) - 1
	buf := b.free[class][last]
	b.free[class][last] = nil
	b.free[class] = b.free[class][:last]
	b.freeBytes -= cap(buf)
	return buf
}

// recycle stores a lent buffer for reuse.
func (b *Budget) recycle(buf []byte) {
	size := cap(buf)
	if size == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if size&(size-1) != 0 || b.used+b.freeBytes > b.limit {
		b.addGarbage(size)
		return
	}
	c := bits.Len(uint(size)) - 1
	b.free[c] = append(b.free[c], buf[:0])
	b.freeBytes += size
}

// host is a machine with links to us. Guarded by Budget.mu.
type host struct {
	name  string // see listen.Host
	links int
	held  int // bytes that all links of this host hold
}

// account is one link's part of the budget.
type account struct {
	budget *Budget
	end    func() // ends the link; called with locks held, so end must not take a lock

	// Guarded by Budget.mu.
	host    *host
	ended   bool
	leaving int // bytes that the link held when it was ended to free memory
}

// join opens the account of a new link of the named host.
func (b *Budget) join(name string, end func()) account {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.hosts[name]
	if h == nil {
		h = &host{name: name}
		b.hosts[name] = h
	}
	h.links++
	return account{budget: b, end: end, host: h}
}

// reserve counts n more bytes and reports whether there is room. It ends links until there is room: each time the
// largest link of the host whose links together hold the most. It fails when the next such link is the account's own.
func (a *account) reserve(n int) bool {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	for !a.ended && b.used+n > b.limit {
		most := a
		all := a.host.held + n
		held := b.holders[a] + n
		for h, part := range b.holders {
			total := h.host.held
			if h.host == a.host {
				total += n
			}
			if h != a && (total > all || total == all && part > held) {
				most = h
				all = total
				held = part
			}
		}
		if most == a {
			return false
		}
		// The memory of the ended link will soon be free, because its reader wakes up at once.
		most.leaving = b.holders[most]
		b.leaving += most.leaving
		most.uncount()
		most.end()
		b.debtPaid.Broadcast() // the ended link's reader may be waiting in throttle
	}
	a.count(n)
	return !a.ended
}

// force counts n bytes even when there is no room. If n is negative, it counts freed bytes as garbage, except for an
// ended link, whose memory becomes garbage in close.
func (a *account) force(n int) {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < 0 && !a.ended {
		b.addGarbage(-n)
	}
	a.count(n)
}

// charge does the same as force, but counts no garbage.
func (a *account) charge(n int) {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.count(n)
}

// count adds n to the counts of the account, its host and the budget. Called with Budget.mu held.
func (a *account) count(n int) {
	if !a.ended {
		a.budget.used += n
		a.budget.holders[a] += n
		a.host.held += n
	}
}

// uncount removes the account's bytes from the counts. Called with Budget.mu held.
func (a *account) uncount() {
	a.ended = true
	held := a.budget.holders[a]
	a.budget.used -= held
	a.host.held -= held
	delete(a.budget.holders, a)
}

// close returns everything that the account holds. When it is called, no reference to the link's buffers may remain.
func (a *account) close() {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	freed := a.leaving + b.holders[a]
	a.uncount()
	b.leaving -= a.leaving
	a.leaving = 0
	b.addGarbage(freed)
	if a.host.links--; a.host.links == 0 {
		delete(b.hosts, a.host.name)
	}
	b.debtPaid.Broadcast()
}

// recycle returns a lent buffer to the budget at the end of the link.
func (a *account) recycle(buf []byte) {
	a.budget.mu.Lock()
	part := min(a.leaving, cap(buf)) // part of these bytes may count as leaving, if the link was ended to free memory
	a.leaving -= part
	a.budget.leaving -= part
	a.count(-cap(buf))
	a.budget.mu.Unlock()
	a.budget.recycle(buf)
}

// throttle delays a reader while the debt is large, so that the debt does not grow. It waits for the end of a due
// collection, however long that takes on a busy machine. For links that are ending it waits at most debtTimeout.
func (a *account) throttle() {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.ended || b.debt() <= b.limit/debtFraction {
		return
	}
	timedOut := false
	timeout := time.AfterFunc(debtTimeout, func() {
		b.mu.Lock()
		timedOut = true
		b.mu.Unlock()
		b.debtPaid.Broadcast()
	})
	defer timeout.Stop()
	for !a.ended && b.debt() > b.limit/debtFraction && (b.collecting || !timedOut) {
		b.debtPaid.Wait()
	}
}

func (a *account) fits(n int) bool {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used+n <= b.limit
}

// keeps reports whether an idle buffer stays allocated.
func (a *account) keeps(buf []byte) bool {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return cap(buf) == 0 || cap(buf) <= maxIdleBytes && b.used <= b.limit/2
}

// grow returns buf with capacity for n more bytes. A new buffer has at least twice the needed capacity (a large one
// 1.25 times), so that messages of varying size soon need no larger one. If the budget has too little left, ok is false
// and buf is unchanged.
func (a *account) grow(buf []byte, n int) (larger []byte, ok bool) {
	need := len(buf) + n
	if need <= cap(buf) {
		return buf, true
	}
	size := need + need/4
	if need < maxIdleBytes/2 {
		size = max(4096, 1<<bits.Len(uint(2*need-1)))
	}
	if !a.fits(size - cap(buf)) {
		size = need
	}
	return a.resize(buf, size)
}

// resize moves buf into a buffer of another size.
func (a *account) resize(buf []byte, size int) ([]byte, bool) {
	if !a.reserve(size - cap(buf)) {
		return buf, false
	}
	if cap(buf) > 0 {
		a.budget.AddGarbage(cap(buf))
	}
	return append(make([]byte, 0, size), buf...), true
}

// drop empties a buffer, and frees it when it is too large to keep.
func (a *account) drop(buf []byte) []byte {
	if a.keeps(buf) {
		return buf[:0]
	}
	a.force(-cap(buf))
	return nil
}

// lend does the same as grow for shared buffers. The caller must not use buf afterwards.
func (a *account) lend(buf []byte, n int) (larger []byte, ok bool) {
	need := len(buf) + n
	if need <= cap(buf) {
		return buf, true
	}
	size := max(4096, 1<<bits.Len(uint(need-1)))
	if need < maxIdleBytes/2 && a.fits(2*size-cap(buf)) {
		size *= 2
	}
	if !a.fits(size - cap(buf)) {
		size = need
	}
	a.throttle()
	if !a.reserve(size - cap(buf)) {
		return buf, false
	}
	larger = append(a.budget.lend(size), buf...)
	a.budget.recycle(buf)
	return larger, true
}

// giveBack returns a buffer from lend to the budget, unless the link may keep it for the next
// message.
func (a *account) giveBack(buf []byte) []byte {
	if a.keeps(buf) {
		return buf[:0]
	}
	a.charge(-cap(buf))
	a.budget.recycle(buf)
	return nil
}

// Throttle delays the link's reader while much garbage waits to be collected. Code that causes garbage with each
// message of a remote calls Throttle after the message, without holding a lock.
func (l *Link) Throttle() { l.mem.throttle() }

// Charge counts n bytes that the session keeps for this link's remote beside its buffers; a
// negative n frees them. It reports whether there is room. The end of the link frees all these bytes.
func (l *Link) Charge(n int) bool {
	if n > 0 {
		return l.mem.reserve(n)
	}
	l.mem.force(n)
	return true
}
