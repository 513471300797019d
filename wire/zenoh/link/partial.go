package link

import (
	"time"

	"edgert/wire/zenoh/codec"
)

// fragmentTimeout is how long a message may take from its first fragment to its last.
const fragmentTimeout = 30 * time.Second

// partial is a message whose fragments are still arriving on one lane.
type partial struct {
	buf   []byte
	open  bool      // a first fragment was seen, none missing since
	since time.Time // when
	limit int
	mem   *memory
}

// add joins one fragment. whole is the finished message, lent until clear; lost
// is true when a message had to be given up.
func (p *partial) add(piece []byte, m codec.Lane, next, patch bool) (whole []byte, lost bool) {
	if p.open && (!next || m.First) {
		lost = true
		p.clear()
	}
	if m.First || !patch && !p.open {
		p.open, p.since = true, time.Now()
	}
	if !p.open {
		return nil, lost
	}
	if m.Drop || !p.append(piece) {
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
	if len(p.buf)+len(piece) > p.limit {
		return false
	}
	roomier, ok := p.mem.lend(p.buf, len(piece))
	if ok {
		p.buf = append(roomier, piece...)
	}
	return ok
}

func (p *partial) clear() { p.buf, p.open = p.mem.giveBack(p.buf), false }

// expired reports whether the rest of a message has not come in time.
func (p *partial) expired(now time.Time) bool { return p.open && now.Sub(p.since) > fragmentTimeout }
