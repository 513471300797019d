// Package codec is the Zenoh 1.x wire format (protocol version 0x09): bytes to messages and back,
// without sessions, sockets or time.
//
// A TCP stream carries batches. A batch follows its length in bytes, a little-endian uint16. A batch holds transport
// messages, one after the other (Init and Open during the handshake, then Frame, Fragment, KeepAlive, Close). Network
// messages follow a Frame (Push, Request, Response, Declare, Interest), and a Push or a Request ends in a body (Put,
// Del, Query). Every message is one header byte, its fields, and a list of optional extensions. A flag in each
// extension decides whether a reader that does not support it may continue.
//
// Parsing borrows: all slices of a parsed message point into the batch. Every length is checked against the present
// bytes before a slice is made, and the size of an allocation never comes from the sender.
//
// Source: the crate zenoh-codec of eclipse-zenoh/zenoh; checked against the official versions 1.7.2, 1.9.0 and 1.10.2.
package codec

import "unicode/utf8"

// version is the protocol version of every 1.x release.
const version = 0x09

// Limits of the values that a conforming sender can use. The codec refuses a larger number with
// ErrRange even where the official code truncates silently.
const (
	maxKey        = 1024    // bytes of a key expression; the wire allows 65535
	maxCookie     = 4096    // bytes
	maxSchema     = 255     // bytes of an encoding's schema
	maxParameters = 1 << 16 // bytes of a query's parameters
	maxExtensions = 16      // extensions in one list
	maxZID        = 16      // bytes

	maxU16 = 1<<16 - 1
	maxU32 = 1<<32 - 1
)

// Error is the reason why bytes are not a message. It is one byte, so that returning it does not allocate.
type Error uint8

// The kinds of malformed input.
const (
	ErrShort     Error = 1 + iota // the message ends in the middle of a field
	ErrRange                      // a number is larger than its field allows
	ErrText                       // a string is not UTF-8
	ErrExtension                  // an extension that the reader must support, and does not
	ErrHeader                     // an unknown message or body id
	ErrVersion                    // not protocol version 9
	ErrZID                        // an all-zero node id
)

var errorText = [...]string{
	"zenoh: no error",
	"zenoh: message ends in the middle of a field",
	"zenoh: number out of range",
	"zenoh: text is not UTF-8",
	"zenoh: unknown extension marked mandatory",
	"zenoh: unknown message id",
	"zenoh: protocol version is not 9",
	"zenoh: node id is zero",
}

func (e Error) Error() string { return errorText[e] }

// Header bits common to all messages.
const (
	flagZ  = 0x80 // extensions follow
	idMask = 0x1f
)

// Cursor reads a batch from front to back, in place. After the first malformed field, all reads return zero values and
// Err returns the cause, so a parser needs to check Err only at its end.
type Cursor struct {
	b   []byte
	err Error
}

// NewCursor returns a cursor on b. Everything that is parsed with it refers to the memory of b.
func NewCursor(b []byte) Cursor { return Cursor{b: b} }

// Err returns the first failure, or nil.
func (c *Cursor) Err() error {
	if c.err == 0 {
		return nil
	}
	return c.err
}

func (c *Cursor) fail(e Error) {
	if c.err == 0 {
		c.err = e
	}
	c.b = nil
}

// check copies the error of another cursor, part, which reads some of c's bytes, to c.
func (c *Cursor) check(part *Cursor) {
	if part.err != 0 {
		c.fail(part.err)
	}
}

// Peek returns the next byte without consuming it. At the end of the batch ok is false.
func (c *Cursor) Peek() (b byte, ok bool) {
	if len(c.b) == 0 {
		return 0, false
	}
	return c.b[0], true
}

// Rest consumes and lends all remaining bytes.
func (c *Cursor) Rest() []byte {
	b := c.b
	c.b = nil
	return b
}

func (c *Cursor) byte() byte {
	if len(c.b) == 0 {
		c.fail(ErrShort)
		return 0
	}
	b := c.b[0]
	c.b = c.b[1:]
	return b
}

// vle reads Zenoh's variable-length integer: seven bits in each byte, least significant first, except that a ninth byte
// has eight bits. The varint of encoding/binary has no such exception.
func (c *Cursor) vle() uint64 {
	var v uint64
	for i := range 8 {
		if i == len(c.b) {
			c.fail(ErrShort)
			return 0
		}
		b := c.b[i]
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			c.b = c.b[i+1:]
			return v
		}
	}
	if len(c.b) == 8 {
		c.fail(ErrShort)
		return 0
	}
	v |= uint64(c.b[8]) << 56
	c.b = c.b[9:]
	return v
}

func (c *Cursor) bounded(limit uint64) uint64 {
	v := c.vle()
	if v > limit {
		c.fail(ErrRange)
		return 0
	}
	return v
}

func (c *Cursor) u32() uint32 { return uint32(c.bounded(maxU32)) }
func (c *Cursor) u16() uint16 { return uint16(c.bounded(maxU16)) }

func (c *Cursor) take(n int) []byte {
	if n > len(c.b) {
		c.fail(ErrShort)
		return nil
	}
	b := c.b[:n:n]
	c.b = c.b[n:]
	return b
}

// slice reads a length and lends that number of bytes, which is at most limit.
func (c *Cursor) slice(limit uint64) []byte { return c.take(int(c.bounded(limit))) }

func (c *Cursor) text(limit uint64) []byte {
	b := c.slice(limit)
	if !utf8.Valid(b) {
		c.fail(ErrText)
		return nil
	}
	return b
}

// appendVLE appends v as a variable-length integer of one to nine bytes.
//
//rt:noalloc
func appendVLE(dst []byte, v uint64) []byte {
	for i := 0; v > 0x7f && i < 8; i++ {
		dst = append(dst, byte(v)|0x80)
		v >>= 7
	}
	return append(dst, byte(v))
}

func appendSlice(dst, b []byte) []byte {
	return append(appendVLE(dst, uint64(len(b))), b...)
}
