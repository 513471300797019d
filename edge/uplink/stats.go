package uplink

import "sync/atomic"

// The reasons for dropping a chunk, in addition to chunk's own outcomes.
const (
	dropHeader  = iota // header missing, or of another protocol
	dropBody           // message that does not decode or exceeds a limit
	DropEpoch          // answer in a session of another policy, or in a session that is no longer remembered
	DropEpisode        // answer to an earlier episode
	DropUnknown        // the request was never sent, has an answer already, or is forgotten
	dropNewer          // a newer answer arrived before this answer was merged
	dropForeign        // answer to the request of another robot of this name, or from another server
	NumDrops
)

// DropNames are the names of the reasons in summaries and records.
var DropNames = [NumDrops]string{"header", "body", "epoch", "episode", "unknown_seq", "superseded", "foreign"}

// Stats are the counters of the link. Only one thread writes each field; any thread may read it.
type Stats struct {
	// Written by the sender.
	Replaced   atomic.Uint64 // observations that a newer observation replaced before they left
	Unsent     atomic.Uint64 // observations that did not leave, for lack of a session or of a usable picture
	SendErrors atomic.Uint64

	// Written by the receiver.
	Dropped [NumDrops]atomic.Uint64 // answers that the tick does not get, by reason
}

// Drops returns the counts of dropped answers by reason, without zeros.
func (s *Stats) Drops() map[string]uint64 {
	m := map[string]uint64{}
	for i, name := range DropNames {
		if n := s.Dropped[i].Load(); n > 0 {
			m[name] = n
		}
	}
	return m
}
