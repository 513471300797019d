package keyexpr

import (
	"slices"
	"strings"
)

// Tree holds values by key expression and finds the values whose expressions intersect a query. The time of a lookup
// depends on its results, not on the size of the tree, except that chunks with $* are tried one by one.
//
// A lookup visits each pair of a node and a position in the query at most once, so hostile chains of ** take time at
// most proportional to the product of the two sizes. Lookups share the tree's scratch space, so a lookup needs the same
// lock as a change.
type Tree[T any] struct {
	root  node[T]
	len   int
	nodes int
	text  int

	query  chunks
	lookup uint64 // number of the present lookup
	found  []T
}

// node is one chunk of one or more stored expressions.
type node[T any] struct {
	parent *node[T]
	chunk  string
	place  int // index in the parent's slice plain or globs

	plain []*node[T]          // children without wildcards
	index map[string]*node[T] // the same children by chunk; only if there are many
	globs []*node[T]          // children with $*
	star  *node[T]            // child *
	any   *node[T]            // child **
	peak  int                 // largest number of children since memory was last freed

	value T
	set   bool

	lookup uint64    // number of the last lookup that visited the node
	seen   [2]uint64 // bits of those positions in the query at which the present lookup has visited the node
}

// linearMax is the largest number of children that child searches one by one, without a map.
const linearMax = 8

// Len is the number of expressions with a value.
func (t *Tree[T]) Len() int { return t.len }

// Nodes is the number of stored chunks. Expressions with a common beginning share its chunks.
func (t *Tree[T]) Nodes() int { return t.nodes }

// Text is the size of the stored chunks together, in bytes.
func (t *Tree[T]) Text() int { return t.text }

// Put sets the value of an expression that has passed Check.
func (t *Tree[T]) Put(key string, v T) {
	n := &t.root
	for rest, more := key, true; more; {
		var chunk string
		chunk, rest, more = strings.Cut(rest, "/")
		c := n.child(chunk)
		if c == nil {
			c = &node[T]{parent: n, chunk: strings.Clone(chunk)}
			n.addChild(c)
			t.nodes++
			t.text += len(chunk)
		}
		n = c
	}
	if !n.set {
		t.len++
	}
	n.value, n.set = v, true
}

// Get returns the value of exactly this expression.
func (t *Tree[T]) Get(key string) (v T, ok bool) {
	if n := t.find(key); n != nil {
		return n.value, n.set
	}
	return v, false
}

// Delete removes an expression.
func (t *Tree[T]) Delete(key string) {
	n := t.find(key)
	if n == nil || !n.set {
		return
	}
	var none T
	n.value, n.set = none, false
	t.len--
	for n.parent != nil && n.empty() {
		n.parent.removeChild(n)
		t.nodes--
		t.text -= len(n.chunk)
		n = n.parent
	}
}

func (t *Tree[T]) find(key string) *node[T] {
	n := &t.root
	for rest, more := key, true; more && n != nil; {
		var chunk string
		chunk, rest, more = strings.Cut(rest, "/")
		n = n.child(chunk)
	}
	return n
}

// AppendAll appends the values of all expressions.
func (t *Tree[T]) AppendAll(dst []T) []T { return t.root.appendAll(dst) }

func (n *node[T]) appendAll(dst []T) []T {
	if n == nil {
		return dst
	}
	if n.set {
		dst = append(dst, n.value)
	}
	for _, c := range n.plain {
		dst = c.appendAll(dst)
	}
	for _, c := range n.globs {
		dst = c.appendAll(dst)
	}
	return n.any.appendAll(n.star.appendAll(dst))
}

// AppendMatches appends the value of every expression that intersects key, each
// once. An expression beyond the limits of Check intersects nothing.
//
//rt:noalloc
func (t *Tree[T]) AppendMatches(dst []T, key string) []T {
	if len(key) > MaxBytes || !t.query.cut(key) {
		return dst
	}
	t.lookup++
	t.found = dst
	t.visit(&t.root, 0)
	dst, t.found = t.found, nil
	return dst
}

