package tokenizer

// symbol is a part of a text: a character or a byte at first, a piece of the vocabulary after the merges.
type symbol struct {
	id         int32 // -1: the vocabulary has no such piece
	from, to   int32 // range in the text; empty: this symbol was merged into the previous one
	prev, next int32 // the nearest symbols that still exist; -1: none
	frozen     bool  // the symbol never merges
}

// candidate is a pair of neighbours that may merge. It is out of date as soon as either symbol has merged with another
// one.
type candidate struct {
	rank int32 // a lower rank merges first; if ranks are equal, the pair further left
	left int32
	id   int32
}

// merged is the result of merging a pair.
type merged struct{ rank, id int32 }

// merges maps two neighbours to the piece that they merge to, with its rank. The key is their ids for a tokenizer.json,
// and their joined text for a tokenizer.model.
type merges struct {
	byIDs   map[uint64]merged
	byText  map[string]merged
	longest int  // bytes of the longest key of byText
	frozen  trie // user-defined pieces of a tokenizer.model
}

// pair is the key of byIDs.
func pair(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// find returns the merge of two neighbours.
//
//rt:noalloc
func (m *merges) find(text []byte, a, b *symbol) (merged, bool) {
	if m.byText == nil {
		found, ok := m.byIDs[pair(a.id, b.id)]
		return found, ok
	}
	if a.frozen || b.frozen || int(b.to-a.from) > m.longest {
		return merged{}, false
	}
	found, ok := m.byText[string(text[a.from:b.to])]
	return found, ok
}

// append merges the symbols of the text, which are in s.symbols, until no pair can merge, and appends the ids of the
// rest to dst. The merges take O(n log n) for a text of length n, because each merge removes a symbol.
//
//rt:noalloc
func (m *merges) append(dst []int64, text []byte, symbols []symbol, s *scratch, fall *[256]int32) []int64 {
	s.queue = s.queue[:0]
	for i := range symbols {
		symbols[i].prev, symbols[i].next = int32(i-1), int32(i+1)
	}
	if len(symbols) > 0 {
		symbols[len(symbols)-1].next = none
	}
	for i := range len(symbols) - 1 {
		m.offer(text, symbols, int32(i), s)
	}
	for len(s.queue) > 0 {
		c := s.pop()
		left := &symbols[c.left]
		if left.from == left.to || left.next == none {
			continue
		}
		right := &symbols[left.next]
		if now, ok := m.find(text, left, right); !ok || now.id != c.id {
			continue
		}
		left.id = c.id
		left.to = right.to
		left.next = right.next
		right.from = right.to
		if left.next != none {
			symbols[left.next].prev = c.left
			m.offer(text, symbols, c.left, s)
		}
		if left.prev != none {
			m.offer(text, symbols, left.prev, s)
		}
	}
	for i := range symbols {
		switch sym := &symbols[i]; {
		case sym.from == sym.to:
		case sym.id != none:
			dst = append(dst, int64(sym.id))
		default:
			for _, b := range text[sym.from:sym.to] {
				dst = append(dst, int64(fall[b]))
			}
		}
	}
	return dst
}

// offer adds a pair of symbols to the queue, if the pair can merge. The parameter left is the index of the pair's
// first symbol.
//
//rt:noalloc
func (m *merges) offer(text []byte, symbols []symbol, left int32, s *scratch) {
	a := &symbols[left]
	if found, ok := m.find(text, a, &symbols[a.next]); ok {
		s.push(candidate{found.rank, left, found.id})
	}
}

// before is the order of the queue.
//
//rt:noalloc
func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.left < d.left
}

// push and pop keep the queue a binary heap. container/heap would allocate for each element.
//
//rt:noalloc
func (s *scratch) push(c candidate) {
	s.queue = append(s.queue, c)
	i := len(s.queue) - 1
	for i > 0 && c.before(s.queue[(i-1)/2]) {
		s.queue[i] = s.queue[(i-1)/2]
		i = (i - 1) / 2
	}
	s.queue[i] = c
}

//rt:noalloc
func (s *scratch) pop() candidate {
	top, last := s.queue[0], s.queue[len(s.queue)-1]
	s.queue = s.queue[:len(s.queue)-1]
	if len(s.queue) == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= len(s.queue) {
			break
		}
		if child+1 < len(s.queue) && s.queue[child+1].before(s.queue[child]) {
			child++
		}
		if !s.queue[child].before(last) {
			break
		}
		s.queue[i] = s.queue[child]
		i = child
	}
	s.queue[i] = last
	return top
}
