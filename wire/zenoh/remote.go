package zenoh

import (
	"edgert/wire/zenoh/codec"
)

// declared notes what a remote declares or takes back. Owner: the link's reader.
func (f *face) declared(m *codec.Declare) {
	switch m.Kind {
	case codec.DeclareExpr:
		f.number(m)
		return
	case codec.UndeclareExpr:
		f.unnumber(uint16(m.ID))
		return
	}
	var key string
	if m.Kind&1 == 0 && m.Kind != codec.DeclareFinal || len(m.Expr.Suffix) > 0 || m.Expr.Scope != 0 {
		var ok bool
		if key, ok = f.key(m.Expr); !ok {
			return
		}
	}
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.gone {
		return
	}
	switch m.Kind {
	case codec.DeclareSubscriber, codec.DeclareQueryable:
		f.note(m, key)
	case codec.UndeclareSubscriber, codec.UndeclareQueryable:
		f.drop(m.Kind-1, m.ID)
	case codec.DeclareToken:
		f.tokenDeclared(m, key)
	case codec.UndeclareToken:
		f.tokenUndeclared(m.ID, key)
	case codec.DeclareFinal:
		f.declaredAll(m)
	}
}

// number notes a number for a key. Its own expression may use an earlier one.
func (f *face) number(m *codec.Declare) {
	e := m.Expr
	e.Sender = true
	key, ok := f.key(e)
	if !ok || m.ID == 0 {
		return
	}
	id := uint16(m.ID)
	old, known := f.exprs[id]
	more := len(key) - len(old)
	if !known {
		more += numberBytes
	}
	if !known && len(f.exprs) >= maxNumbers || f.exprBytes+more > maxNumberBytes || !f.link.Charge(more) {
		f.s.refused.Declarations.Add(1)
		return
	}
	f.exprs[id] = key
	f.exprBytes += more
}

func (f *face) unnumber(id uint16) {
	if key, known := f.exprs[id]; known {
		f.exprBytes -= len(key) + numberBytes
		f.link.Charge(-len(key) - numberBytes)
		delete(f.exprs, id)
		f.exprs = slim(f.exprs, &f.mostExprs)
	}
}

// note remembers a declaration under its number, within the limits of the link
// and of the session. A number that is declared again has changed. Called with
// s.mu held.
func (f *face) note(m *codec.Declare, key string) {
	s := f.s
	table := f.table(m.Kind)
	i := info{complete: m.Complete, distance: m.Distance}
	old, known := table[m.ID]
	switch {
	case known && old.key == key:
		if h := old.holder(f); h != nil && h.ids == 1 {
			s.inform(old, h, i)
		}
		return
	case known:
		f.drop(m.Kind, m.ID) // the new key is judged like any other
	}
	if len(table) >= maxDeclared || s.events.full() || !s.room(f, key) {
		s.refused.Declarations.Add(1)
		return
	}
	e := s.entry(m.Kind, key)
	f.table(m.Kind)[m.ID] = e
	s.hold(f, e, i)
}

// drop forgets a declaration by its number. Called with s.mu held.
func (f *face) drop(kind codec.DeclareKind, id uint32) {
	table := f.table(kind)
	if e, ok := table[id]; ok {
		delete(table, id)
		f.declarations[kind/2-1] = slim(table, &f.most.declarations[kind/2-1])
		f.s.release(f, e)
	}
}

// table is what a remote has declared of a kind.
func (f *face) table(kind codec.DeclareKind) map[uint32]*entry { return f.declarations[kind/2-1] }

// tokenDeclared notes a token, or adds it to the listing that it answers.
// Called with s.mu held.
func (f *face) tokenDeclared(m *codec.Declare, key string) {
	s := f.s
	if m.Answers {
		if l := s.lists[m.Interest]; l != nil {
			l.add(f, key)
			return
		}
		if f.kind == upstream && s.watchers[m.Interest] == nil {
			return // of an interest that we have taken back
		}
	}
	f.note(m, key)
}

// tokenUndeclared forgets a token by its number or, when that was never declared
// to us, by its key. Called with s.mu held.
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
	e, ok := f.s.tree(codec.DeclareToken).Get(key)
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

// declaredAll ends the answers to an interest; of interest 0 it is a peer's word
// that it has told us everything, of our interest in everything a router's.
// Called with s.mu held.
func (f *face) declaredAll(m *codec.Declare) {
	if !m.Answers || m.Interest == f.world {
		if f.kind == peer && !f.ready {
			f.ready = true
			f.s.unready--
			f.s.epoch.Add(1)
			f.s.retarget("")
		}
		return
	}
	if l := f.s.lists[m.Interest]; l != nil {
		l.finish(f)
	}
}

// relays reports whether what comes from one link may go to the other: one of
// the two must be a client of ours, because peers and routers reach each other
// without us.
func (f *face) relays(to *face) bool {
	return f != to && (f.kind == guestClient || to.kind == guestClient)
}
