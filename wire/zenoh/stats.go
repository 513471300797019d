package zenoh

// Stats counts the messages that a session's bounds and queues have given up since Open.
type Stats struct {
	Dropped     uint64 // messages dropped by their QoS on a congested link
	Replaced    uint64 // unsent samples that a newer one replaced
	Malformed   uint64 // links ended because of bytes that are not a message
	StaleSN     uint64 // frames that arrived twice or too late
	Unassembled uint64 // fragmented messages given up
	Revoked     uint64 // links ended because they held most of an exhausted memory
	Stalled     uint64 // links ended because the peer did not read

	HalfOpen     uint64 // connections displaced during their handshake
	Sessions     uint64 // links refused at MaxSessions
	Idle         uint64 // silent links that were displaced by another
	Keys         uint64 // messages with a malformed or too long key
	Declarations uint64 // declarations beyond the limit of a link
	Queries      uint64 // queries beyond the limit of a link, which get no reply
	Replies      uint64 // replies beyond the limit of a Get, or with a foreign key
	Routes       uint64 // times the cache of incoming keys overflowed
	Denied       uint64 // messages that a link's certificate does not allow

	RelayedSamples uint64 // samples passed on from one link to another, once per receiver
	RelayedQueries uint64 // queries passed on, each counted once for any number of links
	RelayedReplies uint64 // replies passed on
	RelayDropped   uint64 // samples and replies that the other link did not take
}

// Stats returns the counters, including those of the router in this process.
func (s *Session) Stats() Stats {
	c, own := &s.counters, &s.refused
	st := Stats{
		Dropped:      c.Dropped.Load(),
		Replaced:     c.Replaced.Load(),
		Malformed:    c.Malformed.Load(),
		Revoked:      c.Revoked.Load(),
		StaleSN:      c.StaleSN.Load(),
		Unassembled:  c.Unassembled.Load(),
		Stalled:      c.Stalled.Load(),
		Keys:         own.Keys.Load(),
		Declarations: own.Declarations.Load(),
		Queries:      own.Queries.Load(),
		Replies:      own.Replies.Load(),
		Routes:       own.Routes.Load(),
	}
	if s.router != nil {
		refused, relayed := s.router.Counters()
		st.HalfOpen = refused.HalfOpen.Load()
		st.Sessions = refused.Sessions.Load()
		st.Idle = refused.Idle.Load()
		st.Keys += refused.Keys.Load()
		st.Declarations += refused.Declarations.Load()
		st.Queries += refused.Queries.Load()
		st.Routes += refused.Routes.Load()
		st.Denied = refused.Denied.Load()
		st.RelayedSamples, st.RelayedQueries = relayed.Samples.Load(), relayed.Queries.Load()
		st.RelayedReplies, st.RelayDropped = relayed.Replies.Load(), relayed.Dropped.Load()
	}
	return st
}
