// Package remote keeps the state that a remote node causes in this node, within bounds: the numbers that the remote
// declares for keys (Numbers), declarations by their keys (Index), the time limit of its queries (QueryTime), and maps
// that free their memory (Shrink). Both the session and the router use it.
package remote

import (
	"maps"
	"time"

	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
)

const (
	maxNumbers     = 4096    // numbered keys of one link
	maxNumberBytes = 1 << 20 // length of all numbered keys of one link
	numberBytes    = 64      // memory of a numbered key besides its text
)

// Numbers holds the keys for which the remote of one link has declared numbers.
//
// Owner: the link's reader.
type Numbers struct {
	// Hold counts n more bytes for the remote and reports whether there is room. A negative n frees bytes.
	Hold     func(n int) bool
	Counters *link.Counters // counts refused keys and numbers

	keys   map[uint16]string
	bytes  int
	most   int // see Shrink
	joined []byte
}

// Declared stores or removes a number for a key, and reports whether the declaration is about a number. An earlier
// number may be part of the key's expression.
func (n *Numbers) Declared(m *codec.Declare) bool {
	switch m.Kind {
	case codec.DeclareExpr:
		e := m.Expr
		e.Sender = true
		if key, ok := n.Key(e); ok && (m.ID == 0 || !n.declare(uint16(m.ID), key)) {
			n.Counters.Declarations.Add(1)
		}
	case codec.UndeclareExpr:
		n.undeclare(uint16(m.ID))
	default:
		return false
	}
	return true
}

// declare stores a number for a key. It returns false when there is no room.
func (n *Numbers) declare(id uint16, key string) bool {
	old, known := n.keys[id]
	more := len(key) - len(old)
	if !known {
		more += numberBytes
	}
	if !known && len(n.keys) >= maxNumbers || n.bytes+more > maxNumberBytes || !n.Hold(more) {
		return false
	}
	if n.keys == nil {
		n.keys = map[uint16]string{}
	}
	n.keys[id] = key
	n.bytes += more
	return true
}

func (n *Numbers) undeclare(id uint16) {
	if key, known := n.keys[id]; known {
		n.bytes -= len(key) + numberBytes
		n.Hold(-len(key) - numberBytes)
		delete(n.keys, id)
		n.keys = Shrink(n.keys, &n.most)
	}
}

// Expand returns the text of an expression, lent until the next call. If the expression's number was never declared, or
// the text is too long, Expand counts this in Counters.Keys and ok is false.
//
//rt:noalloc
func (n *Numbers) Expand(e codec.Expr) (key []byte, ok bool) {
	// Only the remote's own numbers can occur, because we declare no numbers.
	head := n.keys[e.Scope]
	switch {
	case e.Scope == 0 && len(e.Suffix) > 0:
		return e.Suffix, true
	case e.Scope == 0 || head == "" || !e.Sender || len(head)+len(e.Suffix) > keyexpr.MaxBytes:
		n.Counters.Keys.Add(1)
		return nil, false
	}
	n.joined = append(append(n.joined[:0], head...), e.Suffix...)
	return n.joined, true
}

// Key does the same as Expand, for rare messages. It checks the key and returns a copy.
func (n *Numbers) Key(e codec.Expr) (string, bool) {
	b, ok := n.Expand(e)
	if !ok {
		return "", false
	}
	if len(b) > keyexpr.MaxBytes || keyexpr.Check(string(b)) != nil {
		n.Counters.Keys.Add(1)
		return "", false
	}
	return string(b), true
}

// OptionalKey does the same as Key for an expression that may be absent. For an absent expression it returns "" and
// true.
func (n *Numbers) OptionalKey(e codec.Expr) (string, bool) {
	if e.Scope == 0 && len(e.Suffix) == 0 {
		return "", true
	}
	return n.Key(e)
}

// Times of a query: the time that queryables have if the querier sets no timeout, the longest timeout, and the extra
// time before a query is ended.
const (
	defaultQueryTime = 10 * time.Second
	maxQueryTime     = time.Hour
	queryGrace       = time.Second
)

// QueryTime returns the time after which an unfinished query is ended.
func QueryTime(m *codec.Request) time.Duration {
	if m.TimeoutMS == 0 {
		return defaultQueryTime + queryGrace
	}
	return time.Duration(min(m.TimeoutMS, uint64(maxQueryTime.Milliseconds())))*time.Millisecond + queryGrace
}

// Kinds are the kinds of declarations in an Index, in the order of its trees.
var Kinds = [...]codec.DeclareKind{codec.DeclareSubscriber, codec.DeclareQueryable, codec.DeclareToken}

// Index holds entries of each kind by their keys.
type Index[E any] struct {
	trees [len(Kinds)]keyexpr.Tree[E]
	found []E
}

// Tree returns the entries of a kind.
func (x *Index[E]) Tree(kind codec.DeclareKind) *keyexpr.Tree[E] { return &x.trees[kind/2-1] }

// Matches lends the entries of a kind that intersect key until the next call. For the key "" it lends all entries of
// the kind.
func (x *Index[E]) Matches(kind codec.DeclareKind, key string) []E {
	if key == "" {
		x.found = x.Tree(kind).AppendAll(x.found[:0])
	} else {
		x.found = x.Tree(kind).AppendMatches(x.found[:0], key)
	}
	return x.found
}

// shrinkFrom is the number of entries that a map must have reached before Shrink copies it.
const shrinkFrom = 64

// Shrink is called after each delete from m. It returns m, or a copy if m has at most a quarter of its largest number
// of entries. Without the copy, a Go map would never free the memory of entries that the budget no longer counts.
// Between calls, *most holds the largest number of entries.
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
