package zenoh

import (
	"math"
	"slices"

	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/keyexpr"
)

// Bounds of what others may make the session remember, together.
const (
	maxDeclaredBytes = 14 << 20 // of all entries
	nodeBytes        = 160      // of a chunk in a tree
	entryBytes       = 160      // of an entry and what points to it
	holderBytes      = 96       // of a link's declaration of it
	numberedBytes    = 48       // of each further number under which the link declares it
	toldBytes        = 48       // of what a link was told of it
	interestBytes    = 400      // of an interest, and of the set of those on one key
	maxJoined        = 1 << 21  // subscribers and queryables, times the interests that join them: a change may look at all
	takenAtOnce      = 16       // entries that an interest's end looks at before others have their turn
	maxEverything    = 64       // interests of one link in everything: each change looks at all of them
)

// entry is one key under which something is declared, by us or over links: all
// that the session knows of subscribers, queryables or tokens on it. Whoever is
// told of it is told once, however many declared it. Guarded by Session.mu.
type entry struct {
	// Constant.
	kind codec.DeclareKind
	key  string
	id   uint32 // by which links are told of it

	own     []*object
	holders []holder // links that declared it, each once
	south   int      // how many of them are clients of ours
}

// holder is a link's declarations of one key.
type holder struct {
	face *face
	ids  int // under how many numbers
	info info
}

// info is what queryables are declared with.
type info struct {
	complete bool
	distance uint16 // hops to a complete one
}

// better joins two queryables on one key, as routers do: complete wins, then the
// nearer.
func (a info) better(b info) info {
	if a.complete != b.complete {
		if a.complete {
			return a
		}
		return b
	}
	return info{a.complete, min(a.distance, b.distance)}
}

// kinds are those of entries, in the order of Session.index.
var kinds = [...]codec.DeclareKind{codec.DeclareSubscriber, codec.DeclareQueryable, codec.DeclareToken}

// tree holds the entries of a kind.
func (s *Session) tree(kind codec.DeclareKind) *keyexpr.Tree[*entry] {
	return &s.index[kind/2-1]
}

// entry returns the entry of a key, made anew if need be. Called with mu held.
func (s *Session) entry(kind codec.DeclareKind, key string) *entry {
	t := s.tree(kind)
	if e, ok := t.Get(key); ok {
		return e
	}
	e := &entry{kind: kind, key: key, id: s.id()}
	t.Put(key, e)
	s.declaredBytes += entryBytes + len(key)
	return e
}

// memory is about how many bytes all entries take. Called with mu held.
func (s *Session) memory() int {
	n := s.declaredBytes
	for i := range s.index {
		n += s.index[i].Nodes()*nodeBytes + s.index[i].Text()
	}
	return n + s.wanted.tree.Nodes()*nodeBytes + s.wanted.tree.Text()
}

// crowded reports whether what is declared takes too much memory or time. Called
// with mu held.
func (s *Session) crowded() bool {
	joined := s.tree(codec.DeclareSubscriber).Len() + s.tree(codec.DeclareQueryable).Len()
	return s.memory() > maxDeclaredBytes || s.aggregates*joined > maxJoined
}

// weight is about what one declaration of a link takes; what links share counts
// for each.
func weight(key string) int { return entryBytes + holderBytes + nodeBytes + 2*len(key) }

// room reports whether another declaration of f on key may be remembered. When
// all declarations together are too many, links are ended until it may, or until
// f is the one that declared the most: of the host whose links declared the most,
// the one that did. The router whose client we are is never. A flood hurts itself
// and not the others, over however many links it comes. Called with mu held.
func (s *Session) room(f *face, key string) bool {
	for s.crowded() {
		more := weight(key)
		total := map[string]int{f.host: more}
		for _, o := range s.faces {
			if !o.gone {
				total[o.host] += o.weight
			}
		}
		most, all, held := f, total[f.host], f.weight+more
		for _, o := range s.faces {
			if sum := total[o.host]; o != f && !o.gone && o.kind != upstream && (sum > all || sum == all && o.weight > held) {
				most, all, held = o, sum, o.weight
			}
		}
		if most == f {
			return false
		}
		most.link.Revoke()
		s.forget(most)
	}
	return true
}

// matches lends the entries of a kind that intersect key, or all for "", until
// the next call. Called with mu held.
func (s *Session) matches(kind codec.DeclareKind, key string) []*entry {
	if key == "" {
		s.matched = s.tree(kind).AppendAll(s.matched[:0])
	} else {
		s.matched = s.tree(kind).AppendMatches(s.matched[:0], key)
	}
	return s.matched
}

func (e *entry) holder(f *face) *holder {
	for i := range e.holders {
		if e.holders[i].face == f {
			return &e.holders[i]
		}
	}
	return nil
}

// alive is how many declare the entry: ourselves and links.
func (e *entry) alive() int { return min(len(e.own), 1) + len(e.holders) }

// visible reports whether a link is to know of the entry: when somebody else
// has declared it, and not only nodes that the remote reaches without us. Peers
// and routers reach each other; only clients need us between. Tokens are shown
// to the client that holds them, as routers do since 1.9.
func (e *entry) visible(f *face) bool {
	if len(e.own) > 0 {
		return true
	}
	if f.kind != guestClient {
		return e.south > 0
	}
	return len(e.holders) > 1 || len(e.holders) == 1 && (e.holders[0].face != f || e.kind == codec.DeclareToken)
}

