package record

import (
	"encoding/binary"
	"sync"
	"time"

	"edgert/rt"
)

// window keeps the newest messages in memory that is allocated once: at most so many
// bytes, and none older than its span. What is old gives way to what is new, whether it
// was written to disk or not.
type window struct {
	span time.Duration

	mu         sync.Mutex // between the thread that puts and the one that writes; held for a copy
	buf        []byte     // entries one behind the other, each in one piece
	head, tail uint64     // where the next begins and the oldest does, in bytes put since the start
	first      uint64     // number of the oldest entry
	next       uint64     // number of the next
}

// An entry is a header and the message, padded to 8 bytes.
const (
	entryHeader = 16 // u32 length, u16 channel, u16 nothing, i64 instant
	entryAlign  = 8
	skipRest    = 1<<32 - 1 // a length: the next entry begins at the start of the memory
)

// entrySize is how many bytes the entry of a message takes.
//
//rt:noalloc
func entrySize(message int) int {
	return (entryHeader + message + entryAlign - 1) / entryAlign * entryAlign
}

func newWindow(size int, span time.Duration) *window {
	return &window{span: span, buf: make([]byte, size/entryAlign*entryAlign)}
}

// put adds a message; false: it is larger than all of the memory.
//
//rt:noalloc
func (w *window) put(channel uint16, at rt.Instant, message []byte) bool {
	need := uint64(entrySize(len(message)))
	size := uint64(len(w.buf))
	if need > size {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if rest := size - w.head%size; rest < need {
		w.evict(w.head+rest, at)
		binary.LittleEndian.PutUint32(w.buf[w.head%size:], skipRest)
		w.head += rest
	}
	w.evict(w.head+need, at)
	b := w.buf[w.head%size:]
	binary.LittleEndian.PutUint32(b, uint32(len(message)))
	binary.LittleEndian.PutUint16(b[4:], channel)
	binary.LittleEndian.PutUint64(b[8:], uint64(at))
	copy(b[entryHeader:], message)
	w.head += need
	w.next++
	return true
}

// evict makes room up to head, and takes away what is too old at an instant.
//
//rt:noalloc
func (w *window) evict(head uint64, now rt.Instant) {
	size := uint64(len(w.buf))
	for w.tail < w.head {
		b := w.buf[w.tail%size:]
		length := binary.LittleEndian.Uint32(b)
		if length == skipRest {
			w.tail += size - w.tail%size
			continue
		}
		if head-w.tail <= size && now.Sub(rt.Instant(binary.LittleEndian.Uint64(b[8:]))) <= w.span {
			return
		}
		w.tail += uint64(entrySize(int(length)))
		w.first++
	}
}

// cursor is how far a reader is.
type cursor struct {
	at    uint64 // in bytes put since the start
	entry uint64
	lost  uint64 // entries that gave way before they were read
}

// read copies the next entries into room, as many whole ones as there is room for, and
// returns how many bytes that are: 0 when there are no more. An entry that is larger than
// the room is passed over as lost.
func (w *window) read(c *cursor, room []byte) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.entry < w.first {
		c.lost += w.first - c.entry
		c.entry = w.first
	}
	c.at = max(c.at, w.tail) // also where nothing was lost: an entry may lie over the rest that was skipped
	size := uint64(len(w.buf))
	for c.at < w.head {
		b := w.buf[c.at%size:]
		length := binary.LittleEndian.Uint32(b)
		if length == skipRest {
			c.at += size - c.at%size
			continue
		}
		need := entrySize(int(length))
		switch {
		case need > len(room):
			c.lost++
		case need > len(room)-n:
			return n
		default:
			n += copy(room[n:], b[:need])
		}
		c.at += uint64(need)
		c.entry++
	}
	return n
}

// nextEntry takes an entry off what read has copied; ok is false at its end.
func nextEntry(b []byte) (channel uint16, at rt.Instant, message, rest []byte, ok bool) {
	if len(b) < entryHeader {
		return 0, 0, nil, nil, false
	}
	length := int(binary.LittleEndian.Uint32(b))
	return binary.LittleEndian.Uint16(b[4:]), rt.Instant(binary.LittleEndian.Uint64(b[8:])), b[entryHeader:][:length], b[entrySize(length):], true
}

// waits is how many entries a reader has not read, those among them that gave way.
func (w *window) waits(c *cursor) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next - c.entry
}

// catchUp moves a reader to the oldest entry, if that is before it.
func (w *window) catchUp(c *cursor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.at, c.entry = max(c.at, w.tail), max(c.entry, w.first)
}
