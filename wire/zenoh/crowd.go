package zenoh

import "edgert/wire/zenoh/keyexpr"

// crowd is who waits for news of keys: publishers, watchers, interests. Guarded
// by Session.mu.
type crowd[T comparable] struct {
	tree  keyexpr.Tree[map[T]struct{}]
	found []map[T]struct{}
}

func (c *crowd[T]) add(key string, who T) {
	set, ok := c.tree.Get(key)
	if !ok {
		set = map[T]struct{}{}
		c.tree.Put(key, set)
	}
	set[who] = struct{}{}
}

func (c *crowd[T]) remove(key string, who T) {
	set, _ := c.tree.Get(key)
	delete(set, who)
	if len(set) == 0 {
		c.tree.Delete(key)
	}
}

// matching lends those whose keys intersect key, until the next call.
func (c *crowd[T]) matching(key string) []map[T]struct{} {
	c.found = c.tree.AppendMatches(c.found[:0], key)
	return c.found
}
