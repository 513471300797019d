package link

import (
	"reflect"
	"sync/atomic"
)

// Counters are atomic counters of dropped messages, of ended links, and of the messages that the session's router has
// relayed.
type Counters counts[atomic.Uint64]

// Stats are the values of the counters at one time.
type Stats counts[uint64]

type counts[N any] struct {
	Dropped     N // messages dropped by their QoS on a congested link
	Replaced    N // unsent samples that newer ones replaced
	Malformed   N // links ended because of bytes that are not a message
	StaleSN     N // frames and fragments that arrived twice or too late
	Unassembled N // fragmented messages dropped: a fragment is missing, or a size limit or the budget is exceeded
	Revoked     N // links ended because the budget was exhausted and they held the most of it
	Stalled     N // links ended because the peer did not read

	HalfOpen     N // connections displaced during their handshake
	Handshakes   N // connections closed before the handshake, because their address opens connections too fast
	Sessions     N // links refused at MaxSessions
	Idle         N // silent links that lost their place to a new link
	Keys         N // messages with a malformed key or a key that is too long
	Declarations N // declarations beyond the limit of a link
	Queries      N // queries beyond the limit of a link, which get no reply
	Replies      N // replies beyond the limit of a Get, or on another key
	Routes       N // number of times that the cache of incoming keys was full
	Denied       N // messages that a link's certificate does not allow

	RelayedSamples N // samples relayed from one link to another, counted for each receiver
	RelayedQueries N // queries relayed, each counted once even if several links get it
	RelayedReplies N // replies passed on
	RelayDropped   N // samples and replies dropped because the receiving link was congested
}

// Stats returns the counts so far.
func (c *Counters) Stats() (stats Stats) {
	from, to := reflect.ValueOf(c).Elem(), reflect.ValueOf(&stats).Elem()
	for i := range to.NumField() {
		to.Field(i).SetUint(from.Field(i).Addr().Interface().(*atomic.Uint64).Load())
	}
	return stats
}
