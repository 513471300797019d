package zenoh

import (
	"edgert/wire/zenoh/codec"
	"edgert/wire/zenoh/keyexpr"
	"edgert/wire/zenoh/link"
)

// question is what we have asked of links, under one number: on our own account,
// or relayed for a link that asks us. Guarded by Session.mu.
type question struct {
	id      uint32
	waiting map[*face]bool // links that have not finished

	get     *get     // whose it is: ours,
	inquiry *inquiry // or a link's
}

// asked enters a question to links, nil for none. Called with mu held.
func (s *Session) askedOf(links []*face) *question {
	if len(links) == 0 {
		return nil
	}
	q := &question{id: s.id(), waiting: map[*face]bool{}}
	for _, f := range links {
		q.waiting[f] = true
	}
	s.questions[q.id] = q
	return q
}

// finish stops waiting for a link. Called with s.mu held.
func (q *question) finish(f *face) {
	if !q.waiting[f] {
		return
	}
	delete(q.waiting, f)
	if len(q.waiting) > 0 {
		return
	}
	delete(f.s.questions, q.id)
	if q.get != nil {
		q.get.part()
	} else {
		q.inquiry.part()
	}
}

// send asks the links; one that cannot be asked has finished.
func (q *question) send(s *Session, links []*face, m *codec.Request, how link.Delivery) {
	out := codec.Message{Kind: codec.KindRequest, Request: *m}
	out.Request.ID = q.id
	msg := codec.AppendMessage(nil, &out)
	for _, f := range links {
		if f.link.Send(msg, how) != nil {
			s.finished(f, q.id)
		}
	}
}

// finished notes that a link has answered a question in full.
func (s *Session) finished(f *face, id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.questions[id]; q != nil {
		q.finish(f)
	}
}

// response takes a reply: for ourselves, or on its way to the link that asked.
// Owner: the link's reader.
func (f *face) response(m *codec.Response) {
	var key string
	if m.Expr.Scope != 0 || len(m.Expr.Suffix) > 0 {
		var ok bool
		if key, ok = f.key(m.Expr); !ok {
			return
		}
	}
	s := f.s
	s.mu.Lock()
	q := s.questions[m.ID]
	if q == nil || !q.waiting[f] {
		s.mu.Unlock()
		return
	}
	if q.get != nil {
		q.get.add(key, m)
		s.mu.Unlock()
		return
	}
	inquiry := q.inquiry
	s.mu.Unlock()
	inquiry.relay(key, m)
}

// relay sends a reply on to the link that asked, its key written out. What that
// link does not take in time is dropped and counted.
func (q *inquiry) relay(key string, m *codec.Response) {
	if q.over.Load() {
		return
	}
	out := codec.Message{Kind: codec.KindResponse, Response: *m}
	r := &out.Response
	r.ID, r.Envelope = q.id, codec.Envelope{QoS: q.qos, Timestamp: m.Timestamp}
	r.Expr = codec.Expr{Sender: true}
	if key != "" {
		r.Expr = codec.Key([]byte(key))
	}
	how := link.Delivery{QoS: q.qos, Reliable: true, MaxWait: relayPatience}
	if q.face.link.Send(codec.AppendMessage(nil, &out), how) == nil {
		q.face.s.relayed.Replies.Add(1)
	} else {
		q.face.s.relayed.Dropped.Add(1)
	}
}

// answerers finds who is to be asked on key: own queryables, and links, but
// those that from, who asks, reaches without us. from is nil for ourselves, who
// ask everybody. Called with mu held.
func (s *Session) answerers(key string, target codec.Target, from *face) (own []*object, links []*face) {
	s.aiming++
	add := func(f *face) {
		if f.aimed != s.aiming && (from == nil || from.relays(f)) {
			f.aimed = s.aiming
			links = append(links, f)
		}
	}
	found := s.matches(codec.DeclareQueryable, key)
	if target == codec.BestMatching {
		if best := nearest(found, key, from); best != nil {
			return nil, []*face{best}
		}
	}
	complete := target == codec.AllComplete
	for _, e := range found {
		if complete && !keyexpr.Includes(e.key, key) {
			continue
		}
		if !complete { // ours promise nothing
			own = append(own, e.own...)
		}
		for i := range e.holders {
			if !complete || e.holders[i].info.complete {
				add(e.holders[i].face)
			}
		}
	}
	// Those that tell us nothing, or not all yet, know best themselves.
	for _, f := range s.north {
		if from == nil && f.kind == upstream || f.kind == peer && !f.ready {
			add(f)
		}
	}
	return own, links
}

// nearest finds the link with the nearest complete queryable that covers key.
func nearest(found []*entry, key string, from *face) (best *face) {
	var distance uint16
	for _, e := range found {
		if !keyexpr.Includes(e.key, key) {
			continue
		}
		for i := range e.holders {
			h := &e.holders[i]
			if h.info.complete && from.relays(h.face) && (best == nil || h.info.distance < distance) {
				best, distance = h.face, h.info.distance
			}
		}
	}
	return best
}
