package wire

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// appendInt writes v in the shortest form and chooses the same types as Python's msgpack. Python writes a positive 300
// as uint16, whereas msgp would write int16.
//
//rt:noalloc
func appendInt(dst []byte, v int64) []byte {
	if v >= 0 {
		return msgp.AppendUint64(dst, uint64(v))
	}
	return msgp.AppendInt64(dst, v)
}

func appendStrings(dst []byte, list []string) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(list)))
	for _, s := range list {
		dst = msgp.AppendString(dst, s)
	}
	return dst
}

func appendTextKey(dst []byte, key, value string) []byte {
	return msgp.AppendString(msgp.AppendString(dst, key), value)
}

func appendIntKey(dst []byte, key string, value int64) []byte {
	return appendInt(msgp.AppendString(dst, key), value)
}

func appendFloatKey(dst []byte, key string, value float64) []byte {
	return msgp.AppendFloat64(msgp.AppendString(dst, key), value)
}

func appendBoolKey(dst []byte, key string, value bool) []byte {
	return msgp.AppendBool(msgp.AppendString(dst, key), value)
}

// reader reads MessagePack from an untrusted peer. It keeps the first error. After an error every method returns a zero
// value, and every count of elements is 0, so a caller needs to check err only once. Slices that it returns are part of
// the source.
type reader struct {
	b       []byte
	err     error
	at      []byte // key of the message whose value is read, for errors; nil: the message itself
	skipped int    // values skipped
}

// open begins a body, which must be a map of at most MaxMapKeys keys.
//
//rt:noalloc
func (r *reader) open(src []byte) (keys int) {
	r.b = src
	if len(src) > MaxMessageBytes {
		r.tooLarge("bytes", len(src), MaxMessageBytes)
		return 0
	}
	return r.mapHeader(MaxMapKeys)
}

// next reads a key of the message.
//
//rt:noalloc
func (r *reader) next() []byte {
	r.at = nil
	r.at = r.key()
	return r.at
}

// close returns the first error, or an error if bytes follow the message.
//
//rt:noalloc
func (r *reader) close() error {
	if r.err == nil && len(r.b) != 0 {
		r.at = nil
		r.wrong("its end")
	}
	return r.err
}

//rt:noalloc
func (r *reader) mapHeader(limit int) int {
	n, rest, err := msgp.ReadMapHeaderBytes(r.b)
	if err != nil {
		r.wrong("a map")
		return 0
	}
	return r.count(n, limit, rest)
}

//rt:noalloc
func (r *reader) arrayHeader(limit int) int {
	n, rest, err := msgp.ReadArrayHeaderBytes(r.b)
	if err != nil {
		r.wrong("a list")
		return 0
	}
	return r.count(n, limit, rest)
}

//rt:noalloc
func (r *reader) count(n uint32, limit int, rest []byte) int {
	if int64(n) > int64(limit) {
		r.tooLarge("elements", int(min(n, math.MaxInt32)), limit)
		return 0
	}
	r.b = rest
	return int(n)
}

// key reads a map key. Like Python's decoder it accepts a str and a bin.
//
//rt:noalloc
func (r *reader) key() []byte { return r.text(MaxNameBytes) }

// null consumes the next value if it is a nil, which means the field's default, and reports whether it was.
//
//rt:noalloc
func (r *reader) null() bool {
	if len(r.b) == 0 || r.b[0] != 0xc0 {
		return false
	}
	r.b = r.b[1:]
	return true
}

// int reads an integer between lo and hi, in any MessagePack form. If lo is at most 0, it reads nil as 0.
//
//rt:noalloc
func (r *reader) int(lo, hi int64) int64 {
	if lo <= 0 && r.null() {
		return 0
	}
	v, rest, err := msgp.ReadInt64Bytes(r.b)
	if err != nil || v < lo || v > hi {
		r.outside(lo, hi)
		return 0
	}
	r.b = rest
	return v
}

//rt:noalloc
func (r *reader) uint64() uint64 {
	if r.null() {
		return 0
	}
	v, rest, err := msgp.ReadUint64Bytes(r.b)
	if err != nil {
		r.wrong("an unsigned integer")
		return 0
	}
	r.b = rest
	return v
}

// optionalInt reads any 64-bit integer. For nil it returns has = false.
//
//rt:noalloc
func (r *reader) optionalInt() (has bool, v int64) {
	if r.null() {
		return false, 0
	}
	return true, r.int(math.MinInt64, math.MaxInt64)
}

//rt:noalloc
func (r *reader) optionalFloat() (has bool, v float64) {
	if r.null() {
		return false, 0
	}
	return true, r.float()
}

//rt:noalloc
func (r *reader) uint32() uint32 { return uint32(r.int(0, math.MaxUint32)) }

// float reads a finite number. It accepts integers, because a Python program may send `fps: 30` as an integer.
//
//rt:noalloc
func (r *reader) float() float64 {
	if r.null() {
		return 0
	}
	switch msgp.NextType(r.b) {
	case msgp.IntType, msgp.UintType:
		return float64(r.int(math.MinInt64, math.MaxInt64))
	}
	v, rest, err := msgp.ReadFloat64Bytes(r.b)
	if err != nil {
		r.wrong("a number")
		return 0
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		r.notFinite()
		return 0
	}
	r.b = rest
	return v
}

