package zenoh

import "github.com/edge-rt/edge-rt/wire/zenoh/link"

// Stats counts the messages that a session's bounds and queues have given up since Open.
type Stats = link.Stats

// Stats returns the counters, including those of the router in this process.
func (s *Session) Stats() Stats { return s.counters.Stats() }
