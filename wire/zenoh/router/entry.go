package router

import (
	"math"

	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/remote"
)

// Bounds of the state that all links together may make the router keep.
const (
	maxDeclaredBytes = 14 << 20 // the largest memory of all entries and interests
	nodeBytes        = 160      // the memory of a chunk in a tree
	entryBytes       = 160      // memory of an entry and the pointers to it
	holderBytes      = 96       // memory of a link's declaration of an entry
	numberedBytes    = 48       // memory of each further number under which the link declares the key
	toldBytes        = 48       // memory of the record of the attributes that were sent to a link
	interestBytes    = 400      // memory of an interest and of the set of interests on its key
	// largest product of (subscribers + queryables) and the interests that aggregate them, because a change may
	// visit all pairs
	maxJoined       = 1 << 21
	retractedAtOnce = 16 // entries that the end of an interest visits before it briefly releases the lock
	maxEverything   = 64 // most interests in everything of one link, since each change visits all of them
)

// entry is one key with the declarations of subscribers, queryables or tokens on it. The router announces the key to a
// link once, however many links declared it. Guarded by Router.mu.
type entry struct {
	// Constant.
	kind codec.DeclareKind
	key  string
	id   uint32 // number of the entry in announcements

	holders []holder // links that declared the key, each once
	clients int      // number of holders that are clients
}

// holder is a link's declarations of one key.
type holder struct {
	face *face
	ids  int // number of ids under which the link declares the key
	info info
}

// info holds the attributes of a declared queryable.
type info struct {
	complete bool
	distance uint16 // hops to the nearest complete queryable
}

// better joins the attributes of two queryables on one key, as routers do. A complete queryable is better than an
// incomplete one. If both are equally complete, the nearer one is better.
func (a info) better(b info) info {
	if a.complete != b.complete {
		if a.complete {
			return a
		}
		return b
	}
	return info{a.complete, min(a.distance, b.distance)}
}

// entry returns the entry of a key, and creates a missing one. Called with mu held.
func (r *Router) entry(kind codec.DeclareKind, key string) *entry {
	t := r.index.Tree(kind)
	if e, ok := t.Get(key); ok {
		return e
	}
	e := &entry{kind: kind, key: key, id: r.id()}
	t.Put(key, e)
	r.declaredBytes += entryBytes + len(key)
	return e
}

// memory estimates the bytes of all entries and interests. Called with mu held.
func (r *Router) memory() int {
	n := r.declaredBytes
	for _, kind := range remote.Kinds {
		n += r.index.Tree(kind).Nodes()*nodeBytes + r.index.Tree(kind).Text()
	}
	return n + r.watchers.tree.Nodes()*nodeBytes + r.watchers.tree.Text()
}

// overCapacity reports whether all declarations together take too much memory or time. Called with mu held.
func (r *Router) overCapacity() bool {
	joined := r.index.Tree(codec.DeclareSubscriber).Len() + r.index.Tree(codec.DeclareQueryable).Len()
	return r.memory() > maxDeclaredBytes || r.aggregates*joined > maxJoined
}

// weight estimates the bytes of one declaration of a link. Memory that several links share is counted for each of them.
func weight(key string) int { return entryBytes + holderBytes + nodeBytes + 2*len(key) }

// ensureCapacity reports whether the router may keep another declaration of f on key. While all declarations together
// take too much, it ends links: each time the link with the most declarations, of the host whose links have the most.
// It returns false if the next such link is f. So a flood ends its own links and no others, however many links it uses.
// Called with mu held.
func (r *Router) ensureCapacity(f *face, key string) bool {
	for r.overCapacity() {
		more := weight(key)
		total := map[string]int{f.host: more}
		for _, o := range r.faces {
			if !o.gone {
				total[o.host] += o.weight
			}
		}
		most := f
		all := total[f.host]
		held := f.weight + more
		for _, o := range r.faces {
			if sum := total[o.host]; o != f && !o.gone && (sum > all || sum == all && o.weight > held) {
				most = o
				all = sum
				held = o.weight
			}
		}
		if most == f {
			return false
		}
		most.link.Revoke()
		r.forget(most)
	}
	return true
}

func (e *entry) holder(f *face) *holder {
	for i := range e.holders {
		if e.holders[i].face == f {
			return &e.holders[i]
		}
	}
	return nil
}

// visible reports whether the router announces the entry to a link. Some other link must have declared it. Peers and
// routers reach each other directly, so they get only entries that a client declared. A token is also announced to the
// client that holds it, as routers do since 1.9. A link with a certificate gets only the entries that its rights
// concern.
func (e *entry) visible(f *face) bool {
	if !f.who.rights.Concerns(concerns[e.kind], e.key) {
		return false
	}
	if !f.isClient {
		return e.clients > 0
	}
	return len(e.holders) > 1 || len(e.holders) == 1 && (e.holders[0].face != f || e.kind == codec.DeclareToken)
}

