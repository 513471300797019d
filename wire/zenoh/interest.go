package zenoh

import (
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/keyexpr"
)

// interest is what a guest client wants to be told of, now and later.
type interest struct {
	about     uint8
	key       string // "" is everything
	aggregate bool   // one declaration on key for all subscribers, one for all queryables

	// The ids of those declarations; 0 while nothing matches.
	aggregated map[codec.DeclareKind]uint32
}

var aboutKind = map[codec.DeclareKind]uint8{
	codec.DeclareSubscriber: codec.AboutSubscribers,
	codec.DeclareQueryable:  codec.AboutQueryables,
	codec.DeclareToken:      codec.AboutTokens,
}

// wants reports whether the interest is about an object.
func (i *interest) wants(o *object) bool {
	return i.about&aboutKind[o.kind] != 0 && (i.key == "" || keyexpr.Intersects(i.key, o.key))
}

// aggregates reports whether o is to be announced under the interest's own key.
// Tokens never are.
func (i *interest) aggregates(o *object) bool {
	return i.aggregate && o.kind != codec.DeclareToken && i.key != ""
}

// asked answers a remote's interest: what exists, the end of it, and for a
// client's future interests whatever changes. An interest is never met with
// silence, because the official publishers, queriers and liveliness gets wait
// for that end. Owner: the link's reader.
func (f *face) asked(m *codec.Interest) {
	s := f.s
	i := &interest{about: m.About &^ codec.AboutAggregate, aggregate: m.About&codec.AboutAggregate != 0}
	valid := true
	if m.Restricted {
		i.key, valid = f.key(m.Expr)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Mode == codec.InterestFinal {
		delete(f.interests, m.ID)
		return
	}
	future := m.Mode&codec.InterestFuture != 0 && f.kind == guestClient && valid
	if future && len(f.interests) >= maxDeclared {
		s.refused.Declarations.Add(1)
		future = false
	}
	if future {
		i.aggregated = map[codec.DeclareKind]uint32{}
		f.interests[m.ID] = i
	}
	// A late joiner of an upstream was told everything when it joined.
	if m.Mode&codec.InterestCurrent != 0 && valid && f.kind != upstream {
		f.answerCurrent(i, m.ID, future)
	}
	f.declare(codec.Declare{Answers: true, Interest: m.ID, Kind: codec.DeclareFinal})
}

// answerCurrent declares what matches an interest now. Called with s.mu held.
func (f *face) answerCurrent(i *interest, id uint32, future bool) {
	done := map[codec.DeclareKind]bool{}
	for _, o := range f.s.objects {
		if !i.wants(o) || i.aggregates(o) && done[o.kind] {
			continue
		}
		done[o.kind] = true
		d := codec.Declare{Answers: true, Interest: id, Kind: o.kind, Expr: codec.Key([]byte(o.key)), Complete: o.complete()}
		if i.aggregates(o) {
			d.Expr = codec.Key([]byte(i.key))
		}
		if future {
			d.ID = f.known(i, o)
		}
		f.declare(d)
	}
}

// known returns the id under which a future interest knows o, and notes that
// the remote does. Called with s.mu held.
func (f *face) known(i *interest, o *object) uint32 {
	if !i.aggregates(o) {
		f.told[o.id] = true
		return o.id
	}
	if i.aggregated[o.kind] == 0 {
		i.aggregated[o.kind] = f.s.id()
	}
	return i.aggregated[o.kind]
}

// tell announces a new object to a guest client that asked for such. Called
// with s.mu held.
func (f *face) tell(o *object) {
	for _, i := range f.interests {
		if !i.wants(o) || i.aggregates(o) && i.aggregated[o.kind] != 0 || !i.aggregates(o) && f.told[o.id] {
			continue
		}
		key := o.key
		if i.aggregates(o) {
			key = i.key
		}
		f.declare(codec.Declare{Kind: o.kind, ID: f.known(i, o), Expr: codec.Key([]byte(key)), Complete: o.complete()})
	}
}

// untell takes an object back that is no longer in s.objects. Called with s.mu
// held.
func (f *face) untell(o *object) {
	if f.told[o.id] {
		delete(f.told, o.id)
		f.declare(codec.Declare{Kind: o.kind + 1, ID: o.id})
	}
	for _, i := range f.interests {
		id := i.aggregated[o.kind]
		if id == 0 || !i.wants(o) || f.s.any(i, o.kind) {
			continue
		}
		i.aggregated[o.kind] = 0
		f.declare(codec.Declare{Kind: o.kind + 1, ID: id})
	}
}

// any reports whether some object of a kind matches an interest. Called with mu
// held.
func (s *Session) any(i *interest, kind codec.DeclareKind) bool {
	for _, o := range s.objects {
		if o.kind == kind && i.wants(o) {
			return true
		}
	}
	return false
}