//rt:noalloc
func (r *reader) bool() bool {
	if r.null() {
		return false
	}
	v, rest, err := msgp.ReadBoolBytes(r.b)
	if err != nil {
		r.wrong("true or false")
		return false
	}
	r.b = rest
	return v
}

// text reads valid UTF-8 from a str or a bin; Python's decoder accepts both.
//
//rt:noalloc
func (r *reader) text(limit int) []byte {
	if r.null() {
		return nil
	}
	if len(r.b) == 0 || !isStr(r.b[0]) && !isBin(r.b[0]) {
		r.wrong("text")
		return nil
	}
	v := r.payload(limit)
	if !utf8.Valid(v) {
		r.wrong("UTF-8")
		return nil
	}
	return v
}

// data reads a bin; a str is refused, as in Python's decoder.
//
//rt:noalloc
func (r *reader) data(limit int) []byte {
	if len(r.b) == 0 || !isBin(r.b[0]) {
		r.wrong("bytes")
		return nil
	}
	return r.payload(limit)
}

func isStr(lead byte) bool { return lead&0xe0 == 0xa0 || lead >= 0xd9 && lead <= 0xdb }
func isBin(lead byte) bool { return lead >= 0xc4 && lead <= 0xc6 }

// payload returns the bytes of the next str or bin. It does not use msgp, which turns a 32-bit
// length negative on 32-bit machines.
//
//rt:noalloc
func (r *reader) payload(limit int) []byte {
	lead, b := r.b[0], r.b[1:]
	var size, n int64
	switch lead {
	case 0xc4, 0xd9:
		size = 1
	case 0xc5, 0xda:
		size = 2
	case 0xc6, 0xdb:
		size = 4
	default:
		n = int64(lead & 0x1f)
	}
	if int64(len(b)) < size {
		r.wrong("its length")
		return nil
	}
	switch size {
	case 1:
		n = int64(b[0])
	case 2:
		n = int64(binary.BigEndian.Uint16(b))
	case 4:
		n = int64(binary.BigEndian.Uint32(b))
	}
	b = b[size:]
	if n > int64(limit) {
		r.tooLarge("bytes", int(min(n, math.MaxInt32)), limit)
		return nil
	}
	if int64(len(b)) < n {
		r.wrong("all of its bytes")
		return nil
	}
	r.b = b[n:]
	return b[:n:n]
}

// skip passes over the value of an unknown key, of any kind.
//
//rt:noalloc
func (r *reader) skip(depth int) {
	if r.err != nil {
		return
	}
	if r.skipped++; r.skipped > MaxSkipped {
		r.tooLarge("values of unknown keys", r.skipped, MaxSkipped)
		return
	}
	items := 0
	switch msgp.NextType(r.b) {
	case msgp.MapType:
		items = 2 * r.elements(msgp.ReadMapHeaderBytes(r.b))
	case msgp.ArrayType:
		items = r.elements(msgp.ReadArrayHeaderBytes(r.b))
	default:
		rest, err := msgp.Skip(r.b)
		if err != nil {
			r.wrong("a whole MessagePack value")
			return
		}
		r.b = rest
	}
	if items > 0 && depth == MaxDepth {
		r.tooLarge("levels", depth+1, MaxDepth)
	}
	for ; items > 0 && r.err == nil; items-- {
		r.skip(depth + 1)
	}
}

// elements returns n, the number of elements that the message announces, as an int. It refuses a number above the
// number of remaining bytes, because each element has at least one byte.
//
//rt:noalloc
func (r *reader) elements(n uint32, rest []byte, err error) int {
	if err != nil || int64(n) > int64(len(rest)) {
		r.wrong("all of its elements")
		return 0
	}
	r.b = rest
	return int(n)
}

// strings reads a list of names into dst[:0]. It allocates: no hot path calls it.
func (r *reader) strings(dst []string, limit int) []string {
	dst = dst[:0]
	if r.null() {
		return dst
	}
	for range r.arrayHeader(MaxNames) {
		dst = append(dst, r.string(limit))
		if r.err != nil {
			return dst[:0]
		}
	}
	return dst
}

// string reads a text. It allocates: no hot path calls it.
func (r *reader) string(limit int) string { return string(r.text(limit)) }

// These functions format errors, which allocates, so they are not part of the functions that may not allocate.

//go:noinline
func (r *reader) wrong(want string) {
	got := "the end of the message"
	if len(r.b) > 0 {
		got = fmt.Sprintf("%v (0x%02x)", msgp.NextType(r.b), r.b[0])
	}
	r.refuse(got, want, ErrMalformed)
}

//go:noinline
func (r *reader) outside(lo, hi int64) { r.wrong(fmt.Sprintf("an integer in %d..%d", lo, hi)) }

//go:noinline
func (r *reader) tooLarge(what string, got, limit int) {
	r.refuse(fmt.Sprintf("%d %s", got, what), fmt.Sprintf("at most %d", limit), ErrTooLarge)
}

//go:noinline
func (r *reader) notFinite() { r.refuse("NaN or infinity", "a finite number", ErrNotFinite) }

//go:noinline
func (r *reader) shape(got, want string) { r.refuse(got, want, ErrShape) }

func (r *reader) refuse(got, want string, kind error) {
	r.fail(fmt.Errorf("wire: %q: got %s, want %s: %w", cmp.Or(string(r.at), "message"), got, want, kind))
}

// fail keeps the first error. It drops the remaining bytes, so that all loops end.
func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}
