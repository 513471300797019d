package zenoh

import (
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/keyexpr"
)

// declared notes what a remote declares or takes back. Owner: the link's reader.
func (f *face) declared(m *codec.Declare) {
	switch m.Kind {
	case codec.DeclareExpr:
		f.number(m)
		return
	case codec.UndeclareExpr:
		delete(f.exprs, uint16(m.ID))
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
	case codec.DeclareSubscriber:
		if f.note(f.subscribers, m.ID, key) {
			s.retarget(key)
		}
	case codec.UndeclareSubscriber:
		if old, ok := f.subscribers[m.ID]; ok {
			delete(f.subscribers, m.ID)
			s.retarget(old)
		}
	case codec.DeclareQueryable:
		f.note(f.queryables, m.ID, key)
	case codec.UndeclareQueryable:
		delete(f.queryables, m.ID)
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
	if _, known := f.exprs[uint16(m.ID)]; !known && len(f.exprs) >= maxDeclared {
		f.s.refused.Declarations.Add(1)
		return
	}
	f.exprs[uint16(m.ID)] = key
}

// note remembers a declaration, within the link's limit.
func (f *face) note(table map[uint32]string, id uint32, key string) bool {
	if _, known := table[id]; !known && len(table) >= maxDeclared {
		f.s.refused.Declarations.Add(1)
		return false
	}
	table[id] = key
	return true
}

// tokenDeclared notes a token, or adds it to the listing that it answers.
// Called with s.mu held.
func (f *face) tokenDeclared(m *codec.Declare, key string) {
	s := f.s
	if m.Answers {
		if l := s.lists[m.Interest]; l != nil {
			l.add(f, key)
			return
		}
		if s.watchers[m.Interest] == nil {
			return // of an interest that we have taken back
		}
	}
	old, known := f.tokens[m.ID]
	if known && old == key || !f.note(f.tokens, m.ID, key) {
		return
	}
	s.appear(key)
	if known {
		s.vanish(old)
	}
}

// tokenUndeclared forgets a token by its id or, when that was never declared to
// us, by its key. Called with s.mu held.
func (f *face) tokenUndeclared(id uint32, key string) {
	old, known := f.tokens[id]
	if !known || key != "" && key != old {
		known = false
		for id, old = range f.tokens {
			if old == key {
				known = true
				break
			}
		}
	}
	if known {
		delete(f.tokens, id)
		f.s.vanish(old)
	}
}

// declaredAll ends the answers to an interest; of interest 0 it is a peer's
// word that it has told us everything. Called with s.mu held.
func (f *face) declaredAll(m *codec.Declare) {
	if !m.Answers || m.Interest == 0 {
		if f.kind == guestPeer && !f.ready {
			f.ready = true
			f.s.retarget("")
		}
		return
	}
	if l := f.s.lists[m.Interest]; l != nil {
		l.finish(f)
	}
}

// hears reports whether samples on key should be sent to the remote. Called
// with s.mu held.
func (f *face) hears(key string) bool {
	return f.kind == upstream || f.kind == guestPeer && !f.ready || intersectsAny(f.subscribers, key)
}

// answers reports whether the remote should be asked about key. Called with
// s.mu held.
func (f *face) answers(key string) bool {
	return f.kind == upstream || f.kind == guestPeer && !f.ready || intersectsAny(f.queryables, key)
}

func intersectsAny(table map[uint32]string, key string) bool {
	for _, k := range table {
		if keyexpr.Intersects(k, key) {
			return true
		}
	}
	return false
}
