package link

import "sync/atomic"

// Counters counts, per session, what its bounds refused or gave up. Atomic.
type Counters struct {
	Dropped     atomic.Uint64 // messages a dropping QoS gave up on a congested link
	Replaced    atomic.Uint64 // unsent messages that a newer one replaced
	Malformed   atomic.Uint64 // links ended for bytes that are no message
	StaleSN     atomic.Uint64 // frames and fragments that arrived twice or too late
	Unassembled atomic.Uint64 // fragmented messages given up: a gap, too large, over the budget
	Revoked     atomic.Uint64 // links ended because they held most of an exhausted budget
	Stalled     atomic.Uint64 // links ended because the peer did not read
}
