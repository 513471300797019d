package router

import (
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/remote"
)

// declared handles a remote's declaration or its withdrawal.
func (f *face) declared(m *codec.Declare) {
	if f.numbers.Declared(m) {
		return
	}
	expand := f.numbers.OptionalKey
	if _, is := declares[m.Kind]; is {
		expand = f.numbers.Key
	}
	key, ok := expand(m.Expr)
	if !ok {
		return
	}
	if kind, is := declares[m.Kind]; is && !f.may(kind, key) {
		return
	}
	r := f.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.gone {
		return
	}
	switch m.Kind {
	case codec.DeclareSubscriber, codec.DeclareQueryable, codec.DeclareToken:
		f.note(m, key)
	case codec.UndeclareSubscriber, codec.UndeclareQueryable:
		f.drop(m.Kind-1, m.ID)
	case codec.UndeclareToken:
		f.tokenUndeclared(m.ID, key)
	case codec.DeclareFinal:
		f.declaredAll(m)
	}
}

// note stores a declaration under its number, within the limits of the link and of the router. If the number is in use,
// the new declaration replaces the old one. Called with r.mu held.
func (f *face) note(m *codec.Declare, key string) {
	r := f.r
	table := f.table(m.Kind)
	i := info{complete: m.Complete, distance: m.Distance}
	old, known := table[m.ID]
	switch {
	case known && old.key == key:
		if h := old.holder(f); h != nil && h.ids == 1 {
			r.inform(old, h, i)
		}
		return
	case known:
		f.drop(m.Kind, m.ID) // the code below checks the new key like any other key
	}
	if f.link != nil && (len(table) >= maxDeclared || r.port.client.Full() || !r.ensureCapacity(f, key)) {
		r.counters.Declarations.Add(1)
		return
	}
	e := r.entry(m.Kind, key)
	f.table(m.Kind)[m.ID] = e
	r.hold(f, e, i)
}

// drop removes a declaration by its number. Called with r.mu held.
func (f *face) drop(kind codec.DeclareKind, id uint32) {
	table := f.table(kind)
	if e, ok := table[id]; ok {
		delete(table, id)
		f.declarations[kind/2-1] = remote.Shrink(table, &f.most.declarations[kind/2-1])
		f.r.release(f, e)
	}
}

// table returns the remote's declarations of one kind by their numbers.
func (f *face) table(kind codec.DeclareKind) map[uint32]*entry { return f.declarations[kind/2-1] }

// tokenUndeclared removes a token by its number or, if the remote never declared this number to us, by its key. Called
// with r.mu held.
func (f *face) tokenUndeclared(id uint32, key string) {
	table := f.table(codec.DeclareToken)
	e, known := table[id]
	if known && (key == "" || key == e.key) {
		f.drop(codec.DeclareToken, id)
		return
	}
	if key == "" {
		return
	}
	e, ok := f.r.index.Tree(codec.DeclareToken).Get(key)
	if !ok || e.holder(f) == nil {
		return
	}
	for id, other := range table {
		if other == e {
			f.drop(codec.DeclareToken, id)
			return
		}
	}
}

// declaredAll handles the message that ends a peer's first declarations or the answers to our interest in everything.
// Called with r.mu held.
func (f *face) declaredAll(m *codec.Declare) {
	if (!m.Answers || m.Interest == f.all) && !f.isClient && !f.ready {
		f.ready = true
		f.r.unready--
		f.r.reroute()
	}
}
