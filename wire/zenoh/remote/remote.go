// Package remote holds, within bounds, the state that a remote node makes this one keep: the
// numbers that it declares for keys (Numbers), and maps that free their memory (Shrink). Client and
// router use both.
package remote

import (
	"maps"

	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
)

const (
	maxNumbers     = 4096    // numbered keys of one link
	maxNumberBytes = 1 << 20 // length of all their keys
	numberBytes    = 64      // the memory of a key beside its text
)

// Numbers holds the keys that the remote of one link has given numbers.
//
// Owner: the link's reader.
type Numbers struct {
	// Hold counts n more bytes for the remote, fewer for a negative n, and reports whether there is
	// room.
	Hold func(n int) bool

	keys   map[uint16]string
	bytes  int
	most   int // see Shrink
	joined []byte
}

// Declare notes a number for a key. Its own expression may use an earlier number. ok is false
// without room; bad is true when the expression is not a key.
func (n *Numbers) Declare(m *codec.Declare) (ok, bad bool) {
	e := m.Expr
	e.Sender = true
	key, ok := n.Key(e)
	if !ok || m.ID == 0 {
		return false, !ok
	}
	id := uint16(m.ID)
	old, known := n.keys[id]
	more := len(key) - len(old)
	if !known {
		more += numberBytes
	}
	if !known && len(n.keys) >= maxNumbers || n.bytes+more > maxNumberBytes || !n.Hold(more) {
		return false, false
	}
	if n.keys == nil {
		n.keys = map[uint16]string{}
	}
	n.keys[id] = key
	n.bytes += more
	return true, false
}

// Undeclare forgets a number.
func (n *Numbers) Undeclare(id uint16) {
	if key, known := n.keys[id]; known {
		n.bytes -= len(key) + numberBytes
		n.Hold(-len(key) - numberBytes)
		delete(n.keys, id)
		n.keys = Shrink(n.keys, &n.most)
	}
}

// Expand returns the text of an expression, lent until the next call. ok is false when its number
// was never declared or the text is too long.
//
//rt:noalloc
func (n *Numbers) Expand(e codec.Expr) (key []byte, ok bool) {
	if e.Scope == 0 {
		return e.Suffix, len(e.Suffix) > 0
	}
	// Only the remote's own numbers can occur: we declare no numbers.
	head, ok := n.keys[e.Scope]
	if !ok || !e.Sender || len(head)+len(e.Suffix) > keyexpr.MaxBytes {
		return nil, false
	}
	n.joined = append(append(n.joined[:0], head...), e.Suffix...)
	return n.joined, true
}

// Key is Expand for rare messages: it returns a checked string of its own.
func (n *Numbers) Key(e codec.Expr) (string, bool) {
	b, ok := n.Expand(e)
	if !ok || len(b) > keyexpr.MaxBytes || keyexpr.Check(string(b)) != nil {
		return "", false
	}
	return string(b), true
}

// shrinkFrom is the least length that a map must have had before shrinking it is worthwhile.
const shrinkFrom = 64

// Shrink is called after each delete from m. It returns m, or a copy when three quarters of its
// largest number of entries are deleted: a map of Go never frees memory, and entries that a remote
// undeclares are no longer counted. most is kept for the next call.
func Shrink[K comparable, V any](m map[K]V, most *int) map[K]V {
	*most = max(*most, len(m)+1)
	if *most < shrinkFrom || len(m) > *most/4 {
		return m
	}
	*most = len(m)
	less := make(map[K]V, len(m))
	maps.Copy(less, m)
	return less
}
