package router

import (
	"iter"

	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
	"github.com/edge-rt/edge-rt/wire/zenoh/remote"
)

// interest is a client's request for declarations, present and future. Guarded by Router.mu.
type interest struct {
	// Constant.
	face      *face
	about     uint8
	key       string // "" is everything
	aggregate bool   // the client gets one declaration on key for all subscribers and one for all queryables

	// The declarations of an aggregate interest, as long as an entry matches.
	aggregated map[codec.DeclareKind]aggregation
}

// aggregation is one declaration for all entries of a kind.
type aggregation struct {
	id   uint32
	info info
}

var aboutKind = map[codec.DeclareKind]uint8{
	codec.DeclareSubscriber: codec.AboutSubscribers,
	codec.DeclareQueryable:  codec.AboutQueryables,
	codec.DeclareToken:      codec.AboutTokens,
}

func (i *interest) in(kind codec.DeclareKind) bool { return i.about&aboutKind[kind] != 0 }

// aggregates reports whether entries of a kind are declared under the interest's own key. Tokens are never aggregated.
func (i *interest) aggregates(kind codec.DeclareKind) bool {
	return i.aggregate && kind != codec.DeclareToken && i.key != ""
}

// watchers are the interests that wait for changes. Guarded by Router.mu.
type watchers struct {
	tree       keyexpr.Tree[*watched]
	everything map[*interest]struct{} // interests without a key
	found      []*watched
}

// watched is the set of interests in one key.
type watched struct {
	by   map[*interest]struct{}
	most int // largest length of the map by, see remote.Shrink
}

func (w *watchers) add(i *interest) {
	if i.key == "" {
		w.everything[i] = struct{}{}
		i.face.everything++
		return
	}
	on, ok := w.tree.Get(i.key)
	if !ok {
		on = &watched{by: map[*interest]struct{}{}}
		w.tree.Put(i.key, on)
	}
	on.by[i] = struct{}{}
}

func (w *watchers) remove(i *interest) {
	if i.key == "" {
		delete(w.everything, i)
		i.face.everything--
		return
	}
	on, ok := w.tree.Get(i.key)
	if !ok {
		return
	}
	delete(on.by, i)
	on.by = remote.Shrink(on.by, &on.most)
	if len(on.by) == 0 {
		w.tree.Delete(i.key)
	}
}

// of lists the interests that match a key.
func (w *watchers) of(key string) iter.Seq[*interest] {
	return func(yield func(*interest) bool) {
		w.found = w.tree.AppendMatches(w.found[:0], key)
		for _, on := range w.found {
			for i := range on.by {
				if !yield(i) {
					return
				}
			}
		}
		for i := range w.everything {
			if !yield(i) {
				return
			}
		}
	}
}

