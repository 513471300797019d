package codec

import "slices"

// Extension headers as encoded: id (bits 0-3), mandatory (0x10) and encoding (0x20 number, 0x40 bytes). The same id
// with another encoding is a different extension.
const (
	extUnit = 0x00
	extNum  = 0x20
	extBuf  = 0x40
	extEnc  = 0x60
	extMust = 0x10
)

// extensions walks the list after a message's fields:
//
//	for x := c.extensions(header); x.next(); {
//		switch x.id {
//		case extQoS: ... x.num
//		default: x.skip()
//		}
//	}
type extensions struct {
	c    *Cursor
	more bool
	n    int

	id  byte // id, mandatory and encoding bits
	num uint64
	buf []byte
}

func (c *Cursor) extensions(header byte) extensions {
	return extensions{c: c, more: header&flagZ != 0}
}

func (x *extensions) next() bool {
	if !x.more || x.c.err != 0 {
		return false
	}
	if x.n++; x.n > maxExtensions {
		x.c.fail(ErrRange)
		return false
	}
	h := x.c.byte()
	x.more = h&flagZ != 0
	x.id = h &^ flagZ
	x.num = 0
	x.buf = nil
	switch h & extEnc {
	case extNum:
		x.num = x.c.vle()
	case extBuf:
		x.buf = x.c.slice(maxU32)
	case extEnc:
		x.c.fail(ErrHeader)
	}
	return x.c.err == 0
}

// skip skips an extension that this reader does not support. It fails if the sender marked the extension as mandatory.
func (x *extensions) skip() {
	if x.id&extMust != 0 {
		x.c.fail(ErrExtension)
	}
}

// skipAll skips all extensions of a message for which this reader supports none.
func (c *Cursor) skipAll(header byte) {
	for x := c.extensions(header); x.next(); {
		x.skip()
	}
}

// list appends extensions to a message. dst[last] is the header byte of the message or of the last extension; adding an
// extension sets its bit "more follow".
type list struct {
	dst  []byte
	last int
}

func (l *list) add(id byte) {
	l.dst[l.last] |= flagZ
	l.last = len(l.dst)
	l.dst = append(l.dst, id)
}

func (l *list) addNum(id byte, v uint64) {
	l.add(id)
	l.dst = appendVLE(l.dst, v)
}

func (l *list) addBuf(id byte, b []byte) {
	l.add(id)
	l.dst = appendSlice(l.dst, b)
}

// begin begins an extension with bytes. The caller appends the bytes to l.dst and then calls end.
func (l *list) begin(id byte) (body int) {
	l.add(id)
	return len(l.dst)
}

// end inserts the length of the bytes appended since begin.
func (l *list) end(body int) {
	var length [9]byte
	l.dst = slices.Insert(l.dst, body, appendVLE(length[:0], uint64(len(l.dst)-body))...)
}