// infoFor returns the attributes under which an entry is announced to a link; only queryables have attributes. Called
// with mu held.
func (e *entry) infoFor(f *face) (best info) {
	if e.kind != codec.DeclareQueryable {
		return best
	}
	for i := range e.holders {
		if h := &e.holders[i]; f.relays(h.face) {
			best = best.better(info{h.info.complete, min(h.info.distance, math.MaxUint16-1) + 1})
		}
	}
	if !best.complete {
		best.distance = 0
	}
	return best
}

// hold records that a link declares an entry. Called with mu held.
func (r *Router) hold(f *face, e *entry, i info) {
	if h := e.holder(f); h != nil {
		h.ids++
		r.declaredBytes += numberedBytes
		f.weight += numberedBytes
		r.inform(e, h, h.info.better(i))
		return
	}
	e.holders = append(e.holders, holder{face: f, ids: 1, info: i})
	r.declaredBytes += holderBytes
	f.weight += weight(e.key)
	if f.isClient {
		e.clients++
	}
	r.changed(e, len(e.holders)-1)
}

// inform stores new attributes of a link's queryable.
func (r *Router) inform(e *entry, h *holder, i info) {
	if h.info != i {
		h.info = i
		r.spread(e)
	}
}

// release undoes one call of hold. Called with mu held.
func (r *Router) release(f *face, e *entry) {
	h := e.holder(f)
	if h == nil {
		return
	}
	if h.ids--; h.ids > 0 {
		r.declaredBytes -= numberedBytes
		f.weight -= numberedBytes
		return
	}
	*h = e.holders[len(e.holders)-1]
	e.holders[len(e.holders)-1] = holder{}
	e.holders = e.holders[:len(e.holders)-1]
	r.declaredBytes -= holderBytes
	f.weight -= weight(e.key)
	if f.isClient {
		e.clients--
	}
	r.changed(e, len(e.holders)+1)
}

// changed updates everything that depends on an entry with one holder more or less than before. It announces the change
// to the links that it concerns, voids cached routes, and removes an entry without holders. Called with mu held.
func (r *Router) changed(e *entry, before int) {
	now := len(e.holders)
	if e.kind == codec.DeclareSubscriber {
		r.reroute()
	}
	// An entry that had at least two holders, and still has, is already announced to every link. Two cases need an
	// update nevertheless: the attributes of a queryable may change, and for peers only those holders count that are
	// clients.
	if before < 2 || now < 2 || e.kind == codec.DeclareQueryable || e.clients < 2 {
		r.spread(e)
	}
	if now == 0 {
		r.index.Tree(e.kind).Delete(e.key)
		r.declaredBytes -= entryBytes + len(e.key)
		r.cfg.Link.Budget.AddGarbage(weight(e.key))
	}
}

// spread updates every link that is interested in an entry. Called with mu held.
func (r *Router) spread(e *entry) {
	for _, f := range r.peers {
		f.show(e)
	}
	for i := range r.watchers.of(e.key) {
		i.show(e)
	}
}

// show announces an entry, its end, or its change to a link. Called with r.mu held.
func (f *face) show(e *entry) {
	known, told := f.told[e]
	if !e.visible(f) {
		switch {
		case told:
			f.forget(e)
			f.declare(codec.Declare{Kind: e.kind + 1, ID: e.id})
		case f.missed(e):
			f.declare(codec.Declare{Kind: e.kind + 1, ID: e.id, Expr: codec.Key(e.key)})
		}
		if len(e.holders) == 0 {
			f.ended = e
		}
		return
	}
	now := e.infoFor(f)
	if (!told || known != now) && f.remember(e, now) {
		f.declare(declaration(e.kind, e.id, e.key, now))
	}
}

// missed reports whether e is a token that ends now and was not announced to this client, because
// the client requested changes without the existing tokens. Routers then send the end together with
// the key. Called with r.mu held.
func (f *face) missed(e *entry) bool {
	return e.kind == codec.DeclareToken && len(e.holders) == 0 && f.isClient && f.ended != e &&
		f.who.rights.Concerns(concerns[e.kind], e.key)
}

// remember records that an entry has been announced to the link. If the budget has no memory for the record, it closes
// the link and returns false. Called with r.mu held.
func (f *face) remember(e *entry, now info) bool {
	if _, told := f.told[e]; !told && !f.hold(toldBytes) {
		f.link.Close(codec.CloseUnresponsive)
		return false
	}
	f.told[e] = now
	return true
}

// forget removes the record that an entry is announced to the link. Called with r.mu held.
func (f *face) forget(e *entry) {
	delete(f.told, e)
	f.told = remote.Shrink(f.told, &f.most.told)
	f.hold(-toldBytes)
}

func declaration(kind codec.DeclareKind, id uint32, key string, i info) codec.Declare {
	return codec.Declare{
		Kind:     kind,
		ID:       id,
		Expr:     codec.Key(key),
		Complete: i.complete,
		Distance: i.distance,
	}
}
