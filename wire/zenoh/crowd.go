package zenoh

import (
	"maps"

	"edgert/wire/zenoh/keyexpr"
)

// slimFrom is how long a map must have been before it is worth making smaller.
const slimFrom = 64

// slim is called behind each delete from m. It returns m, or a copy when three
// quarters of the most that it held are gone: a map of Go never gives memory back,
// and what a remote takes back counts no more. most is kept for the next call.
func slim[K comparable, V any](m map[K]V, most *int) map[K]V {
	*most = max(*most, len(m)+1)
	if *most < slimFrom || len(m) > *most/4 {
		return m
	}
	*most = len(m)
	less := make(map[K]V, len(m))
	maps.Copy(less, m)
	return less
}

// crowd is who waits for news of keys: publishers, watchers, interests. Guarded
// by Session.mu.
type crowd[T comparable] struct {
	tree  keyexpr.Tree[*circle[T]]
	found []*circle[T]
}

// circle is who waits for news of one key.
type circle[T comparable] struct {
	who  map[T]struct{}
	most int // see slim
}

func (c *crowd[T]) add(key string, who T) {
	set, ok := c.tree.Get(key)
	if !ok {
		set = &circle[T]{who: map[T]struct{}{}}
		c.tree.Put(key, set)
	}
	set.who[who] = struct{}{}
}

func (c *crowd[T]) remove(key string, who T) {
	set, ok := c.tree.Get(key)
	if !ok {
		return
	}
	delete(set.who, who)
	set.who = slim(set.who, &set.most)
	if len(set.who) == 0 {
		c.tree.Delete(key)
	}
}

// matching lends those whose keys intersect key, until the next call.
func (c *crowd[T]) matching(key string) []*circle[T] {
	c.found = c.tree.AppendMatches(c.found[:0], key)
	return c.found
}
