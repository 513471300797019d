package tokenizer

import "fmt"

// trie is a set of strings. It finds the string that begins first in a text. If several strings begin at the same
// place, it finds the longest.
type trie struct {
	edges map[edge]int32  // number of the next node; node 0 is the root
	ends  map[int32]int32 // by node: the id of the string that ends there
	first [256]bool       // for each byte: a string begins with it
}

type edge struct {
	node int32
	b    byte
}

func (t *trie) insert(s string, id int32) error {
	if t.edges == nil {
		t.edges, t.ends = map[edge]int32{}, map[int32]int32{}
	}
	node := int32(0)
	for i := range len(s) {
		next, ok := t.edges[edge{node, s[i]}]
		if !ok {
			next = int32(len(t.edges) + 1)
			t.edges[edge{node, s[i]}] = next
		}
		node = next
	}
	t.ends[node] = id
	t.first[s[0]] = true
	if len(t.edges) > maxTrieBytes {
		return fmt.Errorf("added tokens of more than %d bytes", maxTrieBytes)
	}
	return nil
}

// longest returns the length and the id of the longest string of the trie that text begins with. The length is 0 when
// there is no such string.
//
//rt:noalloc
func (t *trie) longest(text []byte) (n int, id int32) {
	if len(text) == 0 || !t.first[text[0]] {
		return 0, 0
	}
	node := int32(0)
	for i, b := range text {
		next, ok := t.edges[edge{node, b}]
		if !ok {
			break
		}
		if end, ok := t.ends[next]; ok {
			n, id = i+1, end
		}
		node = next
	}
	return n, id
}

// find returns the place of the first string of the trie in text, its length and its id. If there is no such string,
// the place is the text's length, and the string's length is 0.
//
//rt:noalloc
func (t *trie) find(text []byte) (at, n int, id int32) {
	for at = range text {
		if n, id = t.longest(text[at:]); n > 0 {
			return at, n, id
		}
	}
	return len(text), 0, 0
}
