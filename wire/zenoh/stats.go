package zenoh

import "github.com/edge-rt/edge-rt/wire/zenoh/link"

// Stats holds the counters of a session since Open: messages that were dropped, links that were ended, and messages
// that its router relayed.
type Stats = link.Stats

// Stats returns the counters, including those of the router in this process.
func (s *Session) Stats() Stats { return s.counters.Stats() }