// asked answers a remote's interest with the existing declarations and a message that ends them. A client that also
// requests future changes gets these later. Every answer has the message at its end, because official publishers,
// queriers and liveliness gets wait for it.
//
// Owner: the link's reader.
func (f *face) asked(m *codec.Interest) {
	r := f.r
	i := &interest{face: f, about: m.About &^ codec.AboutAggregate, aggregate: m.About&codec.AboutAggregate != 0}
	valid := true
	if m.Restricted {
		i.key, valid = f.numbers.Key(m.Expr)
	}
	if valid && m.Mode != codec.InterestFinal && i.about&codec.AboutTokens != 0 && !f.mayWatch(i.key) {
		i.about &^= codec.AboutTokens
	}
	future := m.Mode&codec.InterestFuture != 0 && f.isClient && valid
	if future || m.Mode == codec.InterestFinal {
		f.takeBack(m.ID) // an interest with a number in use replaces the earlier one
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.gone || m.Mode == codec.InterestFinal {
		return
	}
	if future && f.link != nil && (len(f.interests) >= maxDeclared || i.key == "" && f.everything >= maxEverything ||
		!r.ensureCapacity(f, i.key)) {
		r.counters.Declarations.Add(1)
		future = false
	}
	if future {
		i.aggregated = map[codec.DeclareKind]aggregation{}
		f.interests[m.ID] = i
		r.watchers.add(i)
		if i.aggregate {
			r.aggregates++
		}
		r.declaredBytes += interestBytes + len(i.key)
		f.weight += weight(i.key)
	}
	if m.Mode&codec.InterestCurrent != 0 && valid {
		for _, kind := range remote.Kinds {
			if i.in(kind) {
				i.answer(kind, m.ID, future)
			}
		}
	}
	f.declare(codec.Declare{Answers: true, Interest: m.ID, Kind: codec.DeclareFinal})
}

// takeBack ends an interest and undeclares the entries that were announced for this interest alone, as routers do.
// Otherwise the official client would remember these, and would report a token that has ended meanwhile to its next
// watcher. The search for another interest in an entry may visit all interests, so takeBack releases the lock now and
// then.
//
// Owner: the link's reader.
func (f *face) takeBack(id uint32) {
	r := f.r
	r.mu.Lock()
	var told []*entry
	if i := f.disinterest(id); i != nil {
		for _, kind := range remote.Kinds {
			if !i.in(kind) || i.aggregates(kind) {
				continue
			}
			for _, e := range r.index.Matches(kind, i.key) {
				if _, is := f.told[e]; is {
					told = append(told, e)
				}
			}
		}
	}
	r.mu.Unlock()
	for len(told) > 0 {
		n := min(len(told), retractedAtOnce)
		r.mu.Lock()
		for _, e := range told[:n] {
			if _, is := f.told[e]; is && !f.gone && !f.wants(e) {
				f.forget(e)
				f.declare(codec.Declare{Kind: e.kind + 1, ID: e.id})
			}
		}
		r.mu.Unlock()
		told = told[n:]
	}
}

// disinterest drops an interest and returns it, or nil. Called with r.mu held.
func (f *face) disinterest(id uint32) *interest {
	i := f.interests[id]
	if i == nil {
		return nil
	}
	r := f.r
	delete(f.interests, id)
	f.interests = remote.Shrink(f.interests, &f.most.interests)
	r.watchers.remove(i)
	r.declaredBytes -= interestBytes + len(i.key)
	f.weight -= weight(i.key)
	if i.aggregate {
		r.aggregates--
	}
	return i
}

// wants reports whether an interest of the remote requests the entry itself, not aggregated with others. Called with
// r.mu held.
func (f *face) wants(e *entry) bool {
	r := f.r
	for i := range r.watchers.of(e.key) {
		if i.face == f && i.in(e.kind) && !i.aggregates(e.kind) {
			return true
		}
	}
	return false
}

// answer declares the present entries that match an interest. Called with r.mu held.
func (i *interest) answer(kind codec.DeclareKind, id uint32, future bool) {
	f := i.face
	if i.aggregates(kind) {
		now, any := i.joined(kind)
		if !any {
			return
		}
		a := aggregation{info: now}
		if future {
			a.id = f.r.id()
			i.aggregated[kind] = a
		}
		d := declaration(kind, a.id, i.key, now)
		d.Answers, d.Interest = true, id
		f.declare(d)
		return
	}
	for _, e := range f.r.index.Matches(kind, i.key) {
		if !e.visible(f) {
			continue
		}
		now := e.infoFor(f)
		d := declaration(kind, 0, e.key, now)
		d.Answers, d.Interest = true, id
		if future {
			d.ID = e.id
			if !f.remember(e, now) {
				return
			}
		}
		f.declare(d)
	}
}

// joined returns the combined attributes of all entries that match an interest. The result any is false when there is
// no such entry.
func (i *interest) joined(kind codec.DeclareKind) (all info, any bool) {
	for _, e := range i.face.r.index.Matches(kind, i.key) {
		if !e.visible(i.face) {
			continue
		}
		one := e.infoFor(i.face)
		one.complete = one.complete && keyexpr.Includes(e.key, i.key)
		if !any {
			all, any = one, true
		} else {
			all = all.better(one)
		}
	}
	return all, any
}

// show sends the remote the current state of an entry. Called with r.mu held.
func (i *interest) show(e *entry) {
	if !i.in(e.kind) {
		return
	}
	if !i.aggregates(e.kind) {
		i.face.show(e)
		return
	}
	was, told := i.aggregated[e.kind]
	if told && e.kind == codec.DeclareSubscriber && e.visible(i.face) {
		return // another subscriber does not change an aggregate
	}
	now, any := i.joined(e.kind)
	switch {
	case !any && told:
		delete(i.aggregated, e.kind)
		i.face.declare(codec.Declare{Kind: e.kind + 1, ID: was.id})
	case any && (!told || was.info != now):
		if !told {
			was.id = i.face.r.id()
		}
		was.info = now
		i.aggregated[e.kind] = was
		i.face.declare(declaration(e.kind, was.id, i.key, now))
	}
}
