package record

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// window keeps the newest messages in memory that is allocated once. It keeps messages that fit into a number of bytes
// and are not older than its span. New messages displace old messages, whether or not these were written to disk.
type window struct {
	span time.Duration

	mu         sync.Mutex // shared by the thread that calls put and the writing thread; held during a copy
	buf        []byte     // entries one after the other, each contiguous
	head, tail uint64     // positions of the next and of the oldest entry, in bytes put so far
	first      uint64     // number of the oldest entry
	next       uint64     // number of the next entry
}

// An entry is a header and the message, padded to 8 bytes.
const (
	entryHeader = 16 // u32 length, u16 channel, u16 unused, i64 instant
	entryAlign  = 8
	skipRest    = 1<<32 - 1 // length of an entry that has no message: the next entry is at the start of buf
)

// entrySize returns the size of a message's entry in bytes.
//
//rt:noalloc
func entrySize(message int) int {
	return (entryHeader + message + entryAlign - 1) / entryAlign * entryAlign
}

func newWindow(size int, span time.Duration) *window {
	return &window{span: span, buf: make([]byte, size/entryAlign*entryAlign)}
}

// put adds a message. It returns false if the message is larger than the whole memory.
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

// evict drops the oldest entries, until the memory has room for entries up to the position head, and until no entry
// is older than the span at the instant now.
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

// cursor is a reader's position.
type cursor struct {
	at    uint64 // position in the bytes that were put so far
	entry uint64
	batch uint64 // number of the first entry of the last read
	kept  uint64 // number of the first entry that is not on the disk
	open  uint64 // entries of the file that are not on the disk
	lost  uint64 // entries from kept on that the window dropped
}

// read copies as many whole entries as fit into the buffer room, and returns their length in bytes, 0 at the end. It
// skips an entry that is larger than this buffer and counts it as lost.
func (w *window) read(c *cursor, room []byte) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.entry < w.first {
		c.lost += w.first - min(w.first, max(c.entry, c.kept))
		c.entry = w.first
	}
	c.at = max(c.at, w.tail) // needed even if no entry was lost, since a new entry may cover the unused end of buf
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
		case c.entry < c.kept:
		case n > 0 && need > len(room)-n:
			return n
		case need > len(room):
			c.lost++
		default:
			if n == 0 {
				c.batch = c.entry
			}
			n += copy(room[n:], b[:need])
		}
		c.at += uint64(need)
		c.entry++
	}
	return n
}

// nextEntry returns the first entry in b, which read has filled, and the rest of b. ok is false
// when b is empty.
func nextEntry(b []byte) (channel uint16, at rt.Instant, message, rest []byte, ok bool) {
	if len(b) < entryHeader {
		return 0, 0, nil, nil, false
	}
	length := int(binary.LittleEndian.Uint32(b))
	return binary.LittleEndian.Uint16(b[4:]), rt.Instant(binary.LittleEndian.Uint64(b[8:])), b[entryHeader:][:length],
		b[entrySize(length):], true
}

// waits returns the number of entries that a reader has not read, including dropped entries.
func (w *window) waits(c *cursor) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next - max(c.entry, c.kept)
}

// rewind moves a reader back to the oldest entry that is not on the disk. After that, read counts lost entries again.
func (w *window) rewind(c *cursor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.at, c.entry = w.tail, min(c.entry, w.first, c.kept)
	c.open, c.lost = 0, 0
}

func (c *cursor) keep() {
	c.kept = c.entry
	c.open, c.lost = 0, 0
}

// catchUp moves a reader to the oldest entry, unless the reader is already past this entry.
func (w *window) catchUp(c *cursor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.at, c.entry = max(c.at, w.tail), max(c.entry, w.first)
	c.kept = max(c.kept, c.entry)
}
