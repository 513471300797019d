package link

import (
	"math/bits"
	"sync/atomic"

	"edgert/wire/zenoh/codec"
)

// keepBytes is how large a buffer stays allocated for the next message.
const keepBytes = 4 << 20

// Budget bounds the memory of all reassembly buffers that share it.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// NewBudget allows limit bytes.
func NewBudget(limit int) *Budget { return &Budget{limit: int64(limit)} }

func (b *Budget) take(n int) bool {
	if b.used.Add(int64(n)) > b.limit {
		b.used.Add(int64(-n))
		return false
	}
	return true
}

// Used is how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// partial is a message whose fragments are still arriving on one lane.
type partial struct {
	buf    []byte
	open   bool // a first fragment was seen, none missing since
	taken  int  // of the budget
	limit  int
	budget *Budget
}

// add joins one fragment. whole is the finished message, lent until clear; lost
// is true when a message had to be given up.
func (p *partial) add(piece []byte, m codec.Lane, next, patch bool) (whole []byte, lost bool) {
	if p.open && (!next || m.First) {
		lost = true
		p.clear()
	}
	if m.First || !patch && !p.open {
		p.open = true
	}
	if !p.open {
		return nil, lost
	}
	if m.Drop {
		p.clear()
		return nil, true
	}
	if !p.append(piece) {
		p.clear()
		return nil, true
	}
	if m.More {
		return nil, lost
	}
	p.open = false
	return p.buf, lost
}

func (p *partial) append(piece []byte) bool {
	n := len(p.buf) + len(piece)
	if n > p.limit || !p.budget.take(len(piece)) {
		return false
	}
	p.taken += len(piece)
	p.buf = append(reserve(p.buf, len(piece)), piece...)
	return true
}

func (p *partial) clear() {
	p.budget.used.Add(int64(-p.taken))
	p.buf, p.open, p.taken = p.buf[:0], false, 0
	if cap(p.buf) > keepBytes {
		p.buf = nil
	}
}

// reserve makes room for n more bytes. It grows to twice the need, so that
// messages of varying size soon stop growing it.
func reserve(b []byte, n int) []byte {
	need := len(b) + n
	if need <= cap(b) {
		return b
	}
	size := need + need/4
	if need < keepBytes/2 {
		size = max(4096, 1<<bits.Len(uint(2*need-1)))
	}
	return append(make([]byte, 0, size), b...)
}