// infoFor is what a link is told of a queryable. Called with mu held.
func (e *entry) infoFor(f *face) info {
	best, none := info{}, true
	join := func(i info) {
		if none {
			best, none = i, false
		} else {
			best = best.better(i)
		}
	}
	if len(e.own) > 0 {
		join(info{}) // ours promise nothing
	}
	for i := range e.holders {
		if h := &e.holders[i]; h.face != f && f.relays(h.face) {
			i := h.info
			i.distance = min(i.distance, math.MaxUint16-1) + 1
			join(i)
		}
	}
	if !best.complete {
		best.distance = 0
	}
	return best
}

// hold notes that a link declares an entry. Called with mu held.
func (s *Session) hold(f *face, e *entry, i info) {
	before := e.alive()
	if h := e.holder(f); h != nil {
		h.ids++
		s.declaredBytes += numberedBytes
		f.weight += numberedBytes
		s.inform(e, h, h.info.better(i))
		return
	}
	e.holders = append(e.holders, holder{face: f, ids: 1, info: i})
	s.declaredBytes += holderBytes
	f.weight += weight(e.key)
	if f.kind == guestClient {
		e.south++
	}
	s.changed(e, before, f)
}

// inform replaces what is known of a link's queryable. Called with mu held.
func (s *Session) inform(e *entry, h *holder, i info) {
	if h.info != i {
		h.info = i
		s.spread(e)
	}
}

// release is the end of a declaration of hold. Called with mu held.
func (s *Session) release(f *face, e *entry) {
	h := e.holder(f)
	if h == nil {
		return
	}
	if h.ids--; h.ids > 0 {
		s.declaredBytes -= numberedBytes
		f.weight -= numberedBytes
		return
	}
	before := e.alive()
	*h = e.holders[len(e.holders)-1]
	e.holders[len(e.holders)-1] = holder{}
	e.holders = e.holders[:len(e.holders)-1]
	s.declaredBytes -= holderBytes
	f.weight -= weight(e.key)
	if f.kind == guestClient {
		e.south--
	}
	s.changed(e, before, f)
}

// adopt and abandon are hold and release for objects of our own. Called with mu
// held.
func (s *Session) adopt(o *object) {
	e := s.entry(o.kind, o.key)
	o.entry = e
	before := e.alive()
	e.own = append(e.own, o)
	s.changed(e, before, nil)
}

func (s *Session) abandon(o *object) {
	e := o.entry
	before := e.alive()
	e.own = slices.DeleteFunc(e.own, func(x *object) bool { return x == o })
	s.changed(e, before, nil)
}

// changed acts on an entry that has one holder more or less: whoever should know
// is told, cached routes are void, and an entry of nobody is dropped. Called with
// mu held.
func (s *Session) changed(e *entry, before int, by *face) {
	now := e.alive()
	switch e.kind {
	case codec.DeclareSubscriber:
		s.epoch.Add(1)
		s.retarget(e.key)
	case codec.DeclareToken:
		if before == 0 && now > 0 {
			s.report(e.key, true)
		}
		if before > 0 && now == 0 {
			s.report(e.key, false)
		}
	}
	// With two holders left everybody else knows already, but for peers, who do
	// not count each other, and for what a queryable promises.
	if before < 2 || now < 2 || e.kind == codec.DeclareQueryable || e.south < 2 {
		s.spread(e)
	}
	if now == 0 {
		s.tree(e.kind).Delete(e.key)
		s.declaredBytes -= entryBytes + len(e.key)
		s.budget.AddGarbage(weight(e.key))
	}
}

// spread brings every link that is interested in an entry up to date. Called
// with mu held.
func (s *Session) spread(e *entry) {
	for _, f := range s.north {
		f.show(e)
	}
	for _, all := range s.wanted.matching(e.key) {
		for i := range all.who {
			i.show(e)
		}
	}
	for i := range s.unrestricted {
		i.show(e)
	}
}

// show tells a link of an entry, of its end, or that it has changed. Called with
// s.mu held.
func (f *face) show(e *entry) {
	known, told := f.told[e]
	if !e.visible(f) {
		if told {
			f.forget(e)
			f.declare(codec.Declare{Kind: e.kind + 1, ID: e.id})
		}
		return
	}
	var now info
	if e.kind == codec.DeclareQueryable {
		now = e.infoFor(f)
	}
	if (!told || known != now) && f.remember(e, now) {
		f.declare(declaration(e.kind, e.id, e.key, now))
	}
}

// remember notes what the link is told of an entry. One for which the session
// has no memory left is closed, and false. Called with s.mu held.
func (f *face) remember(e *entry, now info) bool {
	if _, told := f.told[e]; !told && !f.link.Charge(toldBytes) {
		f.link.Close(codec.CloseUnresponsive)
		return false
	}
	f.told[e] = now
	return true
}

// forget is the end of what the link was told. Called with s.mu held.
func (f *face) forget(e *entry) {
	delete(f.told, e)
	f.told = slim(f.told, &f.most.told)
	f.link.Charge(-toldBytes)
}

func declaration(kind codec.DeclareKind, id uint32, key string, i info) codec.Declare {
	return codec.Declare{Kind: kind, ID: id, Expr: codec.Key([]byte(key)), Complete: i.complete, Distance: i.distance}
}
