package link

import (
	"math/bits"
	"net"
	"time"
)

// maxIdleBytes is how large a buffer stays allocated for the next message, as long
// as less than half of the budget is taken.
const maxIdleBytes = 4 << 20

// tlsBytes is about what TLS keeps for a link: its state, and the buffers of
// the longest records.
const tlsBytes = 48 << 10

// throttle holds a reader up while there is much debt, so that it grows no
// further: until a collection that is due has ended, however long that takes on a
// busy machine, and for links that are ending at most debtTimeout.
func (m *memory) throttle() {
	b := m.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.ended || b.debt() <= b.limit/debtFraction {
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
	for !m.ended && b.debt() > b.limit/debtFraction && (b.collecting || !timedOut) {
		b.debtPaid.Wait()
	}
}

// Throttle holds the link's reader up while much garbage waits to be collected. Who
// makes a remote's messages into garbage calls it behind each, without a lock.
func (l *Link) Throttle() { l.mem.throttle() }

// Host names the machine behind an address, for what all its links together
// take: the address without its port; of IPv6 the network of 64 bits, any
// address of which a machine may have; nothing for a unix socket.
func Host(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return ""
	}
	if ip := tcp.IP.To4(); ip != nil {
		return string(ip)
	}
	return string(tcp.IP.Mask(net.CIDRMask(64, 128)))
}

// Charge counts n bytes that the session keeps for this link's remote beside its
// buffers, fewer for a negative n. It reports whether there is room; the end of
// the link gives everything back.
func (l *Link) Charge(n int) bool {
	if n > 0 {
		return l.mem.take(n)
	}
	l.mem.force(n)
	return true
}

// host is a machine with links to us.
type host struct {
	links int
	held  int // bytes that all of them hold
}

// memory is one link's part of the budget.
type memory struct {
	budget  *Budget
	end     func() // ends the link; called with locks held, must take none
	hostKey string // see Host
	host    *host  // whose fields Budget.mu guards
	ended   bool   // guarded by Budget.mu
	leaving int    // bytes that it held when it was ended for them; guarded by Budget.mu
}

// join is a new link's part of the budget. from names its host.
func (b *Budget) join(from string, end func()) memory {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.hosts[from]
	if h == nil {
		h = new(host)
		b.hosts[from] = h
	}
	h.links++
	return memory{budget: b, end: end, hostKey: from, host: h}
}

// take counts n bytes more. When they do not fit, links are ended until they do,
// or until this one holds the most: of the host whose links hold the most, the
// one that does.
func (m *memory) take(n int) bool {
	b := m.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	for !m.ended && b.used+n > b.limit {
		most, all, held := m, m.host.held+n, b.holders[m]+n
		for h, part := range b.holders {
			total := h.host.held
			if h.host == m.host {
				total += n
			}
			if h != m && (total > all || total == all && part > held) {
				most, all, held = h, total, part
			}
		}
		if most == m {
			return false
		}
		// Its memory is as good as free: its reader wakes up at once.
		most.leaving = b.holders[most]
		b.leaving += most.leaving
		most.uncount()
		most.end()
		b.debtPaid.Broadcast() // it may be waiting itself
	}
	m.count(n)
	return !m.ended
}

// uncount counts nothing for it any more. Called with Budget.mu held.
func (m *memory) uncount() {
	m.ended = true
	held := m.budget.holders[m]
	m.budget.used -= held
	m.host.held -= held
	delete(m.budget.holders, m)
}

// release is the end of the link, whose buffers nobody reaches any more.
func (m *memory) release() {
	b := m.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	gone := m.leaving + b.holders[m]
	m.uncount()
	b.leaving -= m.leaving
	m.leaving = 0
	b.addGarbage(gone)
	if m.host.links--; m.host.links == 0 {
		delete(b.hosts, m.hostKey)
	}
	b.debtPaid.Broadcast()
}

// force counts n bytes whether or not there is room, fewer for a negative n. What
// an ended link held is garbage once, as a whole: see release.
func (m *memory) force(n int) {
	b := m.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < 0 && !m.ended {
		b.addGarbage(-n)
	}
	m.count(n)
}

// recycle gives a lent buffer back at the end of the link.
func (m *memory) recycle(buf []byte) {
	m.budget.mu.Lock()
	gone := min(m.leaving, cap(buf)) // of what is leaving, when the link was ended for it
	m.leaving -= gone
	m.budget.leaving -= gone
	m.count(-cap(buf))
	m.budget.mu.Unlock()
	m.budget.recycle(buf)
}

// charge is force without garbage.
func (m *memory) charge(n int) {
	m.budget.mu.Lock()
	defer m.budget.mu.Unlock()
	m.count(n)
}

// count is called with Budget.mu held.
func (m *memory) count(n int) {
	if !m.ended {
		m.budget.used += n
		m.budget.holders[m] += n
		m.host.held += n
	}
}

func (m *memory) fits(n int) bool {
	b := m.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used+n <= b.limit
}

// hasSlack reports whether an idle buffer may be kept.
func (m *memory) hasSlack() bool {
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
	if need < maxIdleBytes/2 {
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
	if need < maxIdleBytes/2 && m.fits(2*size-cap(b)) {
		size *= 2
	}
	if !m.fits(size - cap(b)) {
		size = need
	}
	m.throttle()
	if !m.take(size - cap(b)) {
		return b, false
	}
	roomier = append(m.budget.lend(size), b...)
	m.budget.recycle(b)
	return roomier, true
}

// giveBack is the end of lend, unless the buffer may be kept for the next.
func (m *memory) giveBack(b []byte) []byte {
	if cap(b) == 0 || cap(b) <= maxIdleBytes && m.hasSlack() {
		return b[:0]
	}
	m.charge(-cap(b))
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
		m.budget.addGarbage(cap(b))
		m.budget.mu.Unlock()
	}
	return append(make([]byte, 0, size), b...), true
}

// drop empties a buffer, and frees one that is too large to keep.
func (m *memory) drop(b []byte) []byte {
	if b == nil || cap(b) <= maxIdleBytes && m.hasSlack() {
		return b[:0]
	}
	m.force(-cap(b))
	return nil
}