// visit continues a lookup at a node to which the first i chunks of the query have led. It evaluates the same
// recurrence as match, but from the beginning.
func (t *Tree[T]) visit(n *node[T], i int) {
	if n.lookup != t.lookup {
		n.lookup, n.seen = t.lookup, [2]uint64{}
	}
	if n.seen[i>>6]&(1<<(i&63)) != 0 {
		return
	}
	n.seen[i>>6] |= 1 << (i & 63)
	if i == t.query.n && n.set {
		t.found = append(t.found, n.value)
	}
	if n.any != nil {
		t.visit(n.any, i)
	}
	if i == t.query.n {
		return
	}
	chunk := t.query.s[i]
	switch {
	case chunk == "**":
		t.visit(n, i+1)
		t.visitWild(n, chunk, i)
		return
	case isVerbatim(chunk):
		if c := n.child(chunk); c != nil {
			t.visit(c, i+1)
		}
		return
	}
	if n.parent != nil && n.parent.any == n {
		t.visit(n, i+1)
	}
	if HasWildcard(chunk) {
		t.visitWild(n, chunk, i+1)
		return
	}
	if c := n.child(chunk); c != nil {
		t.visit(c, i+1)
	}
	if n.star != nil {
		t.visit(n.star, i+1)
	}
	for _, c := range n.globs {
		if chunkMatch(c.chunk, chunk, false) {
			t.visit(c, i+1)
		}
	}
}

// visitWild visits the children that match a chunk with a wildcard. The parameter next is the position in the query at
// which it visits them.
func (t *Tree[T]) visitWild(n *node[T], chunk string, next int) {
	everything := chunk == "**" || chunk == "*"
	for _, c := range n.plain {
		if !isVerbatim(c.chunk) && (everything || chunkMatch(chunk, c.chunk, false)) {
			t.visit(c, next)
		}
	}
	for _, c := range n.globs {
		if everything || chunkMatch(chunk, c.chunk, false) {
			t.visit(c, next)
		}
	}
	if n.star != nil {
		t.visit(n.star, next)
	}
}

// child returns the child for exactly this chunk, or nil.
func (n *node[T]) child(chunk string) *node[T] {
	switch {
	case chunk == "*":
		return n.star
	case chunk == "**":
		return n.any
	case !isVerbatim(chunk) && HasWildcard(chunk):
		return findChunk(n.globs, chunk)
	case n.index != nil:
		return n.index[chunk]
	}
	return findChunk(n.plain, chunk)
}

func findChunk[T any](nodes []*node[T], chunk string) *node[T] {
	for _, c := range nodes {
		if c.chunk == chunk {
			return c
		}
	}
	return nil
}

func (n *node[T]) addChild(c *node[T]) {
	switch {
	case c.chunk == "*":
		n.star = c
	case c.chunk == "**":
		n.any = c
	case !isVerbatim(c.chunk) && HasWildcard(c.chunk):
		c.place = len(n.globs)
		n.globs = append(n.globs, c)
	default:
		c.place = len(n.plain)
		n.plain = append(n.plain, c)
		if n.index != nil {
			n.index[c.chunk] = c
		} else {
			n.reindex()
		}
	}
}

// reindex makes the map of the children without wildcards if there are many.
func (n *node[T]) reindex() {
	if n.index = nil; len(n.plain) > linearMax {
		n.index = make(map[string]*node[T], len(n.plain))
		for _, p := range n.plain {
			n.index[p.chunk] = p
		}
	}
}

func (n *node[T]) removeChild(c *node[T]) {
	n.peak = max(n.peak, len(n.plain)+len(n.globs))
	defer n.shrink()
	switch {
	case c.chunk == "*":
		n.star = nil
	case c.chunk == "**":
		n.any = nil
	case !isVerbatim(c.chunk) && HasWildcard(c.chunk):
		n.globs = swapRemove(n.globs, c)
	default:
		n.plain = swapRemove(n.plain, c)
		if n.index != nil {
			delete(n.index, c.chunk)
			if len(n.plain) == 0 {
				n.index = nil
			}
		}
	}
}

// shrink copies the children into smaller slices and maps when three quarters of them have been deleted. Slices and
// maps never free memory by themselves.
func (n *node[T]) shrink() {
	left := len(n.plain) + len(n.globs)
	if n.peak < 8*linearMax || left > n.peak/4 {
		return
	}
	n.peak = left
	n.plain, n.globs = slices.Clip(slices.Clone(n.plain)), slices.Clip(slices.Clone(n.globs))
	n.reindex()
}

// swapRemove removes c by putting the last child in its place.
func swapRemove[T any](nodes []*node[T], c *node[T]) []*node[T] {
	last := len(nodes) - 1
	nodes[last].place = c.place
	nodes[c.place] = nodes[last]
	nodes[last] = nil
	return nodes[:last]
}

// empty reports whether a node has neither a value nor children.
func (n *node[T]) empty() bool {
	return !n.set && len(n.plain) == 0 && len(n.globs) == 0 && n.star == nil && n.any == nil
}
