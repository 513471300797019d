package server

// roundRobin gives every robot that waits one inference per turn, in byte order
// of the uuids: the first after the last one served, else the first of all.
type roundRobin struct{ last string }

// next returns the session to serve, or nil when nobody waits. sessions are
// sorted by uuid.
//
// Owner: worker.
//
//rt:noalloc
func (r *roundRobin) next(sessions []*Session) *Session {
	var first *Session
	for _, s := range sessions {
		if !s.mailbox.pending() {
			continue
		}
		if s.uuid > r.last {
			r.last = s.uuid
			return s
		}
		if first == nil {
			first = s
		}
	}
	if first != nil {
		r.last = first.uuid
	}
	return first
}
